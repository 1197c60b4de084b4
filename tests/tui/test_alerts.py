"""Bells and notifications while the terminal does not have the focus."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_terminal import Terminal, closed, opened

from ecoshell.paths import Paths
from ecoshell.settings.schema import TuiSettings
from ecoshell.tui.alerts import DEFAULT, MODES, alert_sequence
from ecoshell.tui.themes import chosen_setting

BLUR, FOCUS = "\x1b[O", "\x1b[I"
EDIT = {"name": "write_file", "arguments": {"path": "x.txt", "text": "one"}}
REPLIES = (
    {"text": "I write it.", "call": EDIT},
    {"text": "It is written."},
    {"text": "Still written."},
)


@pytest.fixture
def open_chat(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in REPLIES))
    terminals: list[Terminal] = []

    def open_chat(mode: str) -> Terminal:
        terminal = opened(
            tmp_path / "home", workspace, "--model", f"script:{script}", ECOSHELL_TUI_NOTIFY=mode
        )
        terminals.append(terminal)
        return terminal

    yield open_chat
    for terminal in terminals:
        closed(terminal)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("off", []),
        ("bell", [b"\a", b"\a"]),
        (
            "desktop",
            [
                b"\a\x1b]9;ecoshell: ? may write_file run\x1b\\",
                b"\a\x1b]9;ecoshell: turn ended: again\x1b\\",
            ],
        ),
    ],
)
def test_alerts_are_written_only_without_focus(open_chat, mode: str, expected: list[bytes]) -> None:
    terminal = open_chat(mode)
    terminal.wait("script.jsonl answers")
    start = len(terminal.raw)
    terminal.type(f"write it\r{BLUR}")
    terminal.wait("may write_file run")
    terminal.type(FOCUS)
    terminal.type("1")
    terminal.wait("It is written")
    terminal.wait(r"tok · 2 steps")
    before_second_turn = len(terminal.raw)
    terminal.type(f"again\r{BLUR}")
    terminal.wait("Still written")
    terminal.wait(r"tok · 1 step\b")
    terminal.type(FOCUS)
    terminal.type("/quit\r")
    assert terminal.ended() == 0
    question, turn = terminal.raw[start:before_second_turn], terminal.raw[before_second_turn:]
    assert [question.count(b"\a"), turn.count(b"\a")] == ([1, 1] if expected else [0, 0])
    for alert, output in zip(expected, (question, turn), strict=False):
        assert alert in output


def test_terminal_that_reports_no_focus_gets_nothing(open_chat) -> None:
    terminal = open_chat("desktop")
    terminal.wait("script.jsonl answers")
    start = len(terminal.raw)
    terminal.type("write it\r")
    terminal.wait("may write_file run")
    terminal.type("1")
    terminal.wait("It is written")
    terminal.type("/quit\r")
    assert terminal.ended() == 0
    assert b"\a" not in terminal.raw[start:]
    assert b"\x1b]9" not in terminal.raw


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        ({"TERM": "xterm-256color"}, "\a\x1b]9;ecoshell: "),
        ({"TERM": "foot"}, "\a\x1b]777;notify;ecoshell;"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "\a\x1b]777;notify;ecoshell;"),
    ],
)
def test_notification_text_is_escaped_and_short(environ: dict[str, str], start: str) -> None:
    written = alert_sequence("desktop", "a\x1b\\\x07\x9cb;c\n" + "d" * 500, environ)
    assert written.startswith(start)
    assert written.endswith("\x1b\\")
    body = written.removeprefix(start).removesuffix("\x1b\\")
    assert body.isprintable()
    assert ";" not in body
    assert len(body) <= 120


def test_setting_and_alerts_agree(tmp_path: Path) -> None:
    assert TuiSettings().notify == DEFAULT
    assert [TuiSettings(notify=mode).notify for mode in MODES] == list(MODES)
    paths = Paths(tmp_path, tmp_path, tmp_path)
    paths.settings_file.write_text('[tui]\nnotify = "off"\n')
    assert chosen_setting(paths, "tui.notify", DEFAULT) == "off"
