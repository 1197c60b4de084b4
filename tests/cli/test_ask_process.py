"""`ecoshell ask` as a process with arguments, pipes, signals and an exit status."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_play import CALCULATE, SLEEP, Command

LIMIT_S = 600
"""Longer than any of these may take; a process that hangs is a failure, not a wait."""

BOMBS = (
    (signal.SIGINT, "json_query", {"query": "|".join(["[@,@]"] * 100), "text": "[1]"}),
    (signal.SIGTERM, "search_text", {"text": "(a*)*b", "regex": True}),
)

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start `ecoshell ask` on a script of replies in a temporary workspace and home."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = {**os.environ, "ECOSHELL_HOME": str(tmp_path / "home"), "PYTHONUTF8": "1"}

    def start(
        *arguments: str, replies: tuple[dict[str, Any], ...] = CALCULATE
    ) -> "subprocess.Popen[bytes]":
        script = tmp_path / "script.jsonl"
        script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        shared = ("--model", f"script:{script}", "--registration", "names", "--price", "1,2")
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ecoshell",
                "ask",
                *shared,
                "--workspace",
                str(workspace),
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=Path(__file__).parents[2],
        )

    return start


def end(process: "subprocess.Popen[bytes]", typed: bytes = b"") -> tuple[int, str, str]:
    """Wait for the end; return the exit status, standard output and standard error."""
    out, err = process.communicate(typed, timeout=LIMIT_S)
    return process.returncode, out.decode(), err.decode()


def wait_for(process: "subprocess.Popen[bytes]", event: str) -> list[dict[str, Any]]:
    """Read JSON lines until one of this type arrives."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["type"] == event:
            return events
    raise AssertionError(f"{event} did not arrive: {events}")


