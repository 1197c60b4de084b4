"""Recorded tasks, replayed under any strategy and any plan.

A recorded agent can only do what it did once. On a path it takes the step that was recorded next after the last one of
that path. It passes over steps that were tried there, and over those whose tool it is told not to use; a step that
waited in a search while its tool came to be forbidden is refused, as in the shell. Behind its last step it answers, or
gives up if the recorded run failed: then a search goes back and lets it try without the step it went back
from. Of two steps it prefers the one it took first.

A model would look for another tool where one is forbidden, or answer as soon as it knew enough. So the figures tell
what is spent and which of the useful calls are let through, and nothing of how good the answers are.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from ecoshell.agent.guards import refuse
from ecoshell.catalog.search import Ranker
from ecoshell.errors import UsageError
from ecoshell.messages import FINISH, Call, Observation, ToolDocument
from ecoshell.planning.btp import Candidate, TaskPlan, chance, frequency_bound, priors, value
from ecoshell.planning.btp.evidence import AttemptRow, Evidence, Past
from ecoshell.planning.btp.experience import Columns
from ecoshell.planning.judging import by_rules, unwrapped
from ecoshell.strategies import (
    AskModel,
    Backtrack,
    CallTool,
    Draft,
    Path,
    Rank,
    RunParallel,
    Strategy,
    Thought,
    Tried,
    same,
)
from ecoshell_bench.reading import RunRecord, StepRecord
from ecoshell_train.records import read_records

MAX_STEPS = 24
"""Thoughts of one task, as many as the shell allows unless told otherwise (SPEC §1)."""
_FIX = "Give recorded runs, one JSON object a line, with query, gold_tools, and steps of tool, args and observation."


@dataclass(frozen=True, slots=True)
class Action:
    """One recorded call, whose id is its place in the run, with what came back and what rules say of that."""

    call: Call
    seen: Observation
    helpful: bool | None


@dataclass(frozen=True, slots=True)
class Task:
    """One recorded run, and the tools its question needs as people saw it."""

    query: str
    success: bool
    gold: tuple[str, ...]
    actions: tuple[Action, ...]
    tools: tuple[str, ...]
    """The candidates of a plan: what is needed and what was used, each once."""

    @property
    def useful(self) -> frozenset[str]:
        """Ids of the calls whose results helped."""
        return frozenset(action.call.id for action in self.actions if action.helpful)

    def as_gold(self) -> "Task":
        """The gold trajectory: each tool that is needed is called once, and helps; nothing else is done."""
        calls = (Call(tool, id=str(place)) for place, tool in enumerate(self.gold))
        return replace(self, success=True, actions=tuple(Action(call, Observation(""), True) for call in calls))


def read_tasks(path: FilePath) -> list[Task]:
    """The runs of a file, failed ones too: one object a line. Raises UsageError, which names the line."""
    tasks: list[Task] = []
    for _, run in read_records(path, RunRecord, _FIX):
        gold = tuple(dict.fromkeys(run.gold_tools))
        actions = tuple(_action(step, number, run.query) for number, step in enumerate(run.steps))
        used = (action.call.name for action in actions)
        tasks.append(Task(run.query, run.success, gold, actions, tuple(dict.fromkeys((*gold, *used)))))
    if not tasks:
        raise UsageError(f"{path} has no recorded run.", fix=_FIX)
    return tasks


def _action(step: StepRecord, number: int, query: str) -> Action:
    """Arguments are an object, which may be written as JSON text; anything else becomes the value of one."""
    given = step.args
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            given = json.loads(given)
    call = Call(step.tool, cast("dict[str, Any]", given) if isinstance(given, dict) else {"": given}, str(number))
    seen = Observation(step.observation, ok=not unwrapped(step.observation)[1])
    return Action(call, seen, by_rules(query, call, seen).helpful)


# What is known before a task begins


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """A task, and what is known of every recorded tool before it begins."""

    task: Task
    evidence: Mapping[str, Evidence]
    fits: Mapping[str, float] = field(default_factory=dict[str, float])
    """The local ranker's chances, by the tools' names alone: a recording has no documents."""

    def candidates(self, threshold: float, costs: Mapping[str, int], *, strict: bool = False) -> list[Candidate]:
        """The task's tools as a plan sees them; to the paper's they are chosen already, so that it counts on them."""
        before = priors(self.evidence, self.fits, dict.fromkeys(self.evidence, ""))
        usual = sum(self.fits.values()) / max(1, len(self.fits))
        found: list[Candidate] = []
        for tool in self.task.tools:
            past = self.evidence[tool]
            worth = value(past) if strict else value(past, before[tool])
            likely = 1.0 if strict else chance(past, self.fits.get(tool, 0.0), usual)
            bound = frequency_bound(past, worth, threshold)
            found.append(Candidate(tool, worth, bound, costs[tool], known=past.weight > 0, chance=likely))
        return found


def leave_one_out(tasks: Sequence[Task], *, gold: bool, halves: bool = False) -> list[PlanInputs]:
    """Each task beside what all runs of other questions say of the tools, as they were recorded.

    `gold`: what is to be replayed is the gold trajectory of each task. `halves`: only every second run is asked, those
    at even places for the odd ones and the other way round.
    """
    inputs: list[PlanInputs] = []
    tools = sorted({tool for task in tasks for tool in task.tools})
    ranker = Ranker(ToolDocument(tool, "", {}) for tool in tools)
    for place, task in enumerate(tasks):
        others = tasks[1 - place % 2 :: 2] if halves else tasks
        past = Past(RecordedStore([other for other in others if other.query != task.query]))
        evidence = past.evidence(task.query, dict.fromkeys(tools, ""), "")
        inputs.append(PlanInputs(task.as_gold() if gold else task, evidence, ranker.chances(task.query)))
    return inputs


class RecordedStore:
    """The uses of recorded runs as an experience store, in memory and asked once."""

    generation = 0

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._numbers = {query: number for number, query in enumerate(dict.fromkeys(one.query for one in tasks), 1)}
        uses = [(run, task.query, action) for run, task in enumerate(tasks) for action in task.actions]
        many = len(uses)
        self._uses = Columns(  # each run is a session, and what it took was not recorded
            id=[*range(1, many + 1)],
            query=[self._numbers[query] for _, query, _ in uses],
            session=[str(run) for run, _, _ in uses],
            turn=[0] * many,
            tool=[action.call.name for _, _, action in uses],
            document_hash=[""] * many,
            helpful=[None if action.helpful is None else int(action.helpful) for _, _, action in uses],
            price_nano=[0] * many,
            step_nano=[None] * many,
            step_tokens=[0] * many,
            seconds=[0.0] * many,
            model=[""] * many,
        )

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        return [(number, query) for query, number in self._numbers.items() if number > after]

    def columns(self, after: int = 0) -> Columns:
        return Columns() if after else self._uses

    def attempts_after(self, after: int = 0) -> list[AttemptRow]:
        return []


# The replay


@dataclass(frozen=True, slots=True)
class Spent:
    """What one task came to; what was planned for it is None without a plan."""

    cost: int
    uses: int
    useful: int
    """How many of its useful calls were let through."""
    planned_cost: int | None = None
    planned_uses: int | None = None


class RecordedTools:
    """Give what the tools gave once, and count what that costs; nothing holds them back."""

    def __init__(self, task: Task, costs: Mapping[str, int]) -> None:
        """`costs` are of one use of each tool."""
        self._actions = {action.call.id: action for action in task.actions}
        self._useful = task.useful
        self.costs = costs
        self.spent = 0
        self.uses = 0
        self._made = set[str]()
        """Ids of the calls that were made."""

    @property
    def forbidden(self) -> Collection[str]:
        """Tools that would be refused if they were asked for now."""
        return ()

    def act(self, call: Call) -> Observation:
        """Carry out a call, or refuse it."""
        if call.name in self.forbidden:
            return refuse("forbidden", f"{call.name} is not to be used")
        self.spent += self.costs[call.name]
        self.uses += 1
        self._made.add(call.id)
        self._used(call.name, self._actions[call.id].helpful)
        return self._actions[call.id].seen

    def _used(self, tool: str, helpful: bool | None) -> None:
        """Take note of a use."""

    def total(self) -> Spent:
        """What it came to."""
        return Spent(self.spent, self.uses, len(self._made & self._useful))


class Gated(RecordedTools):
    """Let calls through in their order while they fit what is left."""

    def __init__(self, task: Task, costs: Mapping[str, int], cap: int) -> None:
        super().__init__(task, costs)
        self._cap = cap

    @property
    def forbidden(self) -> Collection[str]:
        left = self._cap - self.spent
        return {tool for tool, cost in self.costs.items() if cost > left}


class Planned(RecordedTools):
    """Refuse what the plan does not allow now, and plan what remains after each use (SPEC §2)."""

    def __init__(self, task: Task, plan: TaskPlan, cap: int) -> None:
        """The plan's candidates are the task's tools."""
        super().__init__(task, {one.tool: one.cost for one in plan.candidates})
        self._plan = plan
        self._cap = cap
        self.plan = self._first = plan.solve(cap)

    @property
    def forbidden(self) -> Collection[str]:
        return {row.tool for row in self.plan.rows if row.tool in self.plan.forbidden or self.plan.better(row.tool)}

    def _used(self, tool: str, helpful: bool | None) -> None:
        self._plan.count(tool, helpful)
        self.plan = self._plan.solve(self._cap - self.spent)

    def total(self) -> Spent:
        planned = sum(row.planned for row in self._first.rows)
        return replace(super().total(), planned_cost=self._first.cost, planned_uses=planned)


def ideal(task: Task, costs: Mapping[str, int], cap: int) -> Spent:
    """The most useful calls that a cap can pay, as only an oracle knows them: of equal worth, so the cheapest first."""
    spent = uses = 0
    for cost in sorted(costs[action.call.name] for action in task.actions[:MAX_STEPS] if action.helpful):
        if spent + cost > cap:
            break
        spent, uses = spent + cost, uses + 1
    return Spent(spent, uses, uses)


def replay(task: Task, strategy: Strategy, tools: RecordedTools) -> Spent:
    """Replay a task with these tools; a recording makes one call at a time and plans no branches."""
    calls = [action.call for action in task.actions]
    end = Thought("", Call(FINISH, {"answer": "as recorded"} if task.success else {"give_up": True}))

    def thought(path: Path, tried: Collection[Tried]) -> Thought:
        """The next recorded step on this path that was not tried there and is not forbidden, else the end."""
        forbidden, done = tools.forbidden, int(path.steps[-1].call.id) + 1 if path.steps else 0
        for call in calls[done:]:
            if call.name not in forbidden and not any(same(call, other.call) for other in tried):
                return Thought("", call)
        return end

    def place(one: Thought) -> int:
        """Where it was recorded; the end comes last."""
        return int(one.call.id) if one.call and one.call.id else len(calls)

    thinking = strategy(task.query, MAX_STEPS)
    reply: Thought | tuple[Observation, ...] | None = None
    while True:
        try:
            want = thinking.send(reply)
        except StopIteration:
            return tools.total()
        match want:
            case AskModel():
                reply = thought(want.path, want.tried)
            case CallTool():
                reply = tuple(map(tools.act, want.calls))
            case Rank():
                reply = min(want.one, want.other, key=place)
            case Backtrack() | Draft() | RunParallel():  # without it a strategy thinks step by step
                reply = None
