"""`ecoshell ask` with a shell that plays prepared events."""

import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path

import pytest
from command_play import commands

from ecoshell.api import Agent, Outcome
from ecoshell.cli import standard_input
from ecoshell.cli.answer_output import AnswerOutput, print_json_line
from ecoshell.cli.ask import follow, read_question, run
from ecoshell.cli.parser import build_parser
from ecoshell.errors import UsageError
from ecoshell.events import (
    Answer,
    BudgetSettled,
    ErrorHappened,
    Event,
    HookRan,
    Notice,
    PlanWritten,
    QuoteChosen,
    Rationale,
    StepStarted,
    TextArrived,
    ToolRegistered,
    TurnFinished,
    from_json,
)
from ecoshell.messages import Attachment, Usage

TURN: list[Event] = [
    StepStarted(1, "single", "m"),
    ToolRegistered("calculate", 70, True, 1, "agent"),
    BudgetSettled(1, "single", "m", 3_100_000, Usage(120, 30, cached=100), True, 0.5),
    Answer("391"),
    TurnFinished(
        1, "answered", "391", 3_100_000, Usage(120, 30, cached=100), 1, ("calculate",), 0.7
    ),
]


class PlayedShell:
    """Plays prepared events."""

    session = "abc123"
    resumed = None

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    async def ask(
        self, question: str, attachments: Sequence[Attachment]
    ) -> AsyncGenerator[Event, None]:
        for event in self.events:
            yield event

    async def require_question(self, line: str) -> None:
        """Every line is a question."""

    async def stop(self) -> None:
        raise AssertionError("stopped without a request")

    async def aclose(self) -> None:
        """Nothing is open."""