def test_failing_hook_of_the_sessions_end_is_reported(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    hook = '[hooks.commands.bye]\non = "session_end"\ncommand = "exit 3"\n'
    (config / "config.toml").write_text(hook)
    status, out, err = end(start("What is 17 * 23?"))
    assert (status, out) == (0, "391\n")
    assert "the hook bye (session_end) ended with exit status 3" in err
    lines = [json.loads(line) for line in end(start("--json", "What is 17 * 23?"))[1].splitlines()]
    assert [line["type"] for line in lines[-2:]] == ["hook_ran", "result"]
    assert (lines[-2]["name"], lines[-2]["status"]) == ("bye", 3)


def test_standard_output_has_only_the_answer(start: Start) -> None:
    assert end(start("What is 17 * 23?")) == (0, "391\n", "")


def test_dash_reads_the_question_from_standard_input(start: Start) -> None:
    status, out, err = end(start("--json", "-"), b"What is \xff 17 * 23?\n")
    started = next(
        line for line in map(json.loads, out.splitlines()) if line["type"] == "turn_started"
    )
    assert status == 0
    assert started["question"] == "What is � 17 * 23?"
    assert "not valid UTF-8" in err


def attached(out: str) -> list[dict[str, str]]:
    """Return the attachments of the question in the events on standard output."""
    started = next(
        line for line in map(json.loads, out.splitlines()) if line["type"] == "turn_started"
    )
    return started["attachments"]


def test_piped_text_is_attached_with_a_note(start: Start) -> None:
    status, out, err = end(start("--json", "summarize", "this"), "naïve\nnotes\n".encode())
    assert (status, attached(out)) == (
        0,
        [{"name": "standard input", "text": "naïve\nnotes\n", "image": None}],
    )
    assert err == "ecoshell: attached standard input: 13 bytes.\n"


def test_quiet_question_with_piped_text_prints_only_the_answer(start: Start) -> None:
    assert end(start("--quiet", "review", "-"), b"+ a line\n") == (0, "391\n", "")
    status, out, _ = end(start("--json", "--quiet", "review", "-"), b"+ a line\n")
    assert (status, attached(out)) == (
        0,
        [{"name": "standard input", "text": "+ a line\n", "image": None}],
    )


def test_quiet_question_prints_errors(start: Start) -> None:
    status, out, err = end(start("--quiet", "hello", replies=()))
    assert (status, out) == (1, "")
    assert "has only 0 replies" in err


def test_long_input_is_cut_between_characters_with_a_note_to_user_and_model(start: Start) -> None:
    status, out, err = end(start("--json", "summarize"), "€".encode() * 50_000)
    (attachment,) = attached(out)
    text, _, cut = attachment["text"].partition("\n")
    assert (status, len(text), cut) == (0, 33_333, "[cut: the first 99,999 of 150,000 bytes]")
    assert err == "ecoshell: attached standard input, cut: the first 99,999 of 150,000 bytes.\n"


@pytest.mark.skipif(os.name == "nt", reason="pipes one program into another as a shell does")
@pytest.mark.parametrize(
    ("source", "names", "note"),
    [
        ("yes |", ["standard input"], "the first 100,000 of more than 16,000,000 bytes"),
        ("", [], ""),
        ("printf '  \\n' |", [], ""),
        ("sleep 20 |", [], "no data on standard input for 3 s"),
        ("(sleep 4; echo late) |", ["standard input"], "attached standard input: 5 bytes"),
        ("printf 'caf\\351' |", ["standard input"], "not valid UTF-8"),
    ],
)
def test_question_is_asked_with_any_kind_of_input(
    tmp_path: Path, source: str, names: list[str], note: str
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "fine"}\n')
    wait = " -" if "late" in source else ""
    end_of = " < /dev/null" if not source else ""
    command = f"{source} '{sys.executable}' -m ecoshell ask --json --model script:{script} what is it{wait}{end_of}"
    env = {**os.environ, "ECOSHELL_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        out = "".join(json.dumps(event) + "\n" for event in wait_for(process, "result"))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT_S)
    assert [attachment["name"] for attachment in attached(out)] == names
    assert json.loads(out.splitlines()[-1])["answer"] == "fine"
    assert (note in err.decode()) if note else not err


def test_binary_input_is_refused(start: Start) -> None:
    status, out, err = end(start("what is this?"), b"\x89PNG\0\0")
    assert (status, out) == (2, "")
    assert "binary" in err


def test_question_without_an_end_is_refused(tmp_path: Path) -> None:
    command = f"yes | '{sys.executable}' -m ecoshell ask -"
    env = {**os.environ, "ECOSHELL_HOME": str(tmp_path)}
    ended = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, timeout=LIMIT_S, env=env, check=False
    )
    assert ended.returncode == 2
    assert b"more than 16,000,000 bytes" in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="closes a file descriptor as a shell does")
def test_closed_standard_input_is_an_empty_question(tmp_path: Path) -> None:
    env = {**os.environ, "ECOSHELL_HOME": str(tmp_path)}
    command = f"exec '{sys.executable}' -m ecoshell ask - <&-"
    ended = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, timeout=LIMIT_S, env=env, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"The question is empty." in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="opens a file descriptor as nohup does")
