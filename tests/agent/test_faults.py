"""Turns under faults: stopped twice, locked databases, a switched model, empty replies."""

import asyncio
from decimal import Decimal

import pytest
from agent_play import User, finish, of, say, turn

from ecoshell.agent import LimitChoice
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    CallFinished,
    CallStarted,
    ErrorHappened,
    LimitHit,
    Notice,
    TurnFinished,
    TurnStarted,
)
from ecoshell.models import Delta

LOCKED = StoreError(
    "ledger.db is locked by another process.", fix="Close the other ecoshell or try again."
)
PRICE = (Decimal(1), Decimal(4))
LONG_WAIT = say("", "run_python", code="import time; time.sleep(600)")


async def test_a_turn_ends_though_the_ledger_is_locked(play, monkeypatch):
    async def locked(**how):
        raise LOCKED

    async with asyncio.timeout(120), play([finish("ok"), finish("ok")]) as shell:
        monkeypatch.setattr(shell.deps.budget, "caps", locked)
        events = await turn(shell)
        again = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("answered", "ok")
    assert again[-1].status == "answered"


async def test_a_turn_stopped_twice_still_ends(play, monkeypatch):
    stuck = asyncio.Event()

    async def slow(**how):
        stuck.set()
        await asyncio.sleep(600)
        return ()

    async with asyncio.timeout(120), play([LONG_WAIT], registration="all", yes=True) as shell:
        events = []
        stops = []
        async for event in shell.ask("Wait."):
            events.append(event)
            if isinstance(event, CallStarted):
                monkeypatch.setattr(shell.deps.budget, "caps", slow)
                stops.append(asyncio.create_task(shell.stop()))
                await stuck.wait()
                stops.append(asyncio.create_task(shell.stop()))
        await asyncio.gather(*stops)
        assert not shell.conversation.busy
    assert events[-1].status == "interrupted"


async def test_a_stopped_call_finishes_before_its_turn(play):
    async with play([LONG_WAIT, finish("ok")], registration="all", yes=True) as shell:
        events = []
        async for event in shell.ask("Wait."):
            events.append(event)
            if isinstance(event, CallStarted):
                await shell.stop()
    ended = of(events, CallFinished)[0]
    verb = (
        "was run" if ended.refused == "stopped" else "did"
    )  # the stop may come before the program is started
    assert (ended.ok, ended.observation) == (False, f"The turn ended before run_python {verb}.")
    assert events.index(ended) < len(events) - 1


async def test_a_reservation_that_cannot_be_released_does_not_lose_the_answer(play, monkeypatch):
    async def locked(hold):
        raise LOCKED

    async with play([finish("ok")]) as shell:
        monkeypatch.setattr(shell.deps.models.current.model, "release", locked)
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("answered", "ok")
    assert "is locked" in of(events, Notice)[0].text


@pytest.mark.parametrize("line", [say(""), say("  \n"), finish(""), finish("   ")])
async def test_two_empty_replies_end_the_turn_with_an_error(play, line):
    async with play([line, say("")]) as shell:
        events = await turn(shell)
    assert events[-1].status == "error"
    assert not of(events, Answer)
    assert "empty answer twice" in of(events, ErrorHappened)[0].message


async def test_reasoning_without_end_ends_the_turn_with_its_reason(play, monkeypatch):
    async def think_on(request):
        while True:
            yield Delta("hm ", reasoning=True)

    async with play([], price=PRICE, budget="1") as shell:
        monkeypatch.setattr(shell.deps.models.current.model._model, "stream", think_on)
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
        assert not shell.conversation.busy
    (error,) = of(events, ErrorHappened)
    assert "gave an empty answer: it continued past max_tokens and was cut off." in error.message
    assert (cap.held, cap.spent > 0, cap.spent < cap.limit) == (0, True, True)


async def test_stopping_after_an_unpriced_model_at_a_limit_releases_the_reservation(play):
    user = User(
        LimitChoice("model", "github_copilot/gpt-4o-mini"), LimitChoice("stop"), approval="no"
    )
    async with play(
        [finish("ok")], registration="all", price=PRICE, budget="0.010", user=user
    ) as shell:
        shell.deps.settings.plan = "off"  # a plan would withhold the tools and so reserve less
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, LimitHit)
    assert "The price of github_copilot/gpt-4o-mini is unknown" in of(events, Notice)[0].text
    assert events[-1].status == "limit"
    assert [cap.held for cap in caps] == [0]


async def test_resuming_an_unknown_session_does_not_stop_the_turn(play):
    async with play(
        [say("", "count_text", path="notes.txt"), finish("3")], registration="all"
    ) as shell:
        events = []
        async for event in shell.ask("How many?"):
            events.append(event)
            if isinstance(event, TurnStarted):
                with pytest.raises(UsageError):
                    await shell.command("/resume nothing-like-it")
    assert events[-1].status == "answered"


async def test_events_that_could_not_be_written_are_written_on_close(play, monkeypatch):
    async with play([finish("ok")]) as shell:
        write, session = shell.store.append, shell.session

        tries = []

        def locked(*_):
            tries.append(None)
            raise LOCKED

        monkeypatch.setattr(shell.store, "append", locked)
        with pytest.raises(StoreError):
            await turn(shell)
        assert len(tries) == 1  # each attempt may wait ten seconds for the lock
        monkeypatch.setattr(shell.store, "append", write)
    async with play([], resume=session) as shell:
        past = shell.past
    assert (type(past[0]), type(past[-2])) == (
        TurnStarted,
        TurnFinished,
    )  # the last event records the next turn's tools


async def test_a_cut_answer_is_reported(play):
    async with play([say("word " * 2_000)]) as shell:
        events = await turn(shell)
    assert events[-1].status == "answered"
    assert events[-1].answer.startswith("word word")
    assert "limit cut it" in of(events, Notice)[0].text


async def test_an_empty_conclusion_quotes_the_last_result(play):
    count = say("", "count_text", path="notes.txt")
    async with play([count, count, count], registration="all", max_steps=2) as shell:
        events = await turn(shell)
    assert events[-1].status == "limit"
    assert "count_text: notes.txt: 3 lines" in events[-1].answer