class PlayedAgent(Agent):
    """An agent whose shell plays prepared events."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__()
        self.events = events

    async def __aenter__(self) -> "PlayedAgent":
        self._shell = PlayedShell(self.events)  # type: ignore[assignment]
        return self


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes, *, ended: bool) -> int:
    """Replace standard input with a real pipe that holds this data; return its other end."""
    reader, writer = os.pipe()
    os.write(writer, data)
    if ended:
        os.close(writer)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    return writer


async def follow_played(events: list[Event], *, json: bool) -> Outcome:
    """Print played events to standard output and error."""
    agent = PlayedAgent(events)
    report = print_json_line if json else AnswerOutput(lambda: agent.outcome.session).show
    await follow(agent, "q", (), report=report, user=None)
    report(agent.outcome.result())
    return agent.outcome


async def test_json_prints_every_event_and_then_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await follow_played(TURN, json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [from_json(line) for line in lines[:-1]] == TURN
    assert lines[-1] == {
        "type": "result",
        "status": "answered",
        "answer": "391",
        "cost_usd": "0.0031",
        "usage": {"input": 120, "output": 30, "cached": 100, "cache_write": 0, "reasoning": 0},
        "estimate": None,
        "steps": 1,
        "registered": ["calculate"],
        "refused": [],
        "session": "abc123",
    }


async def test_json_output_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    await follow_played([Notice("\x9b2J\u202e"), *TURN], json=True)
    assert capsys.readouterr().out.isascii()


async def test_plan_is_followed_by_the_command_that_resumes_its_session(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    await follow_played([PlanWritten("1. Read it.", 1), *TURN], json=False)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "plan of 1 step" in line]
    assert "ecoshell --resume abc123, then /plan accept" in line
    assert "carries it out" not in line


async def test_only_the_answer_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    await follow_played(TURN, json=False)
    assert capsys.readouterr() == ("391\n", "")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            HookRan("turn_start", "slow", "sleep 9", None, 2.0, False, "It was stopped."),
            "the hook slow",
        ),
        (HookRan("turn_start", "quick", "true", 0, 0.1, False), ""),
        (QuoteChosen("1", "refuse", "cap"), "not started: the expected price does not fit"),
        (QuoteChosen("1", "start", "cap"), ""),
    ],
)
async def test_a_failed_hook_and_work_that_does_not_start_are_reported(
    capsys: pytest.CaptureFixture[str], event: Event, words: str
) -> None:
    await follow_played([event, *TURN], json=False)
    answer, report = capsys.readouterr()
    assert answer == "391\n"
    assert words in report
    assert bool(report) == bool(words)
    AnswerOutput(lambda: None, quiet=True).show(event)
    assert capsys.readouterr() == ("", "")


async def test_control_characters_of_an_answer_are_shown_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    finished = TurnFinished(1, "answered", "\x1b]0;owned\x07[b]x", 0, Usage(), 1, (), 0.1)
    await follow_played([finished], json=False)
    assert capsys.readouterr().out == "␛]0;owned\\x07[b]x\n"


async def test_errors_and_unanswered_turns_are_reported_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = ErrorHappened("ModelUnavailable", "The provider did not answer.", fix="Try again.")
    outcome = await follow_played(
        [failed, TurnFinished(1, "error", "", 0, Usage(), 0, (), 0.1)], json=False
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: The provider did not answer. Try again." in err
    assert outcome.exit_status == 1


@pytest.mark.parametrize(
    ("status", "exit_status"),
    [("answered", 0), ("error", 1), ("limit", 3), ("gave_up", 4), ("interrupted", 130)],
)
def test_exit_status_reflects_how_the_turn_ended(status: str, exit_status: int) -> None:
    outcome = Outcome()
    outcome.see(TurnFinished(1, status, "", 0, Usage(), 0, (), 0.1))  # type: ignore[arg-type]
    assert outcome.exit_status == exit_status


def test_outcome_of_an_interrupted_turn_holds_what_arrived() -> None:
    outcome = Outcome()
    for event in (
        *TURN[:3],
        TextArrived("It is ", "answer", "single"),
        TextArrived("39", "answer", "single"),
    ):
        outcome.see(event)
    outcome.status = "interrupted"
    result = outcome.result()
    assert (result.answer, result.cost_usd, result.usage.input) == ("It is 39", "0.0031", 120)
    assert result.registered == ("calculate",)


@pytest.mark.parametrize("status", ["error", "interrupted"])
async def test_text_before_a_failure_is_printed(
    capsys: pytest.CaptureFixture[str], status: str
) -> None:
    events = (
        StepStarted(1, "single", "m"),
        TextArrived("I look.", "thought", "single"),
        Rationale("I look.", "single"),
        StepStarted(2, "single", "m"),
        TextArrived("Why?", "reasoning", "single"),
        TextArrived("It is ", "thought", "single"),
        TextArrived("39", "thought", "single"),
        TurnFinished(1, status, "", 9, Usage(), 2, (), 0.1),  # type: ignore[arg-type]
    )
    outcome = await follow_played(events, json=False)
    assert (outcome.answer, capsys.readouterr().out) == ("It is 39", "It is 39\n")


def test_cost_is_unknown_if_one_part_is_unknown() -> None:
    outcome = Outcome()
    outcome.see(BudgetSettled(1, "single", "m", None, Usage(10, 1), True, 0.1))
    outcome.see(BudgetSettled(2, "single", "m", 5, Usage(10, 1), True, 0.1))
    assert outcome.result().cost_usd is None


def test_empty_question_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        run(build_parser().parse_args(["ask", " \n"]))


def test_empty_question_with_json_prints_an_error_and_a_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(build_parser().parse_args(["ask", "", "--json"])) == 2
    error, result = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert error["kind"] == "UsageError"
    assert (result["type"], result["status"], result["session"]) == ("result", "error", None)


@pytest.mark.parametrize(
    ("data", "word"), [(b"caf\xff?\n", "-"), (b"", "caf\udcff?")], ids=["input", "argument"]
)
def test_invalid_utf8_in_a_question_is_replaced_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, data: bytes, word: str
) -> None:
    pipe(monkeypatch, data, ended=True)
    warnings: list[str] = []
    assert read_question([word], warnings.append) == ("caf�?", ())
    assert len(warnings) == 1


def test_input_without_an_end_is_attached_partly_unless_a_dash_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standard_input, "_END_SECONDS", 0.2)
    notes: list[str] = []
    writer = pipe(monkeypatch, b"one\n", ended=False)
    _, (attached,) = read_question(["sum", "up"], notes.append)
    assert attached.text == "one\n\n[cut: the first 4 of more than 4 bytes]"
    assert [line.partition(";")[0] for line in notes] == ["standard input did not end within 0 s"]
    os.close(writer)
    writer = pipe(monkeypatch, b"one\n", ended=False)
    later = threading.Timer(0.6, lambda: (os.write(writer, b"two\n"), os.close(writer)))
    later.start()
    question, (attached,) = read_question(["sum", "up", "-"], notes.append)
    assert (question, attached.text) == ("sum up", "one\ntwo\n")
    later.join()


@pytest.mark.parametrize(
    "question",
    ["/budget turn 0.50", "/Model gpt", "/theme", "/Settings", "/search", "/exit", "/model\ngpt"],
)
def test_a_command_of_the_chat_is_not_asked(question: str) -> None:
    with pytest.raises(UsageError, match="is a chat command, not a question") as caught:
        run(build_parser().parse_args(["ask", question]))
    assert caught.value.exit_status == 2


def test_custom_commands_are_asked_and_mistyped_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "workspace/.ecoshell/commands"
    folder.mkdir(parents=True)
    (folder / "models.md").write_text("Which models are there?")
    (tmp_path / "script.jsonl").write_text('{"text": "One."}\n')
    ask = partial(
        commands(tmp_path, monkeypatch, capsys),
        "ask",
        "--trust-project",
        "--model",
        "script:../script.jsonl",
    )
    assert ask("/models").stdout == "One.\n"
    ended = ask("/modls x")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Did you mean /models?" in ended.stderr
