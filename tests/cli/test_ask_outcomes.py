"""Answer, JSON lines and exit status of `ecoshell ask` on scripted replies."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_play import CALCULATE, SLEEP, Command

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(tmp_path: Path, command: Command) -> Ask:
    """Ask a script of replies; return the exit status, standard output and standard error."""

    def ask(
        *arguments: str, replies: tuple[dict[str, Any], ...] = CALCULATE, typed: str = ""
    ) -> tuple[int, str, str]:
        script = tmp_path / "script.jsonl"
        script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        shared = ("--model", f"script:{script}", "--registration", "names", "--price", "1,2")
        ended = command("ask", *shared, *arguments, typed=typed)
        return ended.returncode, ended.stdout, ended.stderr

    (tmp_path / "workspace").mkdir()
    return ask


def test_json_ends_with_the_result_and_its_cost_as_a_decimal(ask: Ask) -> None:
    status, out, _ = ask("--json", "What is 17 * 23?")
    lines = [json.loads(line) for line in out.splitlines()]
    result = lines[-1]
    assert status == 0
    assert (result["type"], result["status"], result["answer"]) == ("result", "answered", "391")
    assert result["registered"] == ["calculate"]
    assert result["steps"] == 3
    assert float(result["cost_usd"]) > 0
    assert lines[-2]["type"] == "turn_finished"
    observations = [
        line["observation"]
        for line in lines
        if line["type"] == "call_finished" and line["name"] == "calculate"
    ]
    assert observations == ["17 * 23 = 391"]


def test_json_reports_the_workspace_context_and_the_trust_in_instructions(
    ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "workspace" / "AGENTS.md").write_text("Use tabs.\n")
    events = [json.loads(line) for line in ask("--json", "Hello?")[1].splitlines()]
    context = next(event for event in events if event["type"] == "context_told")
    assert [(part["name"], part["state"]) for part in context["parts"]] == [
        ("project", "untrusted"),
        ("facts", "told"),
    ]
    assert context["workspace"] == str(tmp_path / "workspace")
    trust = {"type": "trust_given", "decision": "later", "by": "nobody", "file": "AGENTS.md"}
    assert trust in events
    events = [
        json.loads(line) for line in ask("--json", "--trust-project", "Hello?")[1].splitlines()
    ]
    context = next(event for event in events if event["type"] == "context_told")
    assert context["parts"][0]["state"] == "told"
    assert context["parts"][0]["tokens"] > 0
    assert "Use tabs." in context["text"]


def test_empty_question_on_standard_input_is_refused(ask: Ask) -> None:
    status, out, err = ask("-", typed="  \n")
    assert (status, out) == (2, "")
    assert "question is empty" in err


def test_question_longer_than_the_context_is_refused(ask: Ask) -> None:
    status, out, err = ask("-", typed="word " * 2_000_000)
    assert (status, out) == (1, "")
    assert "context" in err


def test_script_without_further_replies_is_an_error(ask: Ask) -> None:
    status, out, err = ask("hello", replies=CALCULATE[:1])
    assert (status, out) == (1, "")
    assert "error:" in err


def test_giving_up_has_exit_status_4(ask: Ask) -> None:
    gave_up = {"call": {"name": "finish", "arguments": {"give_up": "The file does not exist."}}}
    status, _, err = ask("hello", replies=(gave_up,))
    assert status == 4
    assert "gave up" in err


def test_cap_below_the_cost_of_a_call_has_exit_status_3(ask: Ask) -> None:
    status, _, err = ask("--budget", "0.000001", "hello")
    assert status == 3
    assert "limit" in err


def test_call_that_needs_approval_does_not_run_without_a_user(ask: Ask) -> None:
    status, out, err = ask("--json", "sleep", replies=SLEEP)
    lines = [json.loads(line) for line in out.splitlines()]
    finished = [line for line in lines if line["type"] == "call_finished"]
    assert status == 4
    assert finished[-1]["refused"] == "unapproved"
    assert (lines[-1]["status"], len(lines[-1]["refused"])) == ("answered", 1)
    assert err.startswith("ecoshell: run_command(command=")
    assert "was not run: it needs an approval, and no user is available. --yes skips" in err
    assert ask("sleep", replies=SLEEP)[:2] == (4, "slept\n")


def test_call_denied_by_a_rule_is_not_an_unanswered_approval(ask: Ask) -> None:
    status, out, err = ask("--read-only", "sleep", replies=SLEEP)
    assert (status, out, err) == (0, "slept\n", "")


def test_strategy_option_applies_to_one_question(ask: Ask) -> None:
    replies = (
        {"call": {"name": "tool_register", "arguments": {"tool_name": "count_text"}}},
        {
            "call": {
                "name": "finish",
                "arguments": {"give_up": True, "answer": "a counter is of no use"},
            }
        },
        *CALCULATE,
    )
    status, out, _ = ask("--strategy", "dfsdt", "What is 17 * 23?", replies=replies)
    assert (status, out) == (0, "391\n")
    assert ask("--strategy", "bfs", "?")[0] == 2
    status, out, _ = ask("--strategy", "dfsdt", "--json", "What is 17 * 23?", replies=replies)
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["strategy"] for event in events if event["type"] == "turn_started"] == ["dfsdt"]
    assert [event["reason"] for event in events if event["type"] == "branch_left"] == [
        "given up: a counter is of no use"
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="runs sleep")
def test_a_slow_tool_is_stopped_by_a_cap_in_time_and_the_status_is_3(
    ask: Ask, command: Command
) -> None:
    status, out, _ = ask("--json", "--yes", "--budget", "4s", "Sleep!", replies=SLEEP)
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 3
    assert (lines[-1]["status"], lines[-1]["answer"]) == ("limit", "slept")
    (call,) = (
        line for line in lines if line["type"] == "call_finished" and line["name"] == "run_command"
    )
    assert "run_command was stopped. The session's cap of 4 s" in call["observation"]
    (hit,) = (line for line in lines if line["type"] == "limit_hit")
    assert hit["unit"] == "ms"
    (cap,) = json.loads(command("cost", "--json").stdout)["caps"]
    assert 2.5 <= cap["spent_seconds"] <= cap["limit_seconds"] == 4.0
    assert (cap["held_seconds"], cap["limit_usd"], cap["limit_tokens"]) == (0.0, None, None)


def test_an_ambiguous_duration_is_refused(ask: Ask) -> None:
    status, _, err = ask("--budget", "5m", "Hello?")
    assert status == 2
    assert "'5m' could be dollars, tokens or minutes" in err
