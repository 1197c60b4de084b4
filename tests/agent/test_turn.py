import asyncio
import itertools
import json
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path

import pytest
from agent_play import counts, finish, of, register, say, turn

from ecoshell.agent import Approval, LimitChoice
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    CallFinished,
    ErrorHappened,
    LimitHit,
    Notice,
    Rationale,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.tools.function import FunctionTool

COUNT = say("Count them.", "count_text", path="notes.txt")
PRICE = (Decimal(1), Decimal(4))


class AtLimit:
    """A user who makes these choices at limits."""

    def __init__(self, *choices):
        self.choices = list(choices)
        self.hits = []

    async def approve(self, wanted):
        return Approval("no")

    async def at_limit(self, hit):
        self.hits.append(hit)
        return self.choices.pop(0)


async def test_a_tool_is_registered_by_name_then_called_then_the_answer_comes(play):
    lines = [register("count_text", "I need a counter."), COUNT, finish("3 lines")]
    async with play(lines, registration="names") as shell:
        events = await turn(shell)
    told = [type(event) for event in events if isinstance(event, Rationale | ToolRegistered | CallFinished | Answer)]
    assert told == [Rationale, ToolRegistered, Rationale, CallFinished, Answer]
    assert "3 lines" in of(events, CallFinished)[0].observation
    end = events[-1]
    assert isinstance(end, TurnFinished)
    assert (end.status, end.answer, end.steps, end.registered) == ("answered", "3 lines", 3, ("count_text",))
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
        before, after = ([tool.name for tool in request.tools] for request in shell.requests)
        skills = shell.conversation.memory.library
        messages = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert (shell.conversation.memory.library, shell.conversation.memory.messages) == (skills, messages)
    assert "convert_units" not in before
    assert after == [*before, "convert_units"]
    (called,) = of(events, CallFinished)
    assert called.ok
    (registered,) = [event for event in of(events, ToolRegistered) if event.by == "first_call"]
    assert (registered.name, registered.id) == ("convert_units", called.id)


async def test_an_unknown_name_is_answered_with_the_closest_ones(play):
    async with play([register("count_txt"), finish("ok")], registration="names") as shell:
        events = await turn(shell)
    assert of(events, CallFinished)[0].refused == "unknown"
    assert "count_text" in of(events, CallFinished)[0].observation


async def test_registering_twice_says_so_and_shows_the_document_once(play):
    lines = [register("count_text"), register("count_text"), finish("ok")]
    async with play(lines, registration="names", presentation="stable") as shell:
        events = await turn(shell)
        last = shell.requests[-1]
    assert len(of(events, ToolRegistered)) == 1
    schema = shell.conversation.known("count_text").as_text()
    assert sum(message.text.count(schema) for message in last.messages) == 1
    assert "registered already" in of(events, CallFinished)[0].observation


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_a_document_stands_in_the_context_once(play, presentation):
    lines = [register("count_text"), COUNT, finish("3")]
    async with play(lines, registration="names", presentation=presentation) as shell:
        await turn(shell)
        last = shell.requests[-1]
    description = shell.conversation.known("count_text").description
    shown = [message.text for message in last.messages] + [tool.as_text() for tool in last.tools]
    assert sum(text.count(description) for text in shown) == 1


async def test_in_stable_everything_sent_before_stays_to_the_byte(play):
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
        assert [tool.as_text().encode() for tool in later.tools] == [tool.as_text().encode() for tool in earlier.tools]
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert len(later.messages) > len(earlier.messages)


async def test_later_turns_continue_the_same_prefix_and_know_what_is_registered(play):
    lines = [register("count_text"), COUNT, finish("3"), COUNT, finish("still 3")]
    async with play(lines, registration="names", presentation="stable") as shell:
        await turn(shell)
        events = await turn(shell, "And now?")
        requests = shell.requests
    assert requests[3].messages[: len(requests[2].messages)] == requests[2].messages
    assert of(events, CallFinished)[0].ok


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_a_resumed_session_keeps_its_presentation_and_shows_the_document_once(play, presentation):
    lines = [register("count_text"), COUNT, finish("3"), COUNT, finish("still 3")]
    async with play(lines, registration="names", presentation=presentation) as shell:
        await turn(shell)
        shell.deps.settings.presentation = "auto"
        await shell.open(shell.session)
        events = await turn(shell, "And now?")
        last = shell.requests[-1]
    description = shell.conversation.known("count_text").description
    shown = [message.text for message in last.messages] + [tool.as_text() for tool in last.tools]
    assert of(events, ToolsOffered)[0].presentation == presentation
    assert of(events, CallFinished)[0].ok
    assert sum(text.count(description) for text in shown) == 1


