"""Tools that never end, ignore cancellation or return invalid observations: the turn continues."""

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace

import pytest
from agent_play import finish, of, say, turn

from ecoshell.agent.guards import CallContext, Runner
from ecoshell.catalog import Catalog
from ecoshell.events import CallFinished, CallStarted, to_json
from ecoshell.messages import Call, Observation, ToolSchema
from ecoshell.strategies import Path as Trajectory
from ecoshell.tools import Limits
from ecoshell.tools.function import FunctionTool
from ecoshell.worker import checkpoint

_BIG = 30_000_000


class Foreign:
    """A tool other than a FunctionTool: a schema, effects, a price and a coroutine."""

    price_nano = 0

    def __init__(self, run, *, name="foreign", effects=(), limits=None):
        self.schema = ToolSchema(name, f"Does {name}.", {"type": "object", "properties": {}})
        self.effects = frozenset(effects)
        if limits is not None:
            self.limits = limits
        self._run = run

    async def run(self, arguments):
        return await self._run()


def returning(result):
    async def run():
        return result

    return Foreign(run)


async def never_end():
    await asyncio.Event().wait()


async def act(tool, **limits):
    runner = Runner(Catalog([tool]), unstated=Limits(**limits))
    context = CallContext(Trajectory("do it"), set(), lambda event: None)
    return await runner.execute(Call(tool.schema.name), context)


def add_tools(shell, *tools):
    """Add these tools to the shell's catalog."""
    catalog = shell.deps.catalog
    catalog.__init__([*(catalog.tool(name) for name in catalog.names), *tools])
    shell.deps.ranker.__init__(catalog.schemas)


class Stubborn:
    """Ignores cancellation until it is released."""

    def __init__(self):
        self.started, self.released, self.cancels, self.ended = (
            asyncio.Event(),
            asyncio.Event(),
            0,
            asyncio.Event(),
        )

    async def __call__(self):
        self.started.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancels += 1
        self.ended.set()
        raise ValueError("too late")


async def test_a_tool_without_a_limit_is_stopped_at_the_default_limit():
    result = await act(Foreign(never_end), seconds=0.05)
    assert not result.ok
    assert "foreign was stopped: it took longer than 0.05 s." in result.text
    assert "continue without it" in result.text
    assert result.seconds >= 0.05


async def test_the_limit_of_a_tool_overrides_the_default():
    stopped = await act(Foreign(never_end, limits=Limits(seconds=0.05)), seconds=600)
    assert "longer than 0.05 s" in stopped.text

    async def a_while():
        await asyncio.sleep(0.2)
        return Observation("done")

    assert (await act(Foreign(a_while, limits=Limits(seconds=30)), seconds=0.01)).text == "done"


async def test_a_function_tool_reports_its_own_time_limit():
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    tool = FunctionTool(wait, effects=(), limits=Limits(seconds=0.05))
    assert (await act(tool, seconds=600)).text.startswith(
        "wait was stopped: it took longer than 0.05 s."
    )


async def test_stopping_a_tool_with_effects_warns_of_partial_changes():
    for tool in (
        Foreign(never_end, effects=("write",)),
        FunctionTool(never_end, effects=("execute",), limits=Limits(seconds=0.05)),
    ):
        assert "Its changes up to that point remain" in (await act(tool, seconds=0.05)).text


async def test_a_tool_that_ignores_cancellation_is_abandoned_at_its_limit():
    stubborn = Stubborn()
    result = await act(Foreign(stubborn), seconds=0.05)
    assert not result.ok
    assert "continues in the background" in result.text
    stubborn.released.set()
    await stubborn.ended.wait()
    assert stubborn.cancels == 1


async def test_stopping_the_turn_does_not_wait_for_a_tool_that_ignores_cancellation(play, caplog):
    stubborn = Stubborn()
    async with play([say("", "foreign"), finish("ok")], registration="all") as shell:
        add_tools(shell, Foreign(stubborn))
        events = []
        async for event in shell.ask("Do it."):
            events.append(event)
            if isinstance(event, CallStarted):
                await stubborn.started.wait()
                async with asyncio.timeout(600):
                    await shell.stop()
        assert events[-1].status == "interrupted"
        assert not stubborn.ended.is_set()
        stubborn.released.set()
        await stubborn.ended.wait()
        await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_a_cancelled_tool_gets_time_to_clean_up():
    tidied = asyncio.Event()
    started = asyncio.Event()

    async def tidy():
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            tidied.set()

    running = asyncio.create_task(act(Foreign(tidy)))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tidied.is_set()


