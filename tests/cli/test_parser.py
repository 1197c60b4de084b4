import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.cli import main
from ecoshell.cli.fence import fenced
from ecoshell.cli.parser import build_parser
from ecoshell.cli.run_options import options_from
from ecoshell.errors import EcoshellError, LimitReached, StoreError, UsageError
from ecoshell.options import Options, RoleModels

INTERRUPTED_PRINT = """
import signal
from ecoshell.cli.fence import fenced
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
status = fenced(lambda: print("x" * 1_000_000) or 0)
signal.setitimer(signal.ITIMER_REAL, 0)  # Python ends without handlers, so that a late signal would kill it
raise SystemExit(status)
"""
PARSED = """
import sys
from ecoshell.cli.parser import build_parser
build_parser().parse_args(["--model", "embedded", "--budget", "0.50"])
print(*sys.modules)
"""


def parsed(*argv: str) -> Options:
    return options_from(build_parser().parse_args(argv))


def test_absent_options_are_unset() -> None:
    assert parsed() == Options()
    assert parsed("ask", "why?") == Options()


EVERYTHING = (
    *(
        "--model",
        "embedded",
        "--budget",
        "20000tok",
        "--registration",
        "names",
        "--presentation",
        "stable",
    ),
    *(
        "--max-steps",
        "7",
        "--workspace",
        "/tmp",
        "--yes",
        "--read-only",
        "--resume",
        "k3f9",
        "--price",
        "0.25,2",
    ),
    *(
        "--mode",
        "single",
        "--strategy",
        "react",
        "--role",
        "caller=embedded",
        "--role",
        "planner=-",
    ),
)


@pytest.mark.parametrize(
    "argv", [EVERYTHING, ("ask", "q", *EVERYTHING), ("line", *EVERYTHING), (*EVERYTHING, "chat")]
)
def test_options_are_accepted_before_and_after_the_command(argv: tuple[str, ...]) -> None:
    assert parsed(*argv) == Options(
        model="embedded",
        budget="20000tok",
        registration="names",
        presentation="stable",
        max_steps=7,
        workspace=Path("/tmp"),
        yes=True,
        read_only=True,
        resume="k3f9",
        price=(Decimal("0.25"), Decimal(2)),
        mode="single",
        strategy="react",
        roles=RoleModels(planner="-", caller="embedded"),
    )


def test_roles_before_and_after_the_command_add_up() -> None:
    options = parsed(
        "--role", "planner=a", "--role", "caller=b", "ask", "q", "--role", "caller = c=d"
    )
    assert options.roles == RoleModels(planner="a", caller="c=d")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("caller", "does not name a model"),
        ("caller=", "does not name a model"),
        ("judge=embedded", "does not name a role"),
    ],
)
def test_role_without_a_model_and_unknown_role_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parsed("ask", "q", "--role", text)


def test_option_before_the_command_is_kept() -> None:
    options = parsed("--model", "script:a.jsonl", "ask", "q", "--max-steps", "3")
    assert (options.model, options.max_steps) == ("script:a.jsonl", 3)


def test_question_may_be_several_words_or_a_dash() -> None:
    assert build_parser().parse_args(["ask", "how", "many?", "--json"]).question == ["how", "many?"]
    assert build_parser().parse_args(["ask", "-"]).question == ["-"]


