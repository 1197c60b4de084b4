"""Plans of a turn whose nodes finish at the same time are computed one after another, each from one state."""

import asyncio
import threading
from functools import partial

import pytest

from ecoshell.agent.experience import Experience
from ecoshell.agent.model_set import ModelSet
from ecoshell.errors import StoreError
from ecoshell.messages import Call
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single
from ecoshell.planning.btp.costs import StepCost


class Paced(Single):
    """A mode that pauses the computation of chosen plans until it is released."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.computed = 0
        self._gates = {}

    def stop_at(self, number):
        self._gates[number] = threading.Event(), threading.Event()

    async def reached(self, number):
        assert await asyncio.to_thread(self._gates[number][0].wait, 600)

    def release(self, number):
        self._gates[number][1].set()

    def forecast(self, view):
        self.computed += 1
        if self.computed in self._gates:
            reached, released = self._gates[self.computed]
            reached.set()
            assert released.wait(600)
        return super().forecast(view)


@pytest.fixture
async def planned(play):
    """A plan under a cap, computed once, and the mode that paces later computations."""
    async with play([], registration="all", budget="90000tok") as shell:
        model = shell.deps.models.current.model
        mode = Paced(model, ModeLimits(200, 100))
        shell.deps.models.current = ModelSet(model, mode)
        shell.deps.settings.strict = True
        plan = await shell.conversation.setup.forecast("How many lines has notes.txt?")
        await plan.settle(plan.inputs.view, shell.deps.catalog.names)
        yield plan, mode


def count_use(plan, tool, helpful):
    """Start to count a use of a tool."""
    used = plan.count(Call(tool, {}, tool), StepCost(), price=0, seconds=0.1, helpful=helpful)
    return asyncio.create_task(used)


def uses(plan, tool):
    return plan.priced.plan.row(tool).used


async def test_an_older_plan_never_replaces_a_newer_one(planned):
    plan, mode = planned
    for number in (2, 3):
        mode.stop_at(number)
    first = count_use(plan, "count_text", helpful=True)
    await mode.reached(2)
    second = count_use(plan, "read_file", helpful=False)
    mode.release(2)
    await first
    await mode.reached(3)
    assert (uses(plan, "count_text"), uses(plan, "read_file")) == (1, 0)
    assert "read_file" not in plan.forbidden
    mode.release(3)
    await second
    assert "read_file (blacklist)" in plan.news("read_file")
    assert (uses(plan, "count_text"), uses(plan, "read_file")) == (1, 1)
    assert plan.forbidden["read_file"] == "blacklist"


async def test_uses_counted_during_a_computation_share_one_more_plan(planned):
    plan, mode = planned
    mode.stop_at(2)
    first = count_use(plan, "count_text", helpful=True)
    await mode.reached(2)
    uses_of_read_file = [count_use(plan, "read_file", helpful=True) for _ in range(10)]
    await asyncio.sleep(0)  # all of them are counted before the first plan is computed
    mode.release(2)
    await asyncio.gather(first, *uses_of_read_file)
    assert mode.computed == 3
    assert uses(plan, "read_file") == 10


async def test_a_cancelled_computation_does_not_block_the_next(planned):
    plan, mode = planned
    mode.stop_at(2)
    first = count_use(plan, "count_text", helpful=True)
    await mode.reached(2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = count_use(plan, "read_file", helpful=True)
    await second
    mode.release(2)
    assert (uses(plan, "count_text"), uses(plan, "read_file")) == (1, 1)


class Locked:
    """Records that cannot be written."""

    def __init__(self):
        self.items = []
        self.locked = True

    def add(self, items):
        if self.locked:
            raise StoreError("The experience is locked.")
        self.items += items


async def test_records_that_cannot_be_written_are_reported_once():
    records, notices = Locked(), []
    experience = Experience(records, past=None)
    together = threading.Barrier(3)

    def record(use):
        together.wait(600)
        return use

    await asyncio.gather(
        *(experience.remember(partial(record, use), notices.append) for use in "abc")
    )
    assert [notice.text for notice in notices] == [
        "This turn's results are not recorded for planning. The experience is locked."
    ]
    records.locked = False
    await experience.remember(lambda: "d", notices.append)
    assert records.items == ["d"]
    records.locked = True
    await experience.remember(lambda: "e", notices.append)
    assert len(notices) == 2
