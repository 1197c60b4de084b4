"""Whole turns of one model: registration, presentations, limits, stopping, export."""

import asyncio
import itertools
import json
import threading
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path

import pytest
from agent_play import User, counts, finish, of, register, say, turn

from ecoshell.agent import LimitChoice
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    BudgetSettled,
    CallFinished,
    ErrorHappened,
    LimitHit,
    Notice,
    Rationale,
    StepStarted,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.tools.function import FunctionTool

COUNT = say("Count them.", "count_text", path="notes.txt")
PRICE = (Decimal(1), Decimal(4))


async def test_a_turn_registers_a_tool_calls_it_and_answers(play):
    lines = [register("count_text", "I need a counter."), COUNT, finish("3 lines")]
    async with play(lines, registration="names") as shell:
        events = await turn(shell)
    kinds = [
        type(event)
        for event in events
        if isinstance(event, Rationale | ToolRegistered | CallFinished | Answer)
    ]
    assert kinds == [Rationale, ToolRegistered, Rationale, CallFinished, Answer]
    assert "3 lines" in of(events, CallFinished)[0].observation
    end = events[-1]
    assert isinstance(end, TurnFinished)
    assert (end.status, end.answer, end.steps, end.registered) == (
        "answered",
        "3 lines",
        3,
        ("count_text",),
    )
    assert end.saved_tokens > 0


async def test_a_call_to_an_unregistered_tool_is_not_executed(play):
    lines = [say("", "write_file", path="x.txt", text="x"), finish("ok")]
    async with play(lines, registration="names", yes=True) as shell:
        events = await turn(shell)
    refused = of(events, CallFinished)[0]
    assert (refused.refused, refused.ok) == ("unregistered", False)
    assert "tool_register" in refused.observation


async def test_the_first_call_of_a_tool_known_by_name_registers_it(play):
    lines = [say("", "convert_units", value=3, from_unit="mile", to_unit="km"), finish("ok")]
    async with play(lines, presentation="grow") as shell:
        events = await turn(shell)
        first, second = ([tool.name for tool in request.tools] for request in shell.requests)
        registered = shell.conversation.memory.library
        messages = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert (shell.conversation.memory.library, shell.conversation.memory.messages) == (
            registered,
            messages,
        )
    assert "convert_units" not in first
    assert second == [*first, "convert_units"]
    (called,) = of(events, CallFinished)
    assert called.ok
    (registered,) = [event for event in of(events, ToolRegistered) if event.by == "first_call"]
    assert (registered.name, registered.id) == ("convert_units", called.id)


async def test_an_unknown_name_gets_the_closest_names(play):
    async with play([register("count_txt"), finish("ok")], registration="names") as shell:
        events = await turn(shell)
    assert of(events, CallFinished)[0].refused == "unknown"
    assert "count_text" in of(events, CallFinished)[0].observation


async def test_a_repeated_registration_shows_the_schema_once(play):
    lines = [register("count_text"), register("count_text"), finish("ok")]
    async with play(lines, registration="names", presentation="stable") as shell:
        events = await turn(shell)
        last = shell.requests[-1]
    assert len(of(events, ToolRegistered)) == 1
    schema = shell.conversation.known("count_text").as_text()
    assert sum(message.text.count(schema) for message in last.messages) == 1
    assert "registered already" in of(events, CallFinished)[0].observation


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_a_schema_appears_in_the_context_once(play, presentation):
    lines = [register("count_text"), COUNT, finish("3")]
    async with play(lines, registration="names", presentation=presentation) as shell:
        await turn(shell)
        last = shell.requests[-1]
    description = shell.conversation.known("count_text").description
    texts = [message.text for message in last.messages] + [tool.as_text() for tool in last.tools]
    assert sum(text.count(description) for text in texts) == 1


async def test_the_stable_presentation_never_changes_the_prefix(play):
    lines = [
        register("count_text", "why"),
        COUNT,
        register("read_file"),
        say("", "read_file", path="notes.txt"),
        finish("3"),
    ]
    async with play(lines, registration="names", presentation="stable") as shell:
        await turn(shell)
        requests = shell.requests
    for earlier, later in itertools.pairwise(requests):
        assert [tool.as_text().encode() for tool in later.tools] == [
            tool.as_text().encode() for tool in earlier.tools
        ]
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert len(later.messages) > len(earlier.messages)


async def test_later_turns_continue_the_prefix_and_keep_registrations(play):
    lines = [register("count_text"), COUNT, finish("3"), COUNT, finish("still 3")]
    async with play(lines, registration="names", presentation="stable") as shell:
        await turn(shell)
        events = await turn(shell, "And now?")
        requests = shell.requests
    assert requests[3].messages[: len(requests[2].messages)] == requests[2].messages
    assert of(events, CallFinished)[0].ok


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_a_resumed_session_keeps_its_presentation(play, presentation):
    lines = [register("count_text"), COUNT, finish("3"), COUNT, finish("still 3")]
    async with play(lines, registration="names", presentation=presentation) as shell:
        await turn(shell)
        shell.deps.settings.presentation = "auto"
        await shell.open(shell.session)
        events = await turn(shell, "And now?")
        last = shell.requests[-1]
    description = shell.conversation.known("count_text").description
    texts = [message.text for message in last.messages] + [tool.as_text() for tool in last.tools]
    assert of(events, ToolsOffered)[0].presentation == presentation
    assert of(events, CallFinished)[0].ok
    assert sum(text.count(description) for text in texts) == 1


