"""Reasoning, and answers given as an argument, in the transcript, the line shell and `ask`."""

import sys
from dataclasses import replace

import pytest
from roles_play import trio
from telling import printed, told
from tui_play import FINISHED, STARTED, FakeShell, eventually

from ecoshell.api import Outcome
from ecoshell.cli.answer_output import AnswerOutput
from ecoshell.events import (
    Answer,
    BudgetHeld,
    Event,
    Rationale,
    Reasoned,
    StepProposed,
    StepStarted,
    TextArrived,
    from_json,
    to_json,
)
from ecoshell.tui.transcript.view import Transcript

HELD = BudgetHeld(1, "single", "m", 0, 0, 100, clamped=False)
REASONING = tuple(
    TextArrived(text, "reasoning", "single") for text in ("They want ", "milk \x1b[2Jand ", "eggs.")
)
REASONED = Reasoned("They want milk \x1b[2Jand eggs.", "single", 240)
THOUGHT = TextArrived("I have it.", "thought", "single")
ANSWER = tuple(TextArrived(text, "answer", "single") for text in ("Milk ", "and eggs."))
TURN: tuple[Event, ...] = (
    STARTED, StepStarted(1, "single", "m"), HELD, *REASONING, THOUGHT, *ANSWER, REASONED,
    Rationale("I have it.", "single"), Answer("Milk and eggs."), FINISHED,
)  # fmt: skip
UNTIL_THOUGHT = TURN[: TURN.index(THOUGHT)]
UNTIL_ANSWER = TURN[: TURN.index(REASONED)]


def test_arriving_reasoning_shows_only_its_length():
    assert told(*UNTIL_THOUGHT)[1:] == ["◦  thinking … ≈ 7 tokens"]
    assert told(*UNTIL_THOUGHT, THOUGHT)[1:] == ["◦  thought for ≈ 7 tokens", "◦  I have it."]


def test_reasoning_is_folded_above_the_reply():
    lines = told(*TURN)
    assert [line.split("  ")[0] for line in lines[1:4]] == ["◦", "◊", "√"]
    assert lines[1].startswith("◦  thought for 240 tokens")
    assert lines[2:4] == ["◊  I have it.", "√  Milk and eggs."]


def test_replayed_session_looks_the_same():
    past = [event for event in TURN if not isinstance(event, TextArrived)]
    assert told(*(from_json(to_json(event)) for event in past)) == told(*TURN)


def test_text_of_a_killed_turn_stays_above_the_next_question():
    lines = told(*UNTIL_ANSWER, STARTED)
    assert lines[-3:] == ["◦  I have it.", "…  Milk and eggs.", lines[0]]


def test_answer_grows_below_its_thought_and_appears_once():
    lines = told(*UNTIL_ANSWER)
    assert lines[-2:] == ["◦  I have it.", "…  Milk and eggs."]
    assert (
        sum("Milk" in line for line in told(*TURN))
        == sum("I have it" in line for line in told(*TURN))
        == 1
    )


def test_failed_answer_disappears_with_the_next_reply():
    again = (
        *UNTIL_ANSWER,
        REASONED,
        HELD,
        TextArrived("Milk, ", "answer", "single"),
        Answer("Milk, eggs."),
        FINISHED,
    )
    assert [line for line in told(*again) if "Milk" in line] == ["√  Milk, eggs."]


def test_stopped_turn_keeps_its_reasoning():
    many = tuple(TextArrived(f"word{at} ", "reasoning", "single") for at in range(100))
    lines = told(STARTED, HELD, *many, FINISHED)
    assert lines[1].startswith("◦  thought for ≈ 173 tokens")


def test_answer_is_formatted_while_streaming_and_after_a_stop():
    pieces = [
        TextArrived(text, "answer", "single")
        for text in ("# He", "ad\n\n**bo", "ld** and `co", "de`\n\n- one")
    ]
    assert told(STARTED, HELD, *pieces[:3])[1:] == ["…  Head", "bold and `co"]
    lines = told(STARTED, HELD, *pieces, replace(FINISHED, status="interrupted"))
    assert lines[1:-1] == ["…  Head", "bold and code", "• one"]
    assert lines[-1].startswith("■  stopped")


def test_proposal_replaces_its_thought():
    lines = told(STARTED, HELD, THOUGHT, StepProposed("I have it.", "answer", "single"))
    assert sum("I have it." in line for line in lines) == 1


def test_line_shell_shows_thinking_and_prints_thought_and_answer_once():
    lines = printed(*TURN)
    assert lines[:3] == ["| thinking … ≈ 7 tokens", "- I have it.", "- Milk and eggs."]
    assert sum("Milk" in line for line in lines) == 1
    assert not any("thought for" in line or "They want" in line for line in lines)


def test_line_shell_without_a_terminal_prints_the_thinking_length():
    lines = printed(*TURN, streaming=False)
    assert lines[:3] == ["| thought for 240 tokens", "- I have it.", "answer: Milk and eggs."]


def test_thinking_role_is_named():
    reasoned = Reasoned("Hm.", "planner", 1)
    assert "◦  planner  thought for 1 token" in "\n".join(told(*trio()[:3], reasoned))
    assert printed(reasoned) == ["| planner: thought for 1 token"]


def asked(*events: Event) -> None:
    report, outcome = AnswerOutput(lambda: None), Outcome()
    for event in events:
        outcome.see(event)
        report.show(event)
    report.show(outcome.result())


def test_ask_prints_the_answer_alone_and_once(capsys: pytest.CaptureFixture[str]):
    asked(*TURN)
    assert capsys.readouterr().out == "Milk and eggs.\n"


def test_ask_shows_the_answer_growing_on_a_terminal_and_prints_it_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    report = AnswerOutput(lambda: None)
    for event in UNTIL_ANSWER:
        report.show(event)
    assert capsys.readouterr().out == "Milk and eggs."
    asked(*TURN)
    assert capsys.readouterr().out == "Milk and eggs.\n"


def test_ask_on_a_terminal_prints_the_thinking_length_above_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", sys.stderr)
    asked(*TURN)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith("thought for ≈ 7 tokens")
    assert second.endswith("Milk and eggs.")


def test_ask_prints_the_final_answer_after_a_discarded_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    asked(*UNTIL_ANSWER, REASONED, Answer("Only milk."), replace(FINISHED, answer="Only milk."))
    assert capsys.readouterr().out == "Milk and eggs.\nOnly milk.\n"


async def test_reasoning_can_be_unfolded(make_app):
    app = make_app(FakeShell(earlier=TURN))
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await eventually(
            pilot, lambda: "thought for 240 tokens" in app.chat.query_one(Transcript).column.plain
        )
        assert "They want milk" not in app.chat.query_one(Transcript).column.plain
        await pilot.press("tab", "up", "up", "up", "up", "enter")
        await eventually(
            pilot,
            lambda: "They want milk ␛[2Jand eggs." in app.chat.query_one(Transcript).column.plain,
        )


def test_answer_after_reasoning(snap_compare, make_app):
    async def before(pilot) -> None:
        await eventually(pilot, lambda: pilot.app.chat.controller)
        await eventually(
            pilot, lambda: "saved" in pilot.app.chat.query_one(Transcript).column.plain
        )

    assert snap_compare(
        make_app(FakeShell(earlier=TURN)), terminal_size=(80, 24), run_before=before
    )
