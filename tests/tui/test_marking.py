"""Verdicts on call results: the judge's sign and the user's mark."""

import pytest
from plan_play import COUNTED, FAILED, HELPED
from tui_play import FINISHED, STARTED, WANTED, FakeShell, eventually

from ecoshell.errors import StoreError
from ecoshell.events import Answer, CallFinished, CallJudged, CallMarked, CallStarted, Event
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.transcript.view import Transcript

WIDE = (120, 36)
REFUSED: tuple[Event, ...] = (
    CallStarted("c3", "write_file", {"path": "x.txt"}),
    CallFinished("c3", "write_file", False, "not approved", False, 0.0, refused="unapproved"),
)
TURN: tuple[Event, ...] = (
    STARTED,
    *COUNTED,
    HELPED,
    *FAILED,
    *REFUSED,
    Answer("There are 1,204."),
    FINISHED,
)


def transcript(app) -> Transcript:
    return app.chat.query_one(Transcript)


def line(app, words: str) -> str:
    return next(
        line for line in transcript(app).column.plain.splitlines() if words in line
    ).rstrip()


def offered(app) -> set[str]:
    return {
        binding.binding.description
        for binding in app.screen.active_bindings.values()
        if binding.enabled
    }


async def open_at(pilot, app, words: str) -> None:
    """Open the chat and put the cursor on the block with these words."""
    await eventually(pilot, lambda: app.chat.controller)
    transcript(app).focus()
    for _ in range(12):
        await pilot.press("up")
        cursor = transcript(app)._cursor
        if cursor is not None and words in cursor.block.text():
            return
    raise AssertionError(f"no block with {words!r}")


@pytest.fixture
def shell() -> FakeShell:
    return FakeShell(earlier=TURN)


