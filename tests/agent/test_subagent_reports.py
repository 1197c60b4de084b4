"""What a turn reports about its subagents: estimated costs, notices, and why they ended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path

import pytest

from ecoshell import Agent
from ecoshell.budget import Price, Rates
from ecoshell.errors import ModelBroken, ModelUnavailable
from ecoshell.events import (
    CallFinished,
    Event,
    Notice,
    SubagentFinished,
    TurnFinished,
    from_json,
    to_json,
)
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


async def turn_of(work: Work, question: str, home: Path) -> list[Event]:
    """The events of a turn whose subagents work like this; `home` is the workspace."""
    options = Options(workspace=home)
    settings = home.parent / "home"
    async with Agent(Provider(work), cap="1", home=settings, options=options) as agent:
        return [event async for event in agent.stream(question)]


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


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


HOOKS = """[hooks.commands.check]
on = "after_tool"
command = "echo 'nothing checked' >&2; exit 3"
[hooks.commands.endless]
on = "after_tool"
command = "exec sleep 60"
seconds = 0.05
"""
LIST_FILES = Reply("", (Call("list_files", {"path": "."}),), Usage(500, 10))


async def billed_too_much(request: Request) -> AsyncIterator[Delta | Reply]:
    yield Reply("Fine.", usage=Usage(100_000, request.max_tokens + 1_000))


def overloaded_at_first() -> Work:
    failures = iter([ModelUnavailable("503: overloaded.", billed=False, retry_after=0.01)])

    async def work(_: Request) -> AsyncIterator[Delta | Reply]:
        if (failure := next(failures, None)) is not None:
            raise failure
        yield Reply("Fine.", usage=Usage(500, 10))

    return work


async def broken(_: Request) -> AsyncIterator[Delta | Reply]:
    yield Delta("one ")
    raise ModelBroken("The connection was lost.")


async def one_call(request: Request) -> AsyncIterator[Delta | Reply]:
    has_listed = any(message.calls for message in request.messages)
    yield Reply("Fine.", usage=Usage(500, 10)) if has_listed else LIST_FILES


async def only_calls(request: Request) -> AsyncIterator[Delta | Reply]:
    yield Reply("Fine.", usage=Usage(500, 10)) if request.purpose == "answer" else LIST_FILES


NOTES: dict[str, tuple[Work, tuple[str, ...]]] = {
    "an overrun": (billed_too_much, ("remote billed $0.",)),
    "a retry": (overloaded_at_first(), ("503: overloaded. Retrying (attempt 2)",)),
    "an unknown cost": (broken, ("The call failed, so its cost is unknown: ≈ ",)),
    "hooks": (
        one_call,
        (
            "the hook check (after_tool) ended with exit status 3 · nothing checked",
            "the hook endless (after_tool) was stopped or not started · It was stopped after 0.05 s.",
        ),
    ),
    "no progress": (only_calls, ("The last 6 steps brought nothing new",)),
    "nothing": (one_call, ()),
}


@pytest.mark.parametrize("case", NOTES)
async def test_the_user_reads_the_notices_of_a_subagent_with_its_name(
    home: Path, case: str
) -> None:
    if case == "hooks":
        folder = home.parent / "home" / "config"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(HOOKS)
    work, expected = NOTES[case]
    texts = notices(await turn_of(work, "/task 0.5: Count.", home))
    assert len(texts) == len(expected)
    for text, beginning in zip(texts, expected, strict=True):
        assert text.startswith(f"subagent: {beginning}")


async def test_subagents_that_run_at_once_report_the_same_notice_once(home: Path) -> None:
    both_started = asyncio.Barrier(2)

    async def work(request: Request) -> AsyncIterator[Delta | Reply]:
        if not any(message.calls for message in request.messages):
            await both_started.wait()
        async for piece in only_calls(request):
            yield piece

    events = await turn_of(work, "Delegate.", home)
    assert len([event for event in events if isinstance(event, SubagentFinished)]) == 2
    (text,) = notices(events)
    assert text.startswith("subagent: The last 6 steps brought nothing new")


async def test_the_result_says_why_a_subagent_stopped_early_within_its_share(home: Path) -> None:
    events = await turn_of(only_calls, "/task 0.5: Count.", home)
    (result,) = (event.observation for event in events if isinstance(event, CallFinished))
    assert result.startswith("Fine.\n\n[subagent: limit reached, $0.0")
    assert result.endswith(". The last 6 steps brought nothing new.]")
