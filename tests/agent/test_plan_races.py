"""The plan of a turn whose branches finish at the same time: made one after another, each of one moment."""

import asyncio
import threading
from functools import partial

import pytest

from ecoshell.agent.experience import Experience
from ecoshell.agent.model_set import ModelSet
from ecoshell.errors import StoreError
from ecoshell.messages import Call
from ecoshell.modes.single import Single
from ecoshell.planning.btp.costs import StepCost


class Paced(Single):
    """A mode at which the making of chosen plans stops, until it may go on."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.made = 0
        self._gates = {}

    def stop_at(self, number):
        self._gates[number] = threading.Event(), threading.Event()

    async def reached(self, number):
        assert await asyncio.to_thread(self._gates[number][0].wait, 600)

    def go_on(self, number):
        self._gates[number][1].set()

    def forecast(self, view):
        self.made += 1
        if self.made in self._gates:
            reached, may_go_on = self._gates[self.made]
            reached.set()
            assert may_go_on.wait(600)
        return super().forecast(view)


@pytest.fixture
async def planned(play):
    """A plan under a cap, made once, and the mode that paces the making of others."""
    async with play([], registration="all", budget="90000tok") as shell:
        model = shell.deps.models.current.model
        mode = Paced(model, max_tokens=200, answer_tokens=100)
        shell.deps.models.current = ModelSet(model, mode)
        shell.deps.settings.strict = True
        plan = await shell.conversation.forecast("How many lines has notes.txt?")
        await plan.settle(plan.inputs.view, shell.deps.catalog.names)
        yield plan, mode


def counting(plan, tool, helpful):
    """A use of a tool being counted."""
    used = plan.count(Call(tool, {}, tool), StepCost(), price=0, seconds=0.1, helpful=helpful)
    return asyncio.create_task(used)


def uses(plan, tool):
    return plan.priced.plan.row(tool).used


async def test_an_older_plan_never_takes_the_place_of_a_newer_one(planned):
    plan, mode = planned
    for number in (2, 3):
        mode.stop_at(number)
    first = counting(plan, "count_text", helpful=True)
    await mode.reached(2)
    second = counting(plan, "read_file", helpful=False)
    mode.go_on(2)
    await first
    await mode.reached(3)
    assert (uses(plan, "count_text"), uses(plan, "read_file")) == (1, 0)
    assert "read_file" not in plan.forbidden
    mode.go_on(3)
    assert "read_file (blacklist)" in await second
    assert (uses(plan, "count_text"), uses(plan, "read_file")) == (1, 1)
    assert plan.forbidden["read_file"] == "blacklist"


async def test_what_waits_for_a_plan_that_is_being_made_takes_one_more_plan_and_no_more(planned):
    plan, mode = planned
    mode.stop_at(2)
    first = counting(plan, "count_text", helpful=True)
    await mode.reached(2)
    others = [counting(plan, "read_file", helpful=True) for _ in range(10)]
    await asyncio.sleep(0)  # all of them are counted before the first plan is made
    mode.go_on(2)
    await asyncio.gather(first, *others)
    assert mode.made == 3
    assert uses(plan, "read_file") == 10


async def test_a_plan_whose_making_is_called_off_leaves_the_way_free_for_the_next(planned):
    plan, mode = planned
    mode.stop_at(2)
    first = counting(plan, "count_text", helpful=True)
    await mode.reached(2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = counting(plan, "read_file", helpful=True)
    await second
    mode.go_on(2)
    assert (uses(plan, "count_text"), uses(plan, "read_file")) == (1, 1)


class Locked:
    """Records that cannot be written."""

    def __init__(self):
        self.kept = []
        self.locked = True

    def add(self, items):
        if self.locked:
            raise StoreError("The experience is locked.")
        self.kept += items


async def test_branches_that_cannot_be_remembered_at_the_same_time_say_so_once_and_are_kept_later():
    records, told = Locked(), []
    experience = Experience(records, past=None)
    together = threading.Barrier(3)

    def made(use):
        together.wait(600)
        return use

    await asyncio.gather(*(experience.remember(partial(made, use), told.append) for use in "abc"))
    assert [notice.text for notice in told] == [
        "This turn's results are not recorded for planning yet. The experience is locked."
    ]
    records.locked = False
    await experience.remember(lambda: "d", told.append)
    assert sorted(records.kept) == ["a", "b", "c", "d"]
    records.locked = True
    await experience.remember(lambda: "e", told.append)
    assert len(told) == 2