async def test_verdicts_are_shown_in_the_calls_line(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        assert line(app, "count_text(").endswith("√  12 ms")
        assert line(app, "read_file(").endswith("× unhelpful  3 ms")
        assert line(app, "write_file(").endswith("  denied")


async def test_undecided_result_has_no_sign_and_can_be_marked(make_app):
    app = make_app(
        FakeShell(earlier=(STARTED, *COUNTED, CallJudged("c1", "count_text", None, ""), FINISHED))
    )
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        assert line(app, "count_text(").endswith("  12 ms")
        await pilot.press("plus")
        await eventually(pilot, lambda: "√ helpful, marked by you" in line(app, "count_text("))
        assert not app.chat.query_one(PromptBar).border_title  # no activity is shown


async def test_plus_and_minus_toggle_marks(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.press("minus")
        await eventually(pilot, lambda: "× unhelpful, marked by you" in line(app, "count_text("))
        await pilot.press("minus")
        await eventually(pilot, lambda: line(app, "count_text(").endswith("√  12 ms"))
        await pilot.press("plus")
        await eventually(pilot, lambda: "√ helpful, marked by you" in line(app, "count_text("))
        await pilot.press("minus")
        await eventually(pilot, lambda: "× unhelpful, marked by you" in line(app, "count_text("))
    assert shell.marks == [
        CallMarked(1, "c1", "count_text", word) for word in (False, None, True, False)
    ]


async def test_fast_mark_keys_are_applied_one_by_one(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.press("plus", "plus", "plus")
        await eventually(pilot, lambda: len(shell.marks) == 3)
    assert [mark.helpful for mark in shell.marks] == [True, None, True]


async def test_stored_mark_is_shown_and_can_be_removed(make_app):
    again = (
        *(event for event in TURN if event is not FINISHED),
        FINISHED,
        CallMarked(1, "c1", "count_text", helpful=False),
    )
    shell = FakeShell(earlier=again)
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        assert "× unhelpful, marked by you" in line(app, "count_text(")
        await pilot.press("minus")
        await eventually(pilot, lambda: line(app, "count_text(").endswith("√  12 ms"))
    assert [mark.helpful for mark in shell.marks] == [None]


async def test_calls_with_the_same_id_in_two_turns_are_marked_separately(make_app):
    second = (*TURN[:-1], FINISHED)
    shell = FakeShell(
        earlier=(*TURN, type(STARTED)(2, "again?", "embedded", "single", "react"), *second[1:])
    )
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.press("minus")
        await eventually(pilot, lambda: "marked by you" in transcript(app).column.plain)
        marked = [row for row in transcript(app).column.plain.splitlines() if "count_text(" in row]
        assert ["marked by you" in row for row in marked] == [False, True]
    assert shell.marks == [CallMarked(2, "c1", "count_text", helpful=False)]


async def test_mark_keys_are_offered_only_on_call_results(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "There are 1,204")
        await pilot.pause()
        assert not {"helpful", "unhelpful"} & offered(app)
        await pilot.press("up")  # the refused call
        await pilot.press("plus", "minus")
        await pilot.pause()
        assert not {"helpful", "unhelpful"} & offered(app)
        await pilot.press("up")
        await pilot.pause()
        assert {"helpful", "unhelpful"} <= offered(app)
    assert shell.marks == []


async def test_mark_keys_are_text_in_the_prompt(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.press("escape", *"1+2-3")
        assert app.chat.query_one(Prompt).text == "1+2-3"
    assert shell.marks == []


async def test_call_can_be_marked_during_its_turn(make_app):
    shell = FakeShell(events=(STARTED, *COUNTED, HELPED, FINISHED), stops_at=4)
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"how many", "enter")
        await eventually(
            pilot, lambda: "√" in transcript(app).column.plain.partition("count_text(")[2]
        )
        await open_at(pilot, app, "count_text(")
        await pilot.press("minus")
        await eventually(pilot, lambda: "marked by you" in line(app, "count_text("))
        await app.chat.controller.shell.stop()
        await eventually(pilot, lambda: not app.chat.controller.busy)
        assert "marked by you" in line(app, "count_text(")


async def test_failed_mark_shows_an_error_and_no_sign(make_app):
    class Full(FakeShell):
        async def mark(self, turn, call, name, helpful):
            raise StoreError("The session could not be written.", fix="Free some space.")

    app = make_app(Full(earlier=TURN))
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.press("minus")
        await eventually(pilot, lambda: "could not be written" in transcript(app).column.plain)
        assert line(app, "count_text(").endswith("√  12 ms")


async def test_marked_result_keeps_fold_and_position(make_app):
    long = CallFinished(
        "c1", "count_text", True, "\n".join(f"line {n}" for n in range(30)), False, 0.012
    )
    app = make_app(FakeShell(earlier=(STARTED, COUNTED[0], long, HELPED, Answer("ok"), FINISHED)))
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.press("enter")
        await eventually(pilot, lambda: "line 29" in transcript(app).column.plain)
        await pilot.press("plus")
        await eventually(pilot, lambda: "marked by you" in line(app, "count_text("))
        assert "line 29" in transcript(app).column.plain
        await pilot.press("y")
        await pilot.pause()
        assert "√ helpful, marked by you" in app.clipboard


async def test_unjudged_call_cannot_be_marked(make_app):
    app = make_app(FakeShell(earlier=(STARTED, *COUNTED, FINISHED)))
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "count_text(")
        await pilot.pause()
        assert not {"helpful", "unhelpful"} & offered(app)


async def test_call_can_be_marked_as_soon_as_it_is_judged(make_app):
    shell = FakeShell(events=(STARTED, *COUNTED, HELPED, FINISHED), stops_at=3)
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"how many", "enter")
        await eventually(pilot, lambda: "12 ms" in transcript(app).column.plain)
        await open_at(pilot, app, "count_text(")
        assert not {"helpful", "unhelpful"} & offered(app)
        app.chat.view.handle(HELPED)
        await eventually(pilot, lambda: {"helpful", "unhelpful"} <= offered(app))
        await app.chat.controller.shell.stop()
        await eventually(pilot, lambda: not app.chat.controller.busy)


async def test_call_that_waits_for_approval_cannot_be_marked(make_app):
    started = CallStarted(WANTED.id, WANTED.name, WANTED.arguments)
    app = make_app(FakeShell(earlier=(STARTED, started)))
    async with app.run_test(size=WIDE) as pilot:
        await open_at(pilot, app, "write_file(")
        await pilot.pause()
        assert not {"helpful", "unhelpful"} & offered(app)


async def test_one_key_moves_from_the_prompt_to_the_transcript(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press("tab")
        assert transcript(app).has_focus
        await pilot.press("up", "up", "up", "up", "plus")
        await eventually(pilot, lambda: shell.marks)
    assert [mark.name for mark in shell.marks] == ["read_file"]