async def test_registration_all_needs_no_registration(play):
    async with play([COUNT, finish("3")], registration="all") as shell:
        events = await turn(shell)
    assert set(of(events, ToolsOffered)[0].upfront) == set(shell.deps.catalog.names)
    assert of(events, CallFinished)[0].ok


async def test_giving_up_has_its_own_status(play):
    async with play([finish("The file does not exist.", give_up=True)]) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("gave_up", "The file does not exist.")


async def test_the_step_limit_ends_with_a_partial_answer(play):
    lines = [register("count_text"), COUNT, say("Three lines, it seems.")]
    async with play(lines, registration="names", max_steps=2) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("limit", "Three lines, it seems.")
    assert of(events, Answer)[0].partial


async def test_an_exhausted_script_is_an_error(play):
    async with play([register("count_text")], registration="names") as shell:
        events = await turn(shell)
    assert "1 replies" in of(events, ErrorHappened)[0].message
    assert events[-1].status == "error"


async def test_an_empty_question_is_rejected(play):
    async with play([]) as shell:
        with pytest.raises(UsageError):
            await turn(shell, "  \n ")


async def test_a_limit_without_a_user_ends_with_an_answer(play):
    big = {"input": 1000, "output": 200}
    lines = [
        register("count_text"),
        {**COUNT, "usage": big},
        *({**line, "usage": big} for line in counts(20)),
        say("Three."),
    ]
    async with play(
        lines, registration="names", presentation="stable", price=PRICE, budget="0.012"
    ) as shell:
        shell.deps.settings.plan = "off"  # a plan would not spend as much on one use
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, LimitHit)[0].scope == "session"
    assert events[-1].status == "limit"
    assert events[-1].answer
    assert all(cap.spent + cap.held <= cap.limit for cap in caps)


async def test_a_cap_below_the_price_of_an_answer_stops_before_spending(play):
    async with play([finish("ok")], price=PRICE, budget="0.000001") as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].spent_nano) == ("limit", 0)
    assert of(events, LimitHit)
    assert of(events, Notice)


async def test_raising_the_cap_continues_the_turn(play):
    user = User(LimitChoice("raise", "nonsense"), LimitChoice("raise", "1.00"))
    async with play([finish("ok")], price=PRICE, budget="0.000001", user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, len(user.asked)) == ("answered", 2)


async def test_stopping_at_the_limit_ends_without_an_answer(play):
    async with play(
        [finish("ok")], price=PRICE, budget="0.000001", user=User(LimitChoice("stop"))
    ) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("limit", "")


async def test_a_turn_leaves_no_reservation(play):
    async with play([finish("ok")], price=PRICE, budget="1.00") as shell:
        await turn(shell)
        caps = await shell.deps.budget.caps()
    assert [cap.held for cap in caps] == [0]


async def test_a_stopped_turn_is_part_of_the_next_prompt(play):
    lines = [register("count_text"), COUNT, finish("3"), finish("yes")]
    async with play(lines, registration="names") as shell:
        events = []
        async for event in shell.ask("How many?"):
            events.append(event)
            if isinstance(event, ToolRegistered):
                await shell.stop()
        again = await turn(shell, "Did you count?")
        messages = shell.requests[-1].messages
    assert events[-1].status == "interrupted"
    assert again[-1].status == "answered"
    assert any("How many?" in message.text for message in messages)


async def test_closing_the_event_stream_stops_the_turn_without_losing_events(play):
    lines = [register("count_text"), COUNT, finish("3")]
    async with play(lines, registration="names") as shell:
        async with aclosing(shell.ask("How many?")) as events:
            await anext(events)
        stored = [event for _, event in shell.store.events(shell.session)]
    assert isinstance(stored[-1], TurnFinished)
    assert stored[-1].status == "interrupted"


async def test_a_turn_cancelled_twice_ends_before_the_next_starts(play, monkeypatch):
    began, ended = asyncio.Event(), []

    async def winds_down(path: str) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.3)
            ended.append(path)
        return ""

    async with play([COUNT, finish("3"), finish("yes")], registration="all") as shell:
        shell.deps.catalog._tools["count_text"] = FunctionTool(
            winds_down, effects=("read",), name="count_text"
        )
        reader = asyncio.ensure_future(turn(shell))
        await asyncio.wait_for(began.wait(), 600)
        for _ in range(2):
            reader.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert (ended, shell.conversation.busy) == (["notes.txt"], False)
        await turn(shell, "Did you count?")
        stored = [event for _, event in shell.store.events(shell.session)]
    turns = [
        (type(event), event.turn)
        for event in stored
        if isinstance(event, TurnStarted | TurnFinished)
    ]
    assert turns == [(TurnStarted, 1), (TurnFinished, 1), (TurnStarted, 2), (TurnFinished, 2)]


