"""Replay recorded tasks under any strategy and plan.

A recorded agent can only repeat its recorded steps. On a path it takes the next recorded step after the last one of
the path, skipping steps already tried there and steps whose tool is forbidden. If a tool becomes forbidden while its
step waits in a search, the call is refused, as in the shell. After the last step the agent answers, or gives up if the
recorded run failed; a search then backtracks and continues without the step it left. Of two steps the agent prefers
the earlier one.

A model would try another tool instead of a forbidden one, or answer as soon as it knew enough. The figures therefore
measure spending and which useful calls are allowed, not the quality of answers.
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
from ecoshell.messages import FINISH, Call, Observation, ToolSchema
from ecoshell.planning.btp.evidence import Evidence, Past
from ecoshell.planning.btp.experience import Columns
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import chance, frequency_bound, priors, value
from ecoshell.planning.judging import by_rules
from ecoshell.strategies import (
    AskModel,
    Backtrack,
    CallTool,
    DraftGraph,
    Path,
    Rank,
    RunGraph,
    Sibling,
    Strategy,
    Thought,
    same,
)
from ecoshell_bench.reading import RunRecord, StepRecord
from ecoshell_train.envelopes import unwrapped
from ecoshell_train.records import read_records

MAX_STEPS = 24
"""Thoughts per task, the shell's default (SPEC §1)."""
_FIX = "Give recorded runs, one JSON object per line, with query, gold_tools, and steps of tool, args and observation."


@dataclass(frozen=True, slots=True)
class Action:
    """A recorded call, whose id is its position in the run, with its result and the rules' judgement of it."""

    call: Call
    observation: Observation
    helpful: bool | None


@dataclass(frozen=True, slots=True)
class Task:
    """A recorded run, and the tools its question needs according to annotators (`gold`)."""

    query: str
    success: bool
    gold: tuple[str, ...]
    actions: tuple[Action, ...]
    tools: tuple[str, ...]
    """The candidates of a plan: needed and used tools without repetitions."""

    @property
    def useful(self) -> frozenset[str]:
        """Ids of the calls whose results helped."""
        return frozenset(action.call.id for action in self.actions if action.helpful)

    def as_gold(self) -> "Task":
        """Return the gold trajectory: one helpful call of each needed tool."""
        calls = (Call(tool, id=str(index)) for index, tool in enumerate(self.gold))
        return replace(
            self, success=True, actions=tuple(Action(call, Observation(""), True) for call in calls)
        )


def read_tasks(path: FilePath) -> list[Task]:
    """Read all runs of a file, including failed ones. Raises UsageError, which names the line."""
    tasks: list[Task] = []
    for _, run in read_records(path, RunRecord, _FIX):
        gold = tuple(dict.fromkeys(run.gold_tools))
        actions = tuple(_action(step, number, run.query) for number, step in enumerate(run.steps))
        used = (action.call.name for action in actions)
        tasks.append(
            Task(run.query, run.success, gold, actions, tuple(dict.fromkeys((*gold, *used))))
        )
    if not tasks:
        raise UsageError(f"{path} has no recorded run.", fix=_FIX)
    return tasks


def _action(step: StepRecord, number: int, query: str) -> Action:
    """Convert a recorded step; arguments that are not an object become the value of one argument."""
    arguments = step.args
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        arguments = {"": arguments}
    call = Call(step.tool, cast("dict[str, Any]", arguments), str(number))
    text, failed = unwrapped(step.observation)
    observation = Observation(text, ok=not failed)
    return Action(call, observation, by_rules(query, call, observation).helpful)


# Experience before a task


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """A task, and the evidence about every recorded tool before it starts."""

    task: Task
    evidence: Mapping[str, Evidence]
    fits: Mapping[str, float] = field(default_factory=dict[str, float])
    """The local ranker's chances, from tool names only because a recording has no schemas."""

    def candidates(
        self, threshold: float, costs: Mapping[str, int], *, strict: bool = False
    ) -> list[Candidate]:
        """Return the candidates of a plan; the paper's strict plan assumes that every tool will be used."""
        prior = priors(self.evidence, self.fits, dict.fromkeys(self.evidence, ""))
        mean_fit = sum(self.fits.values()) / max(1, len(self.fits))
        candidates: list[Candidate] = []
        for tool in self.task.tools:
            past = self.evidence[tool]
            worth = value(past) if strict else value(past, prior[tool])
            probability = 1.0 if strict else chance(past, self.fits.get(tool, 0.0), mean_fit)
            bound = frequency_bound(past, worth, threshold)
            candidates.append(
                Candidate(
                    tool, worth, bound, costs[tool], is_judged=past.weight > 0, chance=probability
                )
            )
        return candidates


def leave_one_out(tasks: Sequence[Task], *, gold: bool, halves: bool = False) -> list[PlanInputs]:
    """Return each task with the evidence from the recorded runs of all other questions.

    With `gold`, the tasks are the gold trajectories. With `halves`, the evidence of a run at an even position comes
    from runs at odd positions, and vice versa.
    """
    inputs: list[PlanInputs] = []
    tools = sorted({tool for task in tasks for tool in task.tools})
    ranker = Ranker(ToolSchema(tool, "", {}) for tool in tools)
    for index, task in enumerate(tasks):
        source = tasks[1 - index % 2 :: 2] if halves else tasks
        past = Past(RecordedStore([other for other in source if other.query != task.query]))
        evidence = past.evidence(task.query, dict.fromkeys(tools, ""), "")
        inputs.append(
            PlanInputs(task.as_gold() if gold else task, evidence, ranker.chances(task.query))
        )
    return inputs