@pytest.mark.parametrize("command", ["ask -", "ask and -", "line"])
def test_unreadable_standard_input_is_reported_in_one_sentence(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "script.jsonl").write_text('{"text": "fine"}\n')
    env = {
        **os.environ,
        "ECOSHELL_HOME": str(tmp_path),
        "ECOSHELL_MODEL": f"script:{tmp_path / 'script.jsonl'}",
    }
    run = f"exec '{sys.executable}' -m ecoshell {command} 0>/dev/null"
    ended = subprocess.run(
        ["/bin/sh", "-c", run], capture_output=True, timeout=LIMIT_S, env=env, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.startswith(
        b"ecoshell: Standard input cannot be read (Bad file descriptor)."
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("command", [["--version"], ["cost"], ["ask", "--json", "-"], ["line"]])
def test_unwritable_output_is_reported_in_one_sentence(command: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "fine"}\n')
    own = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
        if name in os.environ
    }
    env = {**own, "ECOSHELL_HOME": str(tmp_path / "home"), "ECOSHELL_MODEL": f"script:{script}"}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "ecoshell", *command],
            input=b"hi",
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            env=env,
            check=False,
        )
    assert ended.returncode == 1
    assert (
        ended.stderr.decode()
        .splitlines()[0]
        .startswith("ecoshell: The output could not be written")
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_turn_prints_a_result_and_keeps_the_session(
    start: Start, command: Command, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("--json", "--yes", "sleep", replies=SLEEP)
    events = wait_for(process, "call_started")
    while events[-1].get("name") != "run_command":
        events = wait_for(process, "call_started")
    process.send_signal(number)
    status, out, err = end(process)
    result = json.loads(out.splitlines()[-1])
    assert status == 130, err
    assert (result["type"], result["status"]) == ("result", "interrupted")
    assert result["registered"] == ["run_command"]
    (tmp_path / "script.jsonl").write_text(json.dumps(CALCULATE[2]) + "\n")
    again = command("ask", "--json", "--resume", result["session"], "again")
    assert again.returncode == 0
    assert json.loads(again.stdout.splitlines()[-1])["session"] == result["session"]


def _at_work(shell: int) -> list[str]:
    """Wait until one of a shell's workers has computed for a while; return all workers."""

    def ticks(pid: str) -> int:
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
        except OSError:  # the worker has ended
            return 0

    deadline, began = time.monotonic() + LIMIT_S, dict[str, int]()
    while True:
        tasks = Path(f"/proc/{shell}/task").iterdir()
        workers = [pid for task in tasks for pid in (task / "children").read_text().split()]
        if any(ticks(pid) - began.setdefault(pid, ticks(pid)) > 30 for pid in workers):
            return workers
        assert time.monotonic() < deadline, workers
        time.sleep(0.02)


def _runs(pid: str) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "name", "arguments"), BOMBS)
def test_interrupt_stops_an_endless_pattern_or_query_at_once(
    start: Start, tmp_path: Path, number: signal.Signals, name: str, arguments: dict[str, Any]
) -> None:
    (tmp_path / "workspace" / "a.txt").write_text("a" * 100_000 + "c\nb")
    replies = (
        {"call": {"name": "tool_register", "arguments": {"tool_name": name}}},
        {"call": {"name": name, "arguments": arguments}},
        {"text": "done"},
    )
    process = start("--json", "find it", replies=replies)
    events = wait_for(process, "call_started")
    while events[-1].get("name") != name:
        events = wait_for(process, "call_started")
    workers = _at_work(process.pid)
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    deadline = (
        time.monotonic() + LIMIT_S
    )  # a worker ends by its shell's end, which is a moment later
    while running := [pid for pid in workers if _runs(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.05)


def test_interrupt_while_reading_the_question_prints_a_result(start: Start) -> None:
    process = start("--json", "-")
    assert process.stdin is not None
    process.stdin.write(b"half a ques")
    process.stdin.flush()
    _until_reading(process)
    process.send_signal(signal.SIGINT)
    status, out, _ = end(process)
    assert status == 130
    assert json.loads(out)["status"] == "interrupted"


def test_closed_output_pipe_ends_quietly(start: Start) -> None:
    process = start("--json", "--yes", "sleep", replies=(*CALCULATE[:2] * 200, {"text": "391"}))
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    wait_for(process, "turn_started")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=LIMIT_S)
    assert err == b""


def _until_reading(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the process has emptied its standard input."""
    import fcntl
    import struct
    import termios

    assert process.stdin is not None
    while True:
        assert process.poll() is None
        (waiting,) = struct.unpack(
            "i", fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, b"\0\0\0\0")
        )
        if waiting == 0:
            return
        time.sleep(0.01)
