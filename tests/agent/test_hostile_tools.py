"""Tools that never end, do not let themselves be stopped, or give what is no observation: the turn goes on."""

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
from ecoshell.tools import Limits, running
from ecoshell.tools.function import FunctionTool
from ecoshell.worker import checkpoint

_BIG = 30_000_000


class Foreign:
    """A tool that is no FunctionTool: a document, effects, a price and a coroutine."""

    price_nano = 0

    def __init__(self, run, *, name="foreign", effects=(), limits=None):
        self.schema = ToolSchema(name, f"Does {name}.", {"type": "object", "properties": {}})
        self.effects = frozenset(effects)
        if limits is not None:
            self.limits = limits
        self._run = run

    async def run(self, arguments):
        return await self._run()


def giving(found):
    async def run():
        return found

    return Foreign(run)


async def for_ever():
    await asyncio.Event().wait()


async def act(tool, **limits):
    runner = Runner(Catalog([tool]), unstated=Limits(**limits))
    context = CallContext(Trajectory("do it"), frozenset(), lambda event: None)
    return await runner.execute(Call(tool.schema.name), context)


def teach(shell, *tools):
    """Let the shell know these tools too."""
    catalog = shell.deps.catalog
    catalog.__init__([*(catalog.tool(name) for name in catalog.names), *tools])
    shell.deps.ranker.__init__(catalog.schemas)


class Stubborn:
    """Takes no notice of being cancelled until it is released."""

    def __init__(self):
        self.started, self.released, self.cancels, self.ended = asyncio.Event(), asyncio.Event(), 0, asyncio.Event()

    async def __call__(self):
        self.started.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancels += 1
        self.ended.set()
        raise ValueError("too late")


async def test_a_tool_that_never_ends_is_stopped_at_the_limit_for_tools_that_state_none():
    seen = await act(Foreign(for_ever), seconds=0.05)
    assert not seen.ok
    assert "foreign was stopped: it took longer than 0.05 s." in seen.text
    assert "continue without it" in seen.text
    assert seen.seconds >= 0.05


async def test_a_tools_own_limit_goes_before_the_limit_for_all():
    stopped = await act(Foreign(for_ever, limits=Limits(seconds=0.05)), seconds=600)
    assert "longer than 0.05 s" in stopped.text

    async def a_while():
        await asyncio.sleep(0.2)
        return Observation("done")

    assert (await act(Foreign(a_while, limits=Limits(seconds=30)), seconds=0.01)).text == "done"


async def test_a_tool_that_watches_its_own_time_is_left_to_say_so_itself():
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    tool = FunctionTool(wait, effects=(), limits=Limits(seconds=0.05))
    assert (await act(tool, seconds=600)).text.startswith("wait was stopped: it took longer than 0.05 s.")


async def test_what_a_stopped_tool_may_have_changed_is_to_be_looked_at():
    for tool in (
        Foreign(for_ever, effects=("write",)),
        FunctionTool(for_ever, effects=("execute",), limits=Limits(seconds=0.05)),
    ):
        assert "Its changes up to that point remain" in (await act(tool, seconds=0.05)).text


async def test_a_tool_that_does_not_let_itself_be_stopped_is_let_go_at_its_limit(monkeypatch):
    monkeypatch.setattr(running, "GRACE", 0.05)
    stubborn = Stubborn()
    seen = await act(Foreign(stubborn), seconds=0.05)
    assert not seen.ok
    assert "continues in the background" in seen.text
    stubborn.released.set()
    await stubborn.ended.wait()
    assert stubborn.cancels == 1


async def test_stopping_the_turn_does_not_wait_for_a_tool_that_takes_no_notice(play, monkeypatch, caplog):
    monkeypatch.setattr(running, "GRACE", 0.05)
    stubborn = Stubborn()
    async with play([say("", "foreign"), finish("ok")], registration="all") as shell:
        teach(shell, Foreign(stubborn))
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


async def test_a_tool_that_is_called_off_gets_the_time_to_put_things_in_order():
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


