"""What a mode is to the agent: it decides who thinks, and never sees how a call is carried out.

And what its next step may take of a model at most: bounds for which no tokenizer is loaded and nothing is sent.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ecoshell.budget.holds import CapState, Hold, price_unknown
from ecoshell.catalog.presentation import Presentation
from ecoshell.errors import PriceUnknown
from ecoshell.events import Emit
from ecoshell.messages import Attachment, Call, Message, ToolDocument
from ecoshell.models.base import Request, Traits
from ecoshell.models.metered import MeteredModel
from ecoshell.models.tokens import request_bound
from ecoshell.strategies.base import Path, Step, Thought, Tried


@dataclass(frozen=True, slots=True)
class View:
    """Everything a mode may look at when it thinks."""

    path: Path
    opening: str
    """The question as the model reads it: with names, and with documents where the presentation puts them there."""
    history: tuple[Message, ...]
    """Earlier turns of the session, as messages."""
    known: tuple[str, ...]
    """Names of all tools that may be registered or called."""
    registered: tuple[ToolDocument, ...]
    """Documents this path may call, in the order of registration."""
    presentation: Presentation
    large: bool = False
    """Whether only a shortlist of names is shown and `tool_search` is offered."""
    along: str = ""
    """What goes along with the question, which the opening holds too: attachments, and what commands put out."""
    attachments: tuple[Attachment, ...] = ()
    """The files among it that a program is to be tried on first."""
    contexts: tuple[str, ...] = ()
    """What questions of the history have at their head of where the agent works; small models are not told of it."""
    forbidden: frozenset[str] = frozenset()
    """Names that the plan does not allow now."""
    closed: bool = False
    """Whether no tool of the catalog may be used any more, so that only answering is left."""
    searching: bool = False
    """Whether giving up on a way leads to another one, so that `finish` is offered, which says so."""
    tried: tuple[Tried, ...] = ()
    """Next steps from here that are known already; the thought is to be another."""

    @property
    def array(self) -> tuple[ToolDocument, ...]:
        """The tool array of a request."""
        return self.presentation.array(self.registered, large=self.large, finish=self.searching)

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of tools that may be registered or called now."""
        return tuple(name for name in self.known if name not in self.forbidden)


@dataclass(frozen=True, slots=True)
class ForeseenCall:
    """A request that may be made, the model it would go to, and the role it would be made in."""

    request: Request
    model: MeteredModel
    role: str

    @property
    def traits(self) -> Traits:
        return self.model.traits


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The calls the next thought may take, for estimates: nothing in them is counted yet, or cut to fit."""

    steps: tuple[ForeseenCall, ...]
    """Each is reserved on its own."""
    conclusion: ForeseenCall | None = None
    """What is set aside beside them."""
    slack: int = 0
    """Tokens by which the conclusion's prompt may grow until it is asked for."""
    ending: tuple[ForeseenCall, ...] = ()
    """What a thought takes that answers at once; where that is not said, the last of the steps."""


@dataclass(frozen=True, slots=True)
class DraftTask:
    """What there is to know, beside the view, for whoever writes a parallel plan."""

    before: str = ""
    """The plan before this one, as it was written; empty for the first."""
    fault: str = ""
    """Why that one cannot be run."""
    unfinished: tuple[str, ...] = ()
    """What of it failed when it ran, and why."""
    finished: tuple[str, ...] = ()
    """Labels of its nodes that are done, and are not run again."""
    costs: str = ""
    """What tools cost, as a text; empty where nothing is told of it."""
    grammar: Callable[[], str] | None = None
    """Makes the grammar of the plans that can be run, in the form of numbers; may take a second."""


@dataclass(frozen=True, slots=True)
class FillTask:
    """A node of a parallel plan whose call is to be made."""

    label: str
    """As the plan names it: `read_file#2`."""
    document: ToolDocument
    plan: str
    """The whole plan, as it was written."""
    given: tuple[Step, ...] = ()
    """The steps it waits for; the view's path holds them too, and those before them."""
    use: int = 1
    uses: int = 1
    """Which it is of the nodes with its tool that wait for the same."""
    calls: tuple[Call, ...] = ()
    """What was called already for other nodes with its tool."""