async def test_parallel_reads_end_with_the_turn(play, monkeypatch):
    ended, began = [], threading.Event()

    async def slow() -> str:
        began.set()
        try:
            await asyncio.sleep(0.5)
        finally:
            ended.append("slow")
        return ""

    both = {"text": "", "calls": [{"name": name, "arguments": {}} for name in ("slow", "paid")]}
    async with play([both, finish("ok")], registration="all") as shell:
        tools = shell.deps.catalog._tools
        extended = [*tools.values(), FunctionTool(slow, effects=("read",))]
        extended.append(FunctionTool(lambda: "", effects=("read",), name="paid", price_nano=1))
        shell.deps.catalog.__init__(extended)
        shell.deps.ranker.__init__(shell.deps.catalog.schemas)

        start = shell.deps.budget.gate.ledger.start_tool

        def locked(account, tool, *amounts):
            if tool == "paid":
                assert began.wait(240)
                raise StoreError("The ledger is locked.")
            return start(account, tool, *amounts)

        monkeypatch.setattr(shell.deps.budget.gate.ledger, "start_tool", locked)
        events = await turn(shell)
        assert ended == ["slow"]
        stored = [event for _, event in shell.store.events(shell.session)]
    assert isinstance(events[-1], TurnFinished)
    assert stored[-1] == events[-1]


async def test_a_step_interrupted_by_a_limit_counts_its_saved_tokens_once(play):
    raised = User(LimitChoice("raise", "1"))
    async with play(
        [register("count_text"), finish("ok")],
        registration="names",
        price=PRICE,
        budget="0.004",
        user=raised,
    ) as shell:
        events = await turn(shell)
    (_, offer), (registered,) = of(events, ToolsOffered), of(events, ToolRegistered)
    saved = offer.everything_tokens - offer.context_tokens
    assert len(raised.asked) == 1
    assert events[-1].saved_tokens == saved + saved - registered.tokens


@pytest.mark.parametrize(("budget", "before"), [("0.004", 0), ("0.0072", 1)])
@pytest.mark.parametrize(("choice", "after"), [("stop", 0), ("answer", 1)])
async def test_steps_are_counted_when_they_are_paid(play, budget, before, choice, after):
    """A step that a limit refuses is none, and an answer instead of it is one."""
    lines = [register("count_text"), say("so far")] if before else [say("so far")]
    async with play(
        lines,
        registration="names",
        price=PRICE,
        budget=budget,
        user=User(LimitChoice(choice)),
    ) as shell:
        events = await turn(shell)
    (offer,) = of(events, ToolsOffered)
    saved = offer.everything_tokens - offer.context_tokens
    registered = sum(tool.tokens for tool in of(events, ToolRegistered))
    assert len(of(events, StepStarted)) == before + 1
    assert len(of(events, BudgetSettled)) == events[-1].steps == before + after
    assert events[-1].saved_tokens == (before + after) * saved - (registered if after else 0)


async def test_an_export_never_overwrites_a_file(play, tmp_path):
    async with play([finish("3")]) as shell:
        await turn(shell)
        file = tmp_path / "session.md"
        await shell.command(f"/export {file}")
        with pytest.raises(UsageError, match="exists already"):
            await shell.command(f"/export {file}")
        with pytest.raises(UsageError, match="is not a valid file name"):
            await shell.command("/export a\0b.md")
        printed = await shell.command("/export here.md")
        here = Path(shell.workspace, "here.md")
    assert printed.text == f"Exported to {here}."
    assert "How many lines has notes.txt?" in file.read_text() == here.read_text()  # noqa: ASYNC240


async def test_relative_export_paths_start_at_the_workspace(play, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with play([finish("3")]) as shell:
        await turn(shell)
        printed = await shell.command("/export talk.md")
        await shell.command('/export "our talk.json"')
        await shell.command("/export 'my notes.md'")
    assert str(home / "talk.md") in printed.text
    assert json.loads((home / "our talk.json").read_text())["session"]
    assert (home / "my notes.md").is_file()
    assert "How many lines has notes.txt?" in (home / "talk.md").read_text()


async def test_a_turn_stopped_before_its_first_step_still_ends(play):
    async with play([finish("3")]) as shell:
        events = shell.ask("How many?")
        first = asyncio.ensure_future(anext(events))

        def stop_at_once():
            shell.conversation._running.cancel()

        asyncio.get_running_loop().call_soon(stop_at_once)
        received = [await asyncio.wait_for(first, 600)]
        received += [event async for event in events]
    assert isinstance(received[-1], TurnFinished)
    assert received[-1].status == "interrupted"


async def test_the_reservation_for_the_answer_is_released_if_even_the_conclusion_is_too_large(play):
    long = say("", "count_text", text="x" * 16_000, usage={"input": 100, "output": 20})
    async with play(
        [long], registration="all", presentation="stable", price=PRICE, budget="0.023"
    ) as shell:
        shell.deps.settings.plan = "off"  # a plan would not spend as much on one use
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, LimitHit)
    assert events[-1].answer.startswith("The last result")
    assert [cap.held for cap in caps] == [0]