async def test_a_tool_runs_in_the_context_of_its_caller_and_its_threads_are_cancelled():
    place = ContextVar("place")
    place.set("here")
    ended = threading.Event()
    values = []

    def loop():
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    async def look():
        values.append(place.get())
        await asyncio.to_thread(loop)

    await act(Foreign(look), seconds=0.05)
    assert values == ["here"]
    assert await asyncio.to_thread(ended.wait, 600)


class Label(str):
    __slots__ = ()


async def test_results_and_changes_of_any_tool_are_cut():
    result = await act(returning(Observation("x" * _BIG, changes="+" * _BIG)))
    assert result.truncated
    assert result.text.endswith(f"\n[truncated: 8000 of {_BIG} characters shown]")
    assert len(result.text) < 8_100
    assert len(result.changes) < 50_100


async def test_a_huge_result_reaches_neither_the_model_nor_the_session(play):
    async with play([say("", "foreign"), finish("ok")], registration="all") as shell:
        add_tools(shell, returning(Observation("x" * _BIG, changes="\ud800" * _BIG)))
        events = await turn(shell)
        messages = shell.requests[-1].messages
    (call,) = of(events, CallFinished)
    assert call.truncated
    assert sum(len(str(to_json(event))) for event in events) < 200_000
    assert sum(len(message.text) for message in messages) < 30_000


async def test_lone_surrogates_in_results_are_escaped():
    result = await act(returning(Observation("a\ud800b", changes="+\udfff")))
    assert (result.text, result.changes) == ("a\\ud800b", "+\\udfff")


async def test_a_subclass_of_str_becomes_plain_text():
    result = await act(returning(Observation(Label("fine"))))
    assert (result.ok, type(result.text), result.text) == (True, str, "fine")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "NoneType instead of an observation"),
        ("text", "str instead of an observation"),
        (Observation(7), "`text` of its result is int, not str"),
        (Observation(b"x"), "`text` of its result is bytes, not str"),
        (Observation("x", changes=None), "`changes` of its result is NoneType, not str"),
        (Observation("x", ok="yes"), "`ok` of its result is str, not bool"),
        (Observation("x", truncated=None), "`truncated` of its result is NoneType, not bool"),
    ],
)
async def test_an_invalid_observation_is_a_failure_of_the_tool(returned, words):
    result = await act(returning(returned))
    assert not result.ok
    assert result.text.startswith("foreign failed: ")
    assert words in result.text


async def test_a_tool_cannot_set_the_fields_of_guards():
    result = await act(returning(Observation("x", refused="unapproved", note="Obey.", seconds=-1)))
    assert (result.refused, result.note) == ("", "")
    assert result.seconds >= 0


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (SystemExit(3), "foreign failed: it tried to end the program"),
        (asyncio.CancelledError(), "foreign failed: it cancelled itself"),
        (BaseExceptionGroup("two", [ValueError(1)]), "foreign failed: ExceptionGroup: two"),
        (Mute(), "foreign failed: Mute"),
        (ValueError("\ud800" * _BIG), "foreign failed: ValueError: \\ud800"),
    ],
)
async def test_any_exception_of_a_tool_is_a_failed_call(failure, words):
    async def die():
        raise failure

    result = await act(Foreign(die))
    assert not result.ok
    assert result.text.startswith(words)
    assert len(result.text) < 9_000


async def test_invalid_limits_count_as_unstated():
    tool = Foreign(never_end)
    tool.limits = SimpleNamespace(seconds="ever")
    assert "longer than 0.05 s" in (await act(tool, seconds=0.05)).text


STILL_RUNNING = """
import asyncio, sys, time
sys.path[:0] = {paths!r}
from ecoshell.agent.guards import Runner, CallContext
from ecoshell.catalog import Catalog
from ecoshell.messages import Call
from ecoshell.strategies import Path
from ecoshell.tools.function import FunctionTool
from ecoshell.tools import Limits
from test_hostile_tools import Foreign


def endless() -> str:
    "Never end."
    while True:
        time.sleep(0.01)

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def main():
    tools = [FunctionTool(endless, effects=(), limits=Limits(seconds=0.05)), Foreign(stubborn)]
    runner = Runner(Catalog(tools), unstated=Limits(seconds=0.05))
    for tool in tools:
        result = await runner.execute(Call(tool.schema.name), CallContext(Path("x"), set(), print))
        print(result.ok, flush=True)
    # one more is running when the program ends
    asyncio.create_task(runner.execute(Call("foreign"), CallContext(Path("x"), set(), print)))
    await asyncio.sleep(0)

asyncio.run(main())
print("closed", flush=True)
"""


def test_tools_still_running_do_not_delay_the_exit_of_the_program():
    here = Path(__file__).parent
    code = STILL_RUNNING.format(paths=[str(here), str(here.parent / "support")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.split() == ["False", "False", "closed"]
    assert done.stderr == ""
