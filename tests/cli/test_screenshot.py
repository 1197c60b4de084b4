"""`ecoshell screenshot`: what it draws, keeps and refuses."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from command_play import CALCULATE, Command

from ecoshell.budget import amount_text
from ecoshell.budget.ledger import Ledger
from ecoshell.events import Answer, CallFinished, CallStarted, TurnFinished, TurnStarted
from ecoshell.messages import Usage
from ecoshell.sessions import SessionStore

LOADED = """
import sys
from ecoshell.cli import main
status = main(["screenshot", *sys.argv[1:]])
print(status, *(name for name in ("llama_cpp", "litellm", "openai", "httpx") if name in sys.modules))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def session(home: Path) -> str:
    """A stored session of one turn."""
    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        session = store.create(workspace="/w", model="openai/gpt-4o")
        store.append(
            session,
            [
                TurnStarted(1, "what is 17 * 23?", "openai/gpt-4o", "single", "react"),
                CallStarted("c1", "calculate", {"expression": "17 * 23"}),
                CallFinished("c1", "calculate", True, "391", False, 0.01),
                Answer("It is **391**."),
                TurnFinished(1, "answered", "It is 391.", 3_100_000, Usage(900, 60), 2, (), 2.1),
            ],
        )
    return session


def visible_text(file: Path) -> str:
    """Return the text in a picture."""
    pieces = re.findall(r"<text[^>]*>([^<]*)</text>", file.read_text(encoding="utf-8"))
    return unescape("\n".join(pieces)).replace("\xa0", " ")


