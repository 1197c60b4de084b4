"""The protocol between a strategy and its driver: requests, replies, paths and outcomes.

A strategy is a generator that yields requests and performs no I/O.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ecoshell.events import Event
from ecoshell.messages import (
    FINISH,
    META_TOOLS,
    TOOL_CALL,
    TOOL_REGISTER,
    Call,
    Image,
    Observation,
    ProviderState,
)

_NO_RESULTS = META_TOOLS - {TOOL_CALL}
"""Calls that prepare other calls or end the path."""
_NOT_REGISTERING = frozenset({"unknown", "invalid", "forbidden", "unregistered"})
"""Refusals that leave the called tool unregistered."""
_MIN_PATIENCE = 2
_MAX_PATIENCE = 6
_STEPS_PER_PATIENCE = 12


def stalled_after(max_steps: int) -> int:
    """Return after how many consecutive thoughts without news a path ends; grows with the step limit."""
    return min(_MAX_PATIENCE, max(_MIN_PATIENCE, max_steps // _STEPS_PER_PATIENCE))


FOUND_MOST = "the search is over, and this way found most"
"""The reason for the backtracking that ends a search without an answer."""


@dataclass(frozen=True, slots=True)
class Thought:
    """One reply of a mode: a rationale and any number of calls."""

    rationale: str
    call: Call | None = None
    by: str = field(default="", compare=False)
    """The role that made the call or wrote the answer; empty for the default role."""
    announced: bool = field(default=False, compare=False)
    """Whether the rationale was already emitted while the reply arrived."""
    more: tuple[Call, ...] = ()
    """Calls of the same reply after the first."""
    state: ProviderState | None = field(default=None, compare=False, repr=False)
    """The provider's original reply."""


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a trajectory: rationale, call and observation."""

    rationale: str
    call: Call
    observation: Observation
    state: ProviderState | None = field(default=None, compare=False, repr=False)
    """The provider's original reply; only on the first call of the reply."""


@dataclass(frozen=True, slots=True)
class Path:
    """A trajectory from the question; sibling paths of a search share only their common prefix."""

    question: str
    steps: tuple[Step, ...] = ()
    images: tuple[Image, ...] = field(default=(), compare=False, repr=False)
    """Images attached to the question; set by the driver."""

    def then(self, *steps: Step) -> "Path":
        return replace(self, steps=(*self.steps, *steps))

    @property
    def registered(self) -> tuple[str, ...]:
        """Names of the tools registered on this path, in order (SPEC §1)."""
        names = (
            str(step.call.arguments.get("tool_name"))
            for step in self.steps
            if step.call.name == TOOL_REGISTER and step.observation.ok
        )
        return tuple(dict.fromkeys(names))

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the called tools, without calls whose refusal left the tool unregistered."""
        names = (
            step.call.name
            for step in self.steps
            if step.observation.refused not in _NOT_REGISTERING
        )
        return tuple(dict.fromkeys(names))

    @property
    def result_steps(self) -> tuple[Step, ...]:
        """Steps with a result, without registrations, tool searches, repeats and failures."""
        ran = (step for step in self.steps if step.observation.ok and not step.observation.refused)
        return tuple(step for step in ran if step.call.name not in _NO_RESULTS)

    @property
    def results(self) -> int:
        return len(self.result_steps)


@dataclass(frozen=True, slots=True)
class Sibling:
    """A next step already known at a node; the model proposes a different one."""

    call: Call
    outcome: str = ""
    """Why the search backtracked from it; empty for a proposal that was not taken yet."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Request the next thought on a path; the reply is a `Thought`."""

    path: Path
    siblings: tuple[Sibling, ...] = ()
    proposal: bool = False
    """Whether the thought is one of several candidates and may never be executed."""


@dataclass(frozen=True, slots=True)
class CallTool:
    """Execute the calls of one thought in order, reads in parallel; the reply is their observations."""

    path: Path
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Rank:
    """Compare two thoughts on a path; the reply is the better one, or None if undecided."""

    path: Path
    first: Thought
    second: Thought