async def test_everything_registered_up_front_needs_no_registration(play):
    async with play([COUNT, finish("3")], registration="all") as shell:
        events = await turn(shell)
    assert set(of(events, ToolsOffered)[0].upfront) == set(shell.deps.catalog.names)
    assert of(events, CallFinished)[0].ok


async def test_giving_up_is_its_own_ending(play):
    async with play([finish("There is no such file.", give_up=True)]) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("gave_up", "There is no such file.")


async def test_the_step_limit_ends_in_an_answer_from_what_there_is(play):
    lines = [register("count_text"), COUNT, say("Three lines, it seems.")]
    async with play(lines, registration="names", max_steps=2) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("limit", "Three lines, it seems.")
    assert of(events, Answer)[0].partial


async def test_a_script_that_has_ended_is_an_error_and_not_a_hang(play):
    async with play([register("count_text")], registration="names") as shell:
        events = await turn(shell)
    assert "1 replies" in of(events, ErrorHappened)[0].message
    assert events[-1].status == "error"


async def test_an_empty_question_is_refused_before_anything_happens(play):
    async with play([]) as shell:
        with pytest.raises(UsageError):
            await turn(shell, "  \n ")


async def test_at_the_limit_without_a_person_the_answer_is_written_from_what_there_is(play):
    big = {"input": 1000, "output": 200}
    lines = [
        register("count_text"),
        {**COUNT, "usage": big},
        *({**line, "usage": big} for line in counts(20)),
        say("Three."),
    ]
    async with play(lines, registration="names", presentation="stable", price=PRICE, budget="0.012") as shell:
        shell.deps.settings.plan = "off"  # a plan would not spend so much on a use
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, LimitHit)[0].scope == "session"
    assert events[-1].status == "limit"
    assert events[-1].answer
    assert all(cap.spent + cap.held <= cap.limit for cap in caps)


async def test_a_cap_below_the_price_of_an_answer_is_told_before_anything_is_spent(play):
    async with play([finish("ok")], price=PRICE, budget="0.000001") as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].spent_nano) == ("limit", 0)
    assert of(events, LimitHit)
    assert of(events, Notice)


async def test_raising_the_cap_at_the_limit_goes_on_with_the_turn(play):
    user = AtLimit(LimitChoice("raise", "nonsense"), LimitChoice("raise", "1.00"))
    async with play([finish("ok")], price=PRICE, budget="0.000001", user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, len(user.hits)) == ("answered", 2)


async def test_nothing_stays_held_when_the_model_chosen_at_the_limit_cannot_be_called(play, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "Three."}\n')
    user = AtLimit(LimitChoice("model", f"script:{other}"))
    async with play([finish("ok")], price=PRICE, budget="3500tok", user=user, registration="names") as shell:
        shell.deps.settings.plan = "off"  # a plan would leave no tools, and so ask for less
        shell.ledger.bar(f"script:{other}", "it billed too much")
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert user.hits[0].left < 3500  # the answer's price was set aside
    assert of(events, ErrorHappened)[0].kind == "ModelDisabled"
    assert [cap.held for cap in caps] == [0]


async def test_stopping_at_the_limit_ends_without_an_answer(play):
    async with play([finish("ok")], price=PRICE, budget="0.000001", user=AtLimit(LimitChoice("stop"))) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("limit", "")


async def test_nothing_stays_held_after_a_turn(play):
    async with play([finish("ok")], price=PRICE, budget="1.00") as shell:
        await turn(shell)
        caps = await shell.deps.budget.caps()
    assert [cap.held for cap in caps] == [0]


async def test_a_stopped_turn_is_kept_and_the_next_one_sees_it(play):
    lines = [register("count_text"), COUNT, finish("3"), finish("yes")]
    async with play(lines, registration="names") as shell:
        events = []
        async for event in shell.ask("How many?"):
            events.append(event)
            if isinstance(event, ToolRegistered):
                await shell.stop()
        again = await turn(shell, "Did you count?")
        seen = shell.requests[-1].messages
    assert events[-1].status == "interrupted"
    assert again[-1].status == "answered"
    assert any("How many?" in message.text for message in seen)


async def test_a_reader_that_goes_away_stops_the_turn_and_loses_no_event(play):
    lines = [register("count_text"), COUNT, finish("3")]
    async with play(lines, registration="names") as shell:
        async with aclosing(shell.ask("How many?")) as events:
            await anext(events)
        stored = [event for _, event in shell.store.events(shell.session)]
    assert isinstance(stored[-1], TurnFinished)
    assert stored[-1].status == "interrupted"