class Mode(Protocol):
    """Who thinks: one model, or several in roles. Raises BudgetError and ModelError."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str:
        """The role that thinks each step."""
        ...

    @property
    def model(self) -> str:
        """The name of the model that leads."""
        ...

    @property
    def aside(self) -> Hold | None:
        """What is set aside at this moment."""
        ...

    def foresee(self, view: View) -> Foreseen:
        """What thinking on this view may ask, and of which models; counts nothing, so it loads nothing."""
        ...

    async def set_aside(self, view: View) -> None:
        """Hold the price of concluding from this view, in place of the hold before it."""
        ...

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next thought on the view's path."""
        ...

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        """The better of two thoughts on the view's path, `one` shown first; None when it cannot be told."""
        ...

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        """A parallel plan in the tool planning language, not looked at yet, or a thought where none is needed."""
        ...

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        """The call of one node; raises ModelBroken where none can be made."""
        ...

    async def conclude(self, view: View, emit: Emit) -> str:
        """The answer from what there is, without further calls, paid from what was set aside."""
        ...

    async def release(self) -> None:
        """Give back what was set aside and not used."""
        ...


@dataclass(frozen=True, slots=True)
class CostBound:
    """The most that will be reserved."""

    nano: int | None
    """None when the price is unknown."""
    tokens: int

    def __add__(self, other: "CostBound") -> "CostBound":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return CostBound(nano, self.tokens + other.tokens)

    def in_unit_of(self, cap: CapState) -> int | None:
        """What counts against this cap."""
        return self.nano if cap.unit == "usd" else self.tokens


NOTHING = CostBound(0, 0)


def of_step(foreseen: Foreseen) -> CostBound:
    """The largest of the calls that the next thought may take; a call that has to be repeated is a further one."""
    calls = [_of_call(call) for call in foreseen.steps]
    nano = [call.nano for call in calls if call.nano is not None]
    return CostBound(max(nano) if len(nano) == len(calls) else None, max(call.tokens for call in calls))


def of_conclusion(foreseen: Foreseen) -> CostBound:
    """What is set aside for the answer beside a step."""
    return NOTHING if foreseen.conclusion is None else _of_call(foreseen.conclusion, foreseen.slack)


def of_aside(foreseen: Foreseen) -> CostBound:
    """The same as it will be held: counted as the hold is, where that loads nothing. May block."""
    call = foreseen.conclusion
    if call is None or not call.model.loaded:
        return of_conclusion(foreseen)
    ask = call.model.reservation(call.request, call.role, foreseen.slack)
    return CostBound(ask.worst_nano, ask.prompt_tokens + ask.max_tokens)


def unpriced(foreseen: Foreseen, caps: Iterable[CapState]) -> PriceUnknown | None:
    """The refusal of a step one of whose calls nobody can price under a cap in dollars; None where it may be taken."""
    unknown = next((call.traits.name for call in foreseen.steps if call.traits.price is None), None)
    capped = next((cap for cap in caps if cap.unit == "usd"), None)
    return None if unknown is None or capped is None else price_unknown(unknown, capped)


def with_room(caps: Iterable[CapState], aside: Hold | None, wanted: CostBound) -> bool:
    """Whether every cap has room for this much once what is set aside now is given back."""
    needs = ((cap, wanted.in_unit_of(cap)) for cap in caps)
    return all(need is not None and need <= cap.limit - used(cap, aside) for cap, need in needs)


def used(cap: CapState, aside: Hold | None) -> int:
    """What is spent and held of a cap, without what is set aside now."""
    freed = 0 if aside is None else (aside.nano or 0) if cap.unit == "usd" else aside.tokens
    return cap.spent + cap.held - freed


def _of_call(call: ForeseenCall, slack: int = 0) -> CostBound:
    request, traits = call.request, call.traits
    prompt = request_bound(request, native_tools=traits.native_tools) + slack
    output = request.max_tokens if traits.max_output is None else min(request.max_tokens, traits.max_output)
    return CostBound(None if traits.price is None else traits.price.worst(prompt, output), prompt + output)