class RecordedStore:
    """The uses of recorded runs as a read-only experience store in memory."""

    generation = 0

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._numbers = {
            query: number
            for number, query in enumerate(dict.fromkeys(task.query for task in tasks), 1)
        }
        uses = [
            (run, task.query, action) for run, task in enumerate(tasks) for action in task.actions
        ]
        count = len(uses)
        self._uses = Columns(  # each run counts as a session; prices and times were not recorded
            id=[*range(1, count + 1)],
            query=[self._numbers[query] for _, query, _ in uses],
            session=[str(run) for run, _, _ in uses],
            turn=[0] * count,
            tool=[action.call.name for _, _, action in uses],
            document_hash=[""] * count,
            helpful=[
                None if action.helpful is None else int(action.helpful) for _, _, action in uses
            ],
            price_nano=[0] * count,
            step_nano=[None] * count,
            step_tokens=[0] * count,
            seconds=[0.0] * count,
            model=[""] * count,
            subagent_model=[""] * count,
        )

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        return [(number, query) for query, number in self._numbers.items() if number > after]

    def columns(self, after: int = 0) -> Columns:
        return Columns() if after else self._uses


# Replay


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost and calls of a replayed task; planned figures are None without a plan."""

    cost: int
    uses: int
    useful: int
    """The number of useful calls that were allowed."""
    planned_cost: int | None = None
    planned_uses: int | None = None


class RecordedTools:
    """Return recorded results and add up the `costs` of uses, without any limit."""

    def __init__(self, task: Task, costs: Mapping[str, int]) -> None:
        self._actions = {action.call.id: action for action in task.actions}
        self._useful = task.useful
        self.costs = costs
        self.spent = 0
        self.uses = 0
        self._call_ids = set[str]()

    @property
    def forbidden(self) -> Collection[str]:
        """Tools whose calls are currently refused."""
        return ()

    def act(self, call: Call) -> Observation:
        """Replay or refuse a call."""
        if call.name in self.forbidden:
            return refuse("forbidden", f"{call.name} is forbidden")
        self.spent += self.costs[call.name]
        self.uses += 1
        self._call_ids.add(call.id)
        self._count(call.name, self._actions[call.id].helpful)
        return self._actions[call.id].observation

    def _count(self, tool: str, helpful: bool | None) -> None:
        """Handle a use; subclasses may update their plan."""

    def total(self) -> Spending:
        """Return the figures of the replay so far."""
        return Spending(self.spent, self.uses, len(self._call_ids & self._useful))


class Gated(RecordedTools):
    """Allow calls in their recorded order while the remaining budget covers them."""

    def __init__(self, task: Task, costs: Mapping[str, int], cap: int) -> None:
        super().__init__(task, costs)
        self._cap = cap

    @property
    def forbidden(self) -> Collection[str]:
        remaining = self._cap - self.spent
        return {tool for tool, cost in self.costs.items() if cost > remaining}


class Planned(RecordedTools):
    """Refuse calls the plan does not allow, and plan the remaining budget again after each use (SPEC §2)."""

    def __init__(self, task: Task, plan: TaskPlan, cap: int) -> None:
        super().__init__(task, {candidate.tool: candidate.cost for candidate in plan.candidates})
        self._plan = plan
        self._cap = cap
        self.plan = self._first = plan.solve(cap)

    @property
    def forbidden(self) -> Collection[str]:
        return {
            row.tool
            for row in self.plan.rows
            if row.tool in self.plan.forbidden
            or self.plan.better(row.tool, cost=row.cost, budget=self.plan.budget)
        }

    def _count(self, tool: str, helpful: bool | None) -> None:
        self._plan.count(tool, helpful)
        self.plan = self._plan.solve(self._cap - self.spent)

    def total(self) -> Spending:
        planned = sum(row.planned for row in self._first.rows)
        return replace(super().total(), planned_cost=self._first.cost, planned_uses=planned)


def ideal(task: Task, costs: Mapping[str, int], cap: int) -> Spending:
    """Return the spending of an oracle that makes only useful calls, the cheapest first."""
    spent = uses = 0
    for cost in sorted(
        costs[action.call.name] for action in task.actions[:MAX_STEPS] if action.helpful
    ):
        if spent + cost > cap:
            break
        spent, uses = spent + cost, uses + 1
    return Spending(spent, uses, uses)


def replay(task: Task, strategy: Strategy, tools: RecordedTools) -> Spending:
    """Replay a task with these tools, one call at a time."""
    calls = [action.call for action in task.actions]
    end = Thought(
        "", Call(FINISH, {"answer": "as recorded"} if task.success else {"give_up": True})
    )

    def thought(path: Path, attempts: Collection[Sibling]) -> Thought:
        """Return the next recorded step after this path that is neither tried nor forbidden, or the end."""
        forbidden = tools.forbidden
        start = int(path.steps[-1].call.id) + 1 if path.steps else 0
        for call in calls[start:]:
            if call.name not in forbidden and not any(same(call, other.call) for other in attempts):
                return Thought("", call)
        return end

    def position(candidate: Thought) -> int:
        """Return the position in the recording; the end comes last."""
        return int(candidate.call.id) if candidate.call and candidate.call.id else len(calls)

    requests = strategy(task.query, MAX_STEPS)
    reply: Thought | tuple[Observation, ...] | None = None
    while True:
        try:
            request = requests.send(reply)
        except StopIteration:
            return tools.total()
        match request:
            case AskModel():
                reply = thought(request.path, request.siblings)
            case CallTool():
                reply = tuple(map(tools.act, request.calls))
            case Rank():
                reply = min(request.first, request.second, key=position)
            case (
                Backtrack() | DraftGraph() | RunGraph()
            ):  # without a tool graph, strategies think step by step
                reply = None