async def test_a_turn_ends_before_the_next_though_whoever_stops_it_is_cancelled_twice(play, monkeypatch):
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
        shell.deps.catalog._tools["count_text"] = FunctionTool(winds_down, effects=("read",), name="count_text")
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
    told = [(type(event), event.turn) for event in stored if isinstance(event, TurnStarted | TurnFinished)]
    assert told == [(TurnStarted, 1), (TurnFinished, 1), (TurnStarted, 2), (TurnFinished, 2)]


async def test_reads_side_by_side_end_with_the_turn(play, monkeypatch):
    ended = []

    async def slow() -> str:
        try:
            await asyncio.sleep(0.5)
        finally:
            ended.append("slow")
        return ""

    both = {"text": "", "calls": [{"name": name, "arguments": {}} for name in ("slow", "paid")]}
    async with play([both, finish("ok")], registration="all") as shell:
        tools = shell.deps.catalog._tools
        known = [*tools.values(), FunctionTool(slow, effects=("read",))]
        known.append(FunctionTool(lambda: "", effects=("read",), name="paid", price_nano=1))
        shell.deps.catalog.__init__(known)
        shell.deps.ranker.__init__(shell.deps.catalog.schemas)

        def locked(*account):
            raise StoreError("The ledger is locked.")

        monkeypatch.setattr(shell.deps.budget.gate.ledger, "charge_tool", locked)
        events = await turn(shell)
        assert ended == ["slow"]
        stored = [event for _, event in shell.store.events(shell.session)]
    assert isinstance(events[-1], TurnFinished)
    assert stored[-1] == events[-1]


async def test_a_step_that_meets_a_limit_saves_its_tokens_once(play):
    raised = AtLimit(LimitChoice("raise", "1"))
    async with play(
        [register("count_text"), finish("ok")], registration="names", price=PRICE, budget="0.004", user=raised
    ) as shell:
        events = await turn(shell)
    (offer,), (registered,) = of(events, ToolsOffered), of(events, ToolRegistered)
    saved = offer.everything_tokens - offer.context_tokens
    assert len(raised.hits) == 1
    assert events[-1].saved_tokens == saved + saved - registered.tokens


async def test_an_export_is_written_once_and_never_over_another_file(play, tmp_path):
    async with play([finish("3")]) as shell:
        await turn(shell)
        file = tmp_path / "session.md"
        await shell.command(f"/export {file}")
        with pytest.raises(UsageError, match="exists already"):
            await shell.command(f"/export {file}")
        with pytest.raises(UsageError, match="cannot be the name of a file"):
            await shell.command("/export a\0b.md")
        said = await shell.command("/export here.md")
        here = Path(shell.workspace, "here.md")
    assert said.text == f"Exported to {here}."
    assert "How many lines has notes.txt?" in file.read_text() == here.read_text()  # noqa: ASYNC240


async def test_a_file_that_is_named_is_one_of_the_workspace_wherever_the_program_was_started(
    play, home, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    async with play([finish("3")]) as shell:
        await turn(shell)
        printed = await shell.command("/export said.md")
        await shell.command('/export "what we said.json"')
        await shell.command("/export 'my notes.md'")
    assert str(home / "said.md") in printed.text
    assert json.loads((home / "what we said.json").read_text())["session"]
    assert (home / "my notes.md").is_file()
    assert "How many lines has notes.txt?" in (home / "said.md").read_text()


async def test_a_turn_stopped_before_its_first_step_still_ends(play):
    async with play([finish("3")]) as shell:
        events = shell.ask("How many?")
        first = asyncio.ensure_future(anext(events))

        def stop_at_once():
            shell.conversation._running.cancel()

        asyncio.get_running_loop().call_soon(stop_at_once)
        seen = [await asyncio.wait_for(first, 600)]
        seen += [event async for event in events]
    assert isinstance(seen[-1], TurnFinished)
    assert seen[-1].status == "interrupted"


async def test_what_was_set_aside_is_given_back_when_not_even_the_conclusion_fits(play):
    long = say("", "count_text", text="x" * 9000, usage={"input": 100, "output": 20})
    async with play([long], registration="all", presentation="stable", price=PRICE, budget="0.020") as shell:
        shell.deps.settings.plan = "off"  # a plan would not spend so much on a use
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, LimitHit)
    assert events[-1].answer.startswith("The last result")
    assert [cap.held for cap in caps] == [0]