def test_first_screen_of_a_new_chat_is_drawn_without_loading_or_storing_anything(
    home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "first.svg"
    program = [sys.executable, "-c", LOADED, str(file)]
    environ = {**os.environ, "ECOSHELL_HOME": str(home)}
    done = subprocess.run(
        program, capture_output=True, text=True, env=environ, check=False, timeout=600
    )
    assert (done.stdout.split(), done.stderr) == (["0"], "")
    assert "/ for commands, @ for files" in visible_text(file)
    assert "embedded" in visible_text(file)
    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        assert store.list() == ()
    with closing(Ledger(home / "data" / "ledger.sqlite")) as ledger:
        assert list(ledger.rows("session")) == []


def test_stored_session_is_drawn_without_its_model_and_is_unchanged(
    command: Command, home: Path, session: str, tmp_path: Path
) -> None:
    file = tmp_path / "session.svg"
    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        content = (store.info(session), list(store.events(session)))
    done = command("screenshot", "--size", "80x24", "--session", session[:6], str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for text in ("what is 17 * 23?", "calculate", "391"):
        assert text in visible_text(file)
    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        assert (store.info(session), list(store.events(session))) == content


@pytest.fixture
def paid(command: Command, home: Path, tmp_path: Path) -> str:
    """A session of one paid question with a scripted model, under a cap of $0.10."""
    script, workspace = tmp_path / "replies.jsonl", tmp_path / "project"
    workspace.mkdir()
    script.write_text("".join(json.dumps(line) + "\n" for line in CALCULATE), encoding="utf-8")
    options = ("--price", "3,15", "--workspace", str(workspace))
    question = ("ask", "what is 17 * 23?", "--model", f"script:{script}", "--budget", "0.10")
    assert command(*question, *options).returncode == 0
    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        (info,) = store.list()
    return info.id


def test_session_is_drawn_with_its_model_cap_plan_and_spent_amount(
    command: Command, home: Path, paid: str, tmp_path: Path
) -> None:
    with closing(Ledger(home / "data" / "ledger.sqlite")) as ledger:
        (cap,) = ledger.own_caps(paid, 0)
    file = tmp_path / "paid.svg"
    done = command("screenshot", "--size", "140x50", "--session", paid, str(file))
    assert (done.returncode, done.stderr) == (0, "")
    text = visible_text(file)
    assert "replies.jsonl" in text
    assert "embedded" not in text
    assert "no cap" not in text
    assert f"{amount_text(cap.left, 'usd')} left of $0.10" in text
    assert f"spent {amount_text(cap.spent, 'usd')}" in text
    assert cap.spent > 0
    assert re.search(r"PLAN(.|\n)*calculate(.|\n)*1/[12](.|\n)*TOOLS", text)


def test_session_without_caps_is_drawn_with_those_it_would_be_resumed_with(
    command: Command, home: Path, paid: str, tmp_path: Path
) -> None:
    with closing(Ledger(home / "data" / "ledger.sqlite")) as ledger:
        spent = ledger.own_caps(paid, 0)[0].spent
        ledger.set_cap(paid, "session", None)
    for key, value in (("budget.session", "0.20"), ("budget.day", "0.40")):
        assert command("config", "set", key, value).returncode == 0
    pictures = {"new": (), "stored": ("--session", paid)}
    for name, arguments in pictures.items():
        file = tmp_path / f"{name}.svg"
        assert command("screenshot", "--size", "140x50", *arguments, str(file)).returncode == 0
        pictures[name] = visible_text(file)
    assert "$0.20 left of $0.20" in pictures["new"]
    assert f"{amount_text(200_000_000 - spent, 'usd')} left of $0.20" in pictures["stored"]
    for text in pictures.values():
        assert f"{amount_text(400_000_000 - spent, 'usd')} left of $0.40" in text
    with closing(Ledger(home / "data" / "ledger.sqlite")) as ledger:
        assert ledger.own_caps(paid, 1) == ()


def test_picture_has_the_requested_size_and_is_reproducible(
    command: Command, session: str, tmp_path: Path
) -> None:
    pictures: dict[str, str] = {}
    for name, size in (("one", "60x20"), ("two", "60x20"), ("large", "120x36")):
        file = tmp_path / f"{name}.svg"
        assert (
            command("screenshot", "--size", size, "--session", session, str(file)).returncode == 0
        )
        pictures[name] = file.read_text(encoding="utf-8")
    assert pictures["one"] == pictures["two"]
    width = {
        name: float(re.findall(r'viewBox="0 0 ([\d.]+)', text)[0])
        for name, text in pictures.items()
    }
    assert width["large"] > 1.8 * width["one"]


def test_unsent_draft_is_kept_and_not_in_the_picture(
    command: Command, home: Path, tmp_path: Path
) -> None:
    draft = home / "data" / "draft.txt"
    draft.parent.mkdir(parents=True)
    draft.write_text("between us", encoding="utf-8")
    file = tmp_path / "first.svg"
    assert command("screenshot", str(file)).returncode == 0
    assert "between us" not in visible_text(file)
    assert draft.read_text(encoding="utf-8") == "between us"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--size", "wide", "new.svg"), "'wide' is not between"),
        (("--size", "0x0", "new.svg"), "'0x0' is not between"),
        (("--size", "120x-36", "new.svg"), "'120x-36' is not between"),
        (("--size", "9999x9999", "new.svg"), "'9999x9999' is not between"),
        (("--session", "zzzz", "new.svg"), "Unknown session 'zzzz'"),
        (("new.png",), "is not the name of an SVG file"),
        (("there.svg",), "already exists"),
        (("nowhere/new.svg",), "does not exist"),
        (("~unknown-user/new.svg",), "does not exist"),
        ((f"{'n' * 300}.svg",), "cannot be written: File name too long."),
        ((), "FILE.svg"),
    ],
)
def test_invalid_requests_are_refused_without_a_file(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "there.svg").write_text("mine", encoding="utf-8")
    paths = [
        str(tmp_path / argument)
        if argument.endswith((".svg", ".png")) and argument[0] != "~"
        else argument
        for argument in arguments
    ]
    done = command("screenshot", *paths)
    assert done.returncode == 2
    assert message in done.stderr
    assert [file.name for file in tmp_path.glob("*.svg")] == ["there.svg"]
    assert (tmp_path / "there.svg").read_text(encoding="utf-8") == "mine"