@pytest.mark.parametrize(
    ("argv", "message", "fix"),
    [
        (["chta"], "Unknown command 'chta'.", "Did you mean chat?"),
        (["frobnicate"], "Unknown command 'frobnicate'.", "Available: chat, line, ask"),
        (["--bugdet", "0.50"], "Unknown option --bugdet.", "Did you mean --budget?"),
        (["ask", "q", "--max-stpes=3"], "Unknown option --max-stpes.", "Did you mean --max-steps?"),
        (["cost", "day"], "Unexpected argument 'day'.", "`ecoshell cost --help` shows the usage."),
        (["cost", "--jsn"], "Unknown option --jsn.", "Did you mean --json?"),
        (["cost", "--by", "modle"], "--by cannot be 'modle'.", "Did you mean model?"),
        (["sessions", "lsit"], "Unknown action 'lsit'.", "Did you mean list?"),
        (
            ["budget", "set", "everybody", "year", "1"],
            "Unknown period 'year'.",
            "Available: day, month.",
        ),
        (["--registration", "name"], "--registration cannot be 'name'.", "Did you mean names?"),
        (["--budget", "-1"], "'-1' is negative", "20000tok"),
        (["--budget=-5tok"], "'-5tok' is negative", "20000tok"),
        (["--budget", "9999999999"], "more than", "20000tok"),
        (["--budget", "lots"], "is not an amount", "20000tok"),
        (["--max-steps", "0"], "not a number of steps", "24"),
        (["--max-steps", "many"], "not a number of steps", "24"),
        (["--price", "1"], "is not two prices", "--price 0.25,2"),
        (["--price", "nan,1"], "is not two prices", "--price 0.25,2"),
        (["--price=-1,1"], "is not two prices", "--price 0.25,2"),
        (["--model", ""], "--model is empty", "embedded"),
        (["--model"], "expected one argument", "--help"),
        (["ask"], "required: question", "ecoshell ask --help"),
    ],
)
def test_invalid_usage_is_refused_with_a_suggestion(
    argv: list[str], message: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert fix in output.err
    assert "Traceback" not in output.err


@given(st.lists(st.text(max_size=12), max_size=5))
def test_random_command_lines_yield_options_or_a_usage_error(words: list[str]) -> None:
    argv = [
        word
        for word in words
        if word not in {"-h", "--help", "-V", "--version"} and not word.startswith(("-h", "-V"))
    ]
    with contextlib.suppress(
        UsageError
    ):  # anything else, such as the SystemExit of argparse, fails the test
        assert callable(build_parser().parse_args(argv).run)


def test_parsing_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARSED], capture_output=True, text=True, check=True
    )
    heavy = {
        "pydantic",
        "rich",
        "textual",
        "prompt_toolkit",
        "litellm",
        "httpx",
        "numpy",
        "llama_cpp",
        "asyncio",
        "sqlite3",
        "pluggy",
        "importlib.metadata",
    }
    assert heavy.isdisjoint(done.stdout.split())


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    output = capsys.readouterr().out
    for command in (
        "chat",
        "line",
        "ask",
        "tools",
        "sessions",
        "cost",
        "config",
        "models",
        "bench",
    ):
        assert f"    {command} " in output


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EcoshellError("broken"), 1),
        (StoreError("locked"), 1),
        (UsageError("what?"), 2),
        (LimitReached("too dear", scope="day", need=2, left=1, unit="usd"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_have_exit_statuses(error: BaseException, status: int) -> None:
    assert fenced(raising(error)) == status


def test_error_has_message_consequence_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    fenced(
        raising(
            StoreError(
                "The disk is \x1b[31mfull.", kept="The session is kept.", fix="Free some space."
            )
        )
    )
    error = capsys.readouterr().err
    assert error == "ecoshell: The disk is ␛[31mfull.\nThe session is kept.\nFree some space.\n"


def test_ctrl_c_prints_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    fenced(raising(KeyboardInterrupt()))
    assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_signal_during_a_long_output_loses_nothing(unbuffered):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_PRINT],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    time.sleep(0.5)  # the pipe is full, and signals arrive
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, len(output)) == (0, 1_000_001)


def test_closed_pipe_ends_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ecoshell", "config", "path"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("typed", "intended"), [("--modle", "--model"), ("--moed", "--mode"), ("--bugdet", "--budget")]
)
def test_swapped_letters_suggest_the_intended_option(typed: str, intended: str) -> None:
    with pytest.raises(UsageError) as refused:
        build_parser().parse_args(["ask", typed, "x", "hi"])
    assert refused.value.fix == f"Did you mean {intended}?"