@dataclass(frozen=True, slots=True)
class Backtrack:
    """Report that a path failed and the search continues from `to`; has no reply."""

    path: Path
    to: Path
    reason: str


@dataclass(frozen=True, slots=True)
class DraftGraph:
    """Request a tool graph that continues a path; the reply is a `GraphDraft`, a `Thought` instead, or None."""

    path: Path
    fault: str = ""
    """The fault of the previous draft; empty for the first one."""
    unfinished: tuple[str, ...] = ()
    """Nodes of the graph that ran which failed, with reasons; finished nodes are kept."""


@dataclass(frozen=True, slots=True)
class GraphDraft:
    """A draft that the driver stores."""

    fault: str = ""
    """Why the graph cannot run; empty if it can."""


@dataclass(frozen=True, slots=True)
class RunGraph:
    """Run the latest draft, independent nodes in parallel; the reply is a `GraphResult`."""

    path: Path


@dataclass(frozen=True, slots=True)
class GraphResult:
    """The steps of a graph that ran."""

    steps: tuple[Step, ...] = ()
    """Required registrations, then the nodes in the order of the graph."""
    unfinished: tuple[str, ...] = ()
    """Failed nodes and the nodes skipped because of them, with reasons."""


Request = AskModel | CallTool | Rank | Backtrack | DraftGraph | RunGraph


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a strategy ended; `exhausted` means neither an answer nor a reason to give up.

    `limit` and `error` are the ends of a subagent that did all the work.
    """

    ending: Literal["answered", "gave_up", "exhausted", "limit", "error"]
    answer: str
    path: Path
    """The final path; without an answer, the path with the most results."""
    why: str = ""
    """Why the strategy is exhausted, if not because of the step limit."""
    cause: Event | None = None
    """The event of the limit or error; None if a subagent reached its step limit."""


Thinking = Generator[Request, Any, Outcome]
Strategy = Callable[[str, int], Thinking]
"""Takes the question and the step limit."""


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """A strategy that users select by name."""

    name: str
    strategy: Strategy
    about: str
    """Help text: one sentence."""
    searches: bool = False
    """Whether the strategy backtracks; backtracking undoes nothing."""
    parallel: bool = False
    """Whether the strategy runs tool graphs."""


def act(path: Path, thought: Thought) -> Generator[Request, Any, tuple[Step, ...]]:
    """Execute the calls of a thought and return their steps; the first step has the rationale."""
    if thought.call is None:
        return ()
    calls = (thought.call, *thought.more)
    observations: tuple[Observation, ...] = yield CallTool(path, calls)
    first, *further = zip(calls, observations, strict=True)
    return (Step(thought.rationale, *first, thought.state), *(Step("", *pair) for pair in further))


def same(first: Call, second: Call) -> bool:
    """Whether two calls have the same tool and arguments."""
    return first.name == second.name and dict(first.arguments) == dict(second.arguments)


def is_new(step: Step, path: Path) -> bool:
    """Whether a step after this path adds something: it ran, and repeats neither a call nor a failure."""
    observation = step.observation
    alike = (earlier for earlier in path.steps if earlier.observation.text == observation.text)
    return not observation.refused and not any(
        same(earlier.call, step.call) or not observation.ok for earlier in alike
    )


def ending(thought: Thought, path: Path) -> Outcome | None:
    """Return the outcome if a thought ends the path (`finish`, or text without a call), else None."""
    call = thought.call
    if call is None:
        return Outcome("answered", thought.rationale, path)
    if call.name != FINISH:
        return None
    if call.arguments.get("give_up"):
        reason = call.arguments.get("answer") or thought.rationale
        return Outcome("gave_up", str(reason), path)
    return Outcome("answered", str(call.arguments.get("answer", "")), path)
