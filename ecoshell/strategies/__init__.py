"""Strategies: in what order an agent thinks and acts, as generators without I/O; here is what they yield and get."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ecoshell.messages import FINISH, META_TOOLS, TOOL_CALL, TOOL_REGISTER, Call, Image, Observation, ProviderState

_NO_RESULTS = META_TOOLS - {TOOL_CALL}
"""Calls that only prepare others, or end the path."""
_NOT_REGISTERING = frozenset({"unknown", "invalid", "forbidden", "unregistered"})
"""Refusals of calls whose tool the provider's search may have loaded, and which do not register it."""
_LEAST_PATIENCE, _MOST_PATIENCE = 2, 6
_STEPS_PER_PATIENCE = 12


def stalled_after(max_steps: int) -> int:
    """Thoughts in a row without anything new after which a path ends; more where a turn has many steps."""
    return min(_MOST_PATIENCE, max(_LEAST_PATIENCE, max_steps // _STEPS_PER_PATIENCE))


FOUND_MOST = "the search is over, and this way found most"
"""Why a search without an answer goes back to its best path."""


@dataclass(frozen=True, slots=True)
class Thought:
    """What a mode came up with: a rationale and, unless it only spoke, one call or several."""

    rationale: str
    call: Call | None = None
    by: str = field(default="", compare=False)
    """The role that made the call or wrote the answer; empty is the one that thinks each step."""
    told: bool = field(default=False, compare=False)
    """Whether the rationale was told of while the rest came about."""
    more: tuple[Call, ...] = ()
    """Further calls of the same reply, to be made after the first."""
    state: ProviderState | None = field(default=None, compare=False, repr=False)
    """The reply as its provider sent it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a trajectory: rationale, call and observation."""

    rationale: str
    call: Call
    observation: Observation
    state: ProviderState | None = field(default=None, compare=False, repr=False)
    """On the first call of a reply: the reply as its provider sent it."""


@dataclass(frozen=True, slots=True)
class Path:
    """The trajectory from the question to here; branches of a search share prefixes, never each other's steps."""

    question: str
    steps: tuple[Step, ...] = ()
    images: tuple[Image, ...] = field(default=(), compare=False, repr=False)
    """What goes along with the question; the driver fills it in."""

    def then(self, *steps: Step) -> "Path":
        """The path these steps further."""
        return replace(self, steps=(*self.steps, *steps))

    @property
    def registered(self) -> tuple[str, ...]:
        """Names this path itself registered, in order (SPEC §1: a branch sees what its own path registered)."""
        names = (
            str(step.call.arguments.get("tool_name"))
            for step in self.steps
            if step.call.name == TOOL_REGISTER and step.observation.ok
        )
        return tuple(dict.fromkeys(names))

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the tools it called, without calls that were refused before the tool was registered."""
        names = (step.call.name for step in self.steps if step.observation.refused not in _NOT_REGISTERING)
        return tuple(dict.fromkeys(names))

    @property
    def found(self) -> tuple[Step, ...]:
        """Those of its steps that gave a result: registrations, searches for tools, repeats and failures do not."""
        ran = (step for step in self.steps if step.observation.ok and not step.observation.refused)
        return tuple(step for step in ran if step.call.name not in _NO_RESULTS)

    @property
    def results(self) -> int:
        """How many of its steps gave a result."""
        return len(self.found)


@dataclass(frozen=True, slots=True)
class Tried:
    """A next step that is known at a node already, so that the model proposes another."""

    call: Call
    outcome: str = ""
    """Why the search came back from it; empty when it was proposed and not taken yet."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Asks for the next thought on this path; the reply is a `Thought`."""

    path: Path
    tried: tuple[Tried, ...] = ()
    """The siblings the thought would have."""
    proposal: bool = False
    """Whether the thought is one of several to choose from, so that it may never be acted upon."""


@dataclass(frozen=True, slots=True)
class CallTool:
    """Asks for the calls of one thought to be made, in order, reads side by side; the reply is their observations."""

    path: Path
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Rank:
    """Asks which of two thoughts on this path is better; the reply is that one, or None when it cannot be told."""

    path: Path
    one: Thought
    other: Thought


@dataclass(frozen=True, slots=True)
class Backtrack:
    """Says that this path failed and the search goes on from `to`; there is no reply."""

    path: Path
    to: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Asks for a parallel plan from here; the reply is `Drafted`, a `Thought` in its place, or None for neither."""

    path: Path
    fault: str = ""
    """What is wrong with the plan that came before this request; empty when none did."""
    unfinished: tuple[str, ...] = ()
    """What of the plan that ran failed, and why; what was finished of it is kept."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A plan is written; the driver keeps it."""

    fault: str = ""
    """Why it cannot be run; empty when it can."""


@dataclass(frozen=True, slots=True)
class RunParallel:
    """Asks for the plan drafted last to be run from here, its branches side by side; the reply is `Gathered`."""

    path: Path


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a plan came to."""

    steps: tuple[Step, ...] = ()
    """In the order of the plan, after the registrations it took."""
    unfinished: tuple[str, ...] = ()
    """What failed, and what was skipped for it, each with its reason."""


Request = AskModel | CallTool | Rank | Backtrack | Draft | RunParallel


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a strategy ended; `exhausted` means that neither an answer nor a reason to give up was found."""

    ending: Literal["answered", "gave_up", "exhausted"]
    answer: str
    path: Path
    """The path that led there; without an answer, the one with the most results."""
    why: str = ""
    """Why it is exhausted, where that is not the step limit."""


Thinking = Generator[Request, Any, Outcome]
Strategy = Callable[[str, int], Thinking]
"""Takes the question and the step limit."""


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """A strategy as one chooses it."""

    name: str
    strategy: Strategy
    about: str
    """What it does, in a sentence."""
    searches: bool = False
    """Whether it goes back and tries another way, which undoes nothing."""
    branches: bool = False
    """Whether it runs calls side by side."""


def think(path: Path, tried: tuple[Tried, ...] = (), *, proposal: bool = False) -> Generator[Request, Any, Thought]:
    """Yield for the next thought, with the reply's type."""
    return (yield AskModel(path, tried, proposal))


def act(path: Path, thought: Thought) -> Generator[Request, Any, tuple[Step, ...]]:
    """Yield for a thought's calls; gives the steps they become, of which the first has the rationale."""
    if thought.call is None:
        return ()
    calls = (thought.call, *thought.more)
    observations: tuple[Observation, ...] = yield CallTool(path, calls)
    first, *others = zip(calls, observations, strict=True)
    return (Step(thought.rationale, *first, thought.state), *(Step("", *other) for other in others))


def same(one: Call, other: Call) -> bool:
    """Whether two calls do the same."""
    return one.name == other.name and dict(one.arguments) == dict(other.arguments)


def is_new(step: Step, path: Path) -> bool:
    """Whether a step that follows this path brings something: it was made, and is not a known failure or call."""
    seen = step.observation
    alike = (one for one in path.steps if one.observation.text == seen.text)
    return not seen.refused and not any(same(one.call, step.call) or not seen.ok for one in alike)


def ending(thought: Thought, path: Path) -> Outcome | None:
    """The outcome a thought brings about, if it ends the path: `finish`, or text without a call."""
    call = thought.call
    if call is None:
        return Outcome("answered", thought.rationale, path)
    if call.name != FINISH:
        return None
    if call.arguments.get("give_up"):
        reason = call.arguments.get("answer") or thought.rationale
        return Outcome("gave_up", str(reason), path)
    return Outcome("answered", str(call.arguments.get("answer", "")), path)
