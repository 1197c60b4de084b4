"""Snapshots of the chat, wide and narrow."""

from dataclasses import replace

import pytest
from plan_play import BLACKLISTED, FOLLOWED, PLANNED
from tui_play import (
    CAP,
    COUNTING,
    FINISHED,
    HIT,
    STARTED,
    STATUS,
    WANTED,
    WRITING,
    FakeShell,
    eventually,
)

from ecoshell.agent.shell_status import ToolDetails
from ecoshell.events import CallMarked, ErrorHappened
from ecoshell.messages import ToolSchema
from ecoshell.tui.questions import Question
from ecoshell.tui.transcript.view import Transcript

WIDE, NARROW = (120, 36), (80, 24)
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
FAILING = (
    STARTED,
    ErrorHappened(
        "ModelUnavailable",
        "The provider did not answer.",
        "The session is kept.",
        "Ask again, or /model embedded.",
    ),
    replace(FINISHED, status="error", saved_tokens=0),
)
FOLLOWED_STATUS = replace(STATUS, planned=replace(BLACKLISTED, whole=PLANNED.cap))


def until(*keys: str, text: str = "", question: bool = False):
    """Type, and wait until a text or a question is on the screen."""

    async def before(pilot) -> None:
        chat = pilot.app.chat
        await eventually(pilot, lambda: chat.controller)
        await pilot.press(*keys)
        await eventually(pilot, lambda: text in chat.query_one(Transcript).column.plain)
        if question:
            await eventually(
                pilot, lambda: chat.query(Question) and chat.query_one(Question).has_focus
            )

    return before


def test_welcome(snap_compare, make_app):
    shell = FakeShell(state=replace(STATUS, title="", caps=(), spent_nano=0, used_tokens=0))
    assert snap_compare(make_app(shell), terminal_size=NARROW, run_before=until("/"))


@SIZES
def test_finished_answer_with_a_registration(snap_compare, make_app, size):
    app = make_app(FakeShell(COUNTING))
    assert snap_compare(
        app,
        terminal_size=size,
        run_before=until(*"how many words are in notes.txt?", "enter", text="saved"),
    )


def test_turn_while_planning(snap_compare, make_app):
    app = make_app(FakeShell(FOLLOWED, stops_at=2))
    assert snap_compare(
        app, terminal_size=NARROW, run_before=until(*"go on", "enter", text="plan:")
    )


def test_marked_result(snap_compare, make_app):
    earlier = *FOLLOWED, CallMarked(1, "c2", "read_file", helpful=True)
    app = make_app(FakeShell(earlier=earlier, state=FOLLOWED_STATUS))
    keys = ("tab", "up", "up", "up")
    assert snap_compare(app, terminal_size=WIDE, run_before=until(*keys, text="marked"))


def test_why_a_tool_is_planned(snap_compare, make_app):
    schema = ToolSchema("count_text", "Counts words.", {"properties": {"path": {"type": "string"}}})
    status_value = ToolDetails(schema, ("read",), 0, 142, True, "agent", "")
    why = "count_text: forbidden (quota)\nvalue  0.91 = (Σ w·helpful 4.10 + 0.1) / (Σ w 3.62 + 1.0), from 5 uses"
    printed = {"/plan why count_text": why}
    shell = FakeShell(
        earlier=FOLLOWED,
        state=FOLLOWED_STATUS,
        all_details={"count_text": status_value},
        printed=printed,
    )

    async def before(pilot) -> None:
        await until("f3", "enter")(pilot)
        await eventually(pilot, lambda: pilot.app.screen is not pilot.app.chat)
        about = pilot.app.screen.query_one("#about")
        await eventually(pilot, lambda: "Counts words." in str(about.visual))

    assert snap_compare(make_app(shell), terminal_size=NARROW, run_before=before)


def test_call_awaiting_approval(snap_compare, make_app):
    app = make_app(FakeShell((*COUNTING[:6], WRITING, WANTED)))
    assert snap_compare(
        app, terminal_size=WIDE, run_before=until(*"write it", "enter", question=True)
    )


def test_limit(snap_compare, make_app):
    near = replace(STATUS, caps=(replace(CAP, spent=496_000_000, held=0),))
    app = make_app(FakeShell((*COUNTING[:6], HIT), state=near))
    assert snap_compare(
        app, terminal_size=NARROW, run_before=until(*"go on", "enter", question=True)
    )


def test_error(snap_compare, make_app):
    app = make_app(FakeShell(FAILING))
    assert snap_compare(
        app, terminal_size=NARROW, run_before=until(*"go on", "enter", text="error ·")
    )
