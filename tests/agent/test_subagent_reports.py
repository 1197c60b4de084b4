"""What a turn reports about its subagents: estimated costs, notices, and why they ended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path

import pytest

from ecoshell import Agent
from ecoshell.budget import Price, Rates
from ecoshell.errors import ModelBroken
from ecoshell.events import SubagentFinished, TurnFinished, from_json, to_json
from ecoshell.messages import Call, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits, request_bound
from ecoshell.options import Options

PRICE = Price(Rates(*map(Decimal, ("3", "0.3", "3.75", "15", "15"))))
Work = Callable[[Request], AsyncIterator[Delta | Reply]]
DELEGATIONS = tuple(
    Call("task", {"instructions": text, "budget": "0.4"}) for text in ("One.", "Two.")
)


class Provider:
    """A remote model whose subagents work as `work` says; the session's agent delegates two tasks and answers."""

    def __init__(self, work: Work) -> None:
        self.traits = Traits("remote", PRICE, 200_000, 2_000, native_tools=True, local=False)
        self._work = work

    def size(self, request: Request) -> PromptSize:
        bound = request_bound(request, native_tools=True)
        return PromptSize(bound // 4, bound, exact=False)

    def count(self, text: str) -> int:
        return len(text) // 4

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        if any("delegated this to you" in message.text for message in request.messages):
            async for piece in self._work(request):
                yield piece
            return
        has_delegated = any(message.calls for message in request.messages)
        calls = () if has_delegated else DELEGATIONS
        yield Reply("" if calls else "Done.", calls, Usage(self.size(request).count, 20))

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("question", ["/task 0.5: Count.", "Delegate."])
@pytest.mark.parametrize("ending", ["stopped", "broken"])
async def test_calls_of_subagents_without_a_usage_report_are_shown_as_estimated(
    tmp_path: Path, home: Path, question: str, ending: str
) -> None:
    count = 1 if question.startswith("/task") else len(DELEGATIONS)
    working = asyncio.Semaphore(0)

    async def work(_: Request) -> AsyncIterator[Delta | Reply]:
        yield Delta("one ")
        working.release()
        if ending == "broken":
            raise ModelBroken("The connection was lost.")
        await asyncio.Event().wait()

    async def stop() -> None:
        for _ in range(count):
            await working.acquire()
        await agent.stop()

    options = Options(workspace=home)
    async with Agent(Provider(work), cap="1", home=tmp_path / "home", options=options) as agent:
        stopping = asyncio.create_task(stop()) if ending == "stopped" else None
        events = [event async for event in agent.stream(question)]
        if stopping is not None:
            await stopping
    ended = [event for event in events if isinstance(event, SubagentFinished)]
    (finished,) = (event for event in events if isinstance(event, TurnFinished))
    assert len(ended) == count
    for event in ended:
        assert event.estimate is not None
        assert event.estimate_nano is not None
        assert event.estimate.total < event.usage.total
        assert event.estimate_nano < (event.spent_nano or 0)
        assert event.outcome.partition(" · ")[2].startswith("≈ $0.00")
    result = agent.outcome.result()
    assert result.estimate is not None
    assert result.estimate.usage.total < result.usage.total
    assert finished.render().text.partition("≈ ")[2].startswith("$0.0")
    assert finished.estimate == result.estimate.usage


def test_the_end_of_a_subagent_that_an_older_version_recorded_is_read() -> None:
    ended = SubagentFinished("1", "subagent", "s", "answered", "0.05", "0.003", calls=2)
    record = to_json(ended)
    del record["estimate"], record["estimate_nano"]
    assert from_json(record) == ended
    assert (ended.consumption.nano, ended.consumption.estimated) == (3_000_000, False)
