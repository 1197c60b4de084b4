"""A recorded agent: it can only do what it did once, and does so under any strategy and any plan.

On a path it takes the step that was recorded next after the last one of that path. It passes over steps that were
tried there, and over those whose tool it is told not to use; a step that waited in a search while its tool came to be
forbidden is refused, as in the shell. Behind its last step it answers, or gives up if the recorded run came to nothing:
then a search goes back and lets it try without the step it went back from. Of two steps it prefers the one it took
first.

A model would look for another tool where one is forbidden, or answer as soon as it knew enough. So the figures tell
what is spent and which of the useful calls are let through, and nothing of how good the answers are.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ecoshell.agent.guards import refuse
from ecoshell.messages import FINISH, Call, Observation
from ecoshell.planning.btp.plan import TaskPlan
from ecoshell.strategies.base import (
    Act,
    ActAll,
    Draft,
    Leave,
    Path,
    Rank,
    Strategy,
    Think,
    Thought,
    Together,
    Tried,
    Want,
    same,
)
from ecoshell_bench.btp.recordings import Task

MAX_STEPS = 24
"""Thoughts of one task, as many as the shell allows unless told otherwise (SPEC §1)."""


class Tools(Protocol):
    """Carries out calls."""

    @property
    def forbidden(self) -> Collection[str]:
        """Tools that may not be used now."""
        ...

    def act(self, call: Call) -> Observation: ...


class RecordedAgent:
    """Thinks what it thought once."""

    def __init__(self, task: Task) -> None:
        self._calls = [action.call for action in task.actions]
        self._end = Thought("", Call(FINISH, {"answer": "as recorded"} if task.success else {"give_up": True}))

    def think(self, path: Path, tried: Collection[Tried], forbidden: Collection[str]) -> Thought:
        """The next recorded step on this path that was not tried there and is not forbidden, else the end."""
        done = int(path.steps[-1].call.id) + 1 if path.steps else 0
        for call in self._calls[done:]:
            if call.name not in forbidden and not any(same(call, other.call) for other in tried):
                return Thought("", call)
        return self._end

    def prefer(self, one: Thought, other: Thought) -> Thought:
        """The one that was recorded first; the end comes last."""
        return min(one, other, key=self._place)

    def _place(self, thought: Thought) -> int:
        return int(thought.call.id) if thought.call and thought.call.id else len(self._calls)


class Recording:
    """Gives what the tools gave once, and counts what that costs."""

    def __init__(self, task: Task, costs: Mapping[str, int]) -> None:
        self._seen = {action.call.id: action.seen for action in task.actions}
        self._useful = task.useful
        self.costs = costs
        self.spent = 0
        self.uses = 0
        self.made = set[str]()
        """Ids of the calls that were made."""
        self.forbidden: Collection[str] = ()

    def act(self, call: Call) -> Observation:
        self.spent += self.costs[call.name]
        self.uses += 1
        self.made.add(call.id)
        return self._seen[call.id]

    @property
    def total(self) -> "Spent":
        """What it came to."""
        return Spent(self.spent, self.uses, len(self.made & self._useful))


class Gated:
    """Lets calls through in their order while they fit what is left."""

    def __init__(self, inner: Recording, cap: int) -> None:
        self._inner = inner
        self._cap = cap

    @property
    def forbidden(self) -> Collection[str]:
        left = self._cap - self._inner.spent
        return {tool for tool, cost in self._inner.costs.items() if cost > left}

    def act(self, call: Call) -> Observation:
        if call.name in self.forbidden:
            return refuse("unaffordable", f"{call.name} costs more than is left")
        return self._inner.act(call)


class Planned:
    """Refuses what the plan does not allow now, and plans what remains after each use (SPEC §2)."""

    def __init__(self, inner: Recording, task: Task, plan: TaskPlan, cap: int) -> None:
        self._inner = inner
        self._helpful = {action.call.id: action.helpful for action in task.actions}
        self._task = plan
        self._cap = cap
        self.plan = plan.solve(cap)

    @property
    def forbidden(self) -> Collection[str]:
        """What would be refused if it were asked for now."""
        return {row.tool for row in self.plan.rows if row.tool in self.plan.forbidden or self.plan.better(row.tool)}

    def act(self, call: Call) -> Observation:
        if call.name in self.forbidden:
            return refuse("forbidden", f"{call.name} is not to be used")
        seen = self._inner.act(call)
        self._task.count(call.name, self._helpful[call.id])
        self.plan = self._task.solve(self._cap - self._inner.spent)
        return seen


@dataclass(frozen=True, slots=True)
class Spent:
    """What one task came to; what was planned for it is None without a plan."""

    cost: int
    uses: int
    useful: int
    """How many of its useful calls were let through."""
    planned_cost: int | None = None
    planned_uses: int | None = None


def replay(task: Task, strategy: Strategy, costs: Mapping[str, int]) -> Spent:
    """Replay a task with nothing to hold it back; `costs` are of one use of each tool."""
    recording = Recording(task, costs)
    _drive(task, strategy, recording)
    return recording.total


def replay_gated(task: Task, strategy: Strategy, costs: Mapping[str, int], cap: int) -> Spent:
    """Replay a task with calls taken in their order while they fit."""
    recording = Recording(task, costs)
    _drive(task, strategy, Gated(recording, cap))
    return recording.total


def ideal(task: Task, costs: Mapping[str, int], cap: int) -> Spent:
    """The most useful calls that a cap can pay, as only an oracle knows them: of equal worth, so the cheapest first."""
    spent = uses = 0
    for cost in sorted(costs[action.call.name] for action in task.actions[:MAX_STEPS] if action.helpful):
        if spent + cost > cap:
            break
        spent, uses = spent + cost, uses + 1
    return Spent(spent, uses, uses)


def replay_planned(task: Task, strategy: Strategy, plan: TaskPlan, cap: int) -> Spent:
    """Replay a task under its plan, whose candidates are the task's tools."""
    recording = Recording(task, {one.tool: one.cost for one in plan.candidates})
    planned = Planned(recording, task, plan, cap)
    first = planned.plan
    _drive(task, strategy, planned)
    return replace(recording.total, planned_cost=first.cost, planned_uses=sum(row.planned for row in first.rows))


def _drive(task: Task, strategy: Strategy, tools: Tools) -> None:
    """Drive a strategy to its end."""
    agent = RecordedAgent(task)
    thinking = strategy(task.query, MAX_STEPS)
    reply: Thought | Observation | None = None
    while True:
        try:
            want = thinking.send(reply)
        except StopIteration:
            return
        reply = _fulfil(want, agent, tools)


def _fulfil(want: Want, agent: RecordedAgent, tools: Tools) -> Thought | Observation | None:
    match want:
        case Think():
            return agent.think(want.path, want.tried, tools.forbidden)
        case Act():
            return tools.act(want.call)
        case Rank():
            return agent.prefer(want.one, want.other)
        case (
            ActAll() | Leave() | Draft() | Together()
        ):  # a recording makes one call at a time and plans no branches, so that a strategy thinks step by step
            return None