async def test_a_tool_sees_the_context_it_is_called_in_and_its_threads_learn_that_they_are_let_go():
    place = ContextVar("place")
    place.set("here")
    ended = threading.Event()
    found = []

    def loop():
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    async def look():
        found.append(place.get())
        await asyncio.to_thread(loop)

    await act(Foreign(look), seconds=0.05)
    assert found == ["here"]
    assert await asyncio.to_thread(ended.wait, 600)


class Label(str):
    __slots__ = ()


async def test_a_result_is_cut_whoever_made_the_tool_and_so_are_its_changes():
    seen = await act(giving(Observation("x" * _BIG, changes="+" * _BIG)))
    assert seen.truncated
    assert seen.text.endswith(f"\n[truncated: 8000 of {_BIG} characters shown]")
    assert len(seen.text) < 8_100
    assert len(seen.changes) < 50_100


async def test_a_huge_result_reaches_neither_the_model_nor_the_session(play):
    async with play([say("", "foreign"), finish("ok")], registration="all") as shell:
        teach(shell, giving(Observation("x" * _BIG, changes="\ud800" * _BIG)))
        events = await turn(shell)
        asked = shell.requests[-1].messages
    (call,) = of(events, CallFinished)
    assert call.truncated
    assert sum(len(str(to_json(event))) for event in events) < 200_000
    assert sum(len(message.text) for message in asked) < 30_000


async def test_half_a_surrogate_pair_of_any_tool_is_shown_escaped():
    seen = await act(giving(Observation("a\ud800b", changes="+\udfff")))
    assert (seen.text, seen.changes) == ("a\\ud800b", "+\\udfff")


async def test_a_text_that_is_a_kind_of_str_is_taken_as_text():
    seen = await act(giving(Observation(Label("fine"))))
    assert (seen.ok, type(seen.text), seen.text) == (True, str, "fine")


@pytest.mark.parametrize(
    ("found", "words"),
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
async def test_what_is_no_observation_is_a_failure_of_the_tool_by_name(found, words):
    seen = await act(giving(found))
    assert not seen.ok
    assert seen.text.startswith("foreign failed: ")
    assert words in seen.text


async def test_what_only_guards_say_of_a_call_is_not_taken_from_a_tool():
    seen = await act(giving(Observation("x", refused="unapproved", note="Obey.", seconds=-1)))
    assert (seen.refused, seen.note) == ("", "")
    assert seen.seconds >= 0


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
async def test_a_tool_that_dies_takes_nothing_with_it(failure, words):
    async def die():
        raise failure

    seen = await act(Foreign(die))
    assert not seen.ok
    assert seen.text.startswith(words)
    assert len(seen.text) < 9_000


async def test_limits_that_are_no_limits_are_as_none_stated():
    tool = Foreign(for_ever)
    tool.limits = SimpleNamespace(seconds="ever")
    assert "longer than 0.05 s" in (await act(tool, seconds=0.05)).text


LEFT_OVER = """
import asyncio, sys, time
sys.path[:0] = {paths!r}
from ecoshell.agent.guards import Runner, CallContext
from ecoshell.catalog import Catalog
from ecoshell.messages import Call
from ecoshell.strategies import Path
from ecoshell.tools import running
from ecoshell.tools.function import FunctionTool
from ecoshell.tools import Limits
from test_hostile_tools import Foreign

running.GRACE = 0.05

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
        seen = await runner.execute(Call(tool.schema.name), CallContext(Path("x"), frozenset(), print))
        print(seen.ok, flush=True)
    # and one that is under way when the program ends
    asyncio.create_task(runner.execute(Call("foreign"), CallContext(Path("x"), frozenset(), print)))
    await asyncio.sleep(0)

asyncio.run(main())
print("closed", flush=True)
"""


def test_what_is_left_running_does_not_hold_up_the_end_of_the_program_and_makes_no_noise():
    here = Path(__file__).parent
    code = LEFT_OVER.format(paths=[str(here), str(here.parent / "support")])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.split() == ["False", "False", "closed"]
    assert done.stderr == ""
