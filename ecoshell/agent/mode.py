"""What a mode is to the agent: what it returns, and the expected and the largest cost of its requests."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ecoshell.agent.view import View
from ecoshell.budget import (
    MIN_CALL_MS,
    Account,
    Ask,
    CapState,
    Hold,
    price_unknown,
    reserved_output,
)
from ecoshell.errors import BudgetError, PriceUnknown
from ecoshell.events import Emit
from ecoshell.messages import Call, ToolSchema
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Step, Thought


@dataclass(frozen=True, slots=True)
class CallForecast:
    """A request that may be made, with its model and role."""

    request: Request
    model: MeteredModel
    role: str


@dataclass(frozen=True, slots=True)
class StepForecast:
    """The model calls that the next step may take, for estimates: not counted yet, and not fitted to a context."""

    steps: tuple[CallForecast, ...]
    """Each has its own reservation."""
    conclusion: CallForecast | None = None
    """The answer, reserved in addition."""
    slack: int = 0
    """Tokens by which the conclusion's prompt may still grow."""
    ending: tuple[CallForecast, ...] = ()
    """The calls of a step that answers at once; if empty, the last of `steps`."""


@dataclass(frozen=True, slots=True)
class DraftTask:
    """What the author of a tool graph needs in addition to the view."""

    previous: str = ""
    """The text of the previous graph; empty for the first."""
    unfinished: tuple[str, ...] = ()
    """Nodes of the previous graph that failed, and why."""
    finished: tuple[str, ...] = ()
    """Labels of its finished nodes, which do not run again."""
    faulty: str = ""
    """The previous draft, if it cannot be run."""
    fault: str = ""
    costs: str = ""
    grammar: Callable[[], str] | None = None
    """Makes the grammar of valid graphs, in the form of numbers; may take a second."""


@dataclass(frozen=True, slots=True)
class FillTask:
    """A node of a tool graph that needs its call."""

    label: str
    """As in the graph: `read_file#2`."""
    schema: ToolSchema
    plan: str
    inputs: tuple[Step, ...] = ()
    """The steps of the node's inputs; the view's path also has the steps before them."""
    use: int = 1
    """Its position among the nodes of the same tool with the same inputs."""
    uses: int = 1
    """The number of these nodes."""
    calls: tuple[Call, ...] = ()
    """Calls of other nodes of the same tool."""


class Mode(Protocol):
    """One model, or several in roles. Methods raise BudgetError and ModelError."""

    name: str
    role: str
    """The role that produces each step."""
    model: str
    answer_hold: Hold | None
    by_program: bool
    """Whether the model writes one program for a request about files."""
    finish: str
    """Finish reason of the last reply, in OpenAI's terms; empty if unknown."""

    def forecast(self, view: View) -> StepForecast:
        """The requests that the next step may make; counts no tokens, so it loads no model."""
        ...

    async def hold_answer(self, view: View) -> None:
        """Reserve the price of answering from this view, and release the previous reservation."""
        ...

    async def think(self, view: View, emit: Emit) -> Thought: ...

    async def prefer(
        self, view: View, first: Thought, second: Thought, emit: Emit
    ) -> Thought | None:
        """The better of two thoughts; None if undecided."""
        ...

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        """A tool graph in the tool planning language, not checked yet, or a thought if no graph is needed."""
        ...

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        """The call of one node; raises ModelBroken if none can be made."""
        ...

    async def conclude(self, view: View, emit: Emit) -> str:
        """The answer from the results so far, paid from the reservation."""
        ...

    async def release(self) -> None: ...


USUAL_OUTPUT = 2_048
"""Output tokens of a reply in a proposed cap; the models' own limits are much larger."""
_LARGE_PART = 4
"""The divisor of what a cap has left, above which a step's bound is large."""


@dataclass(frozen=True, slots=True)
class CostBound:
    """The largest amount that can be reserved."""

    nano: int | None
    """None if the price is unknown."""
    tokens: int

    def __add__(self, other: "CostBound") -> "CostBound":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return CostBound(nano, self.tokens + other.tokens)

    def in_unit_of(self, cap: CapState) -> int | None:
        """The amount that counts against this cap; of working time, the least that a call needs."""
        return {"usd": self.nano, "tokens": self.tokens, "ms": MIN_CALL_MS if self.tokens else 0}[
            cap.unit
        ]


NOTHING = CostBound(0, 0)


def of_step(forecast: StepForecast, caps: Sequence[CapState] = ()) -> CostBound:
    """The largest of the step's calls under these caps; a call that has to be repeated is not included."""
    bounds = [_of_call(call, caps=caps) for call in forecast.steps]
    prices = [bound.nano for bound in bounds if bound.nano is not None]
    nano = max(prices) if len(prices) == len(bounds) else None
    return CostBound(nano, max(bound.tokens for bound in bounds))


async def count_prompts(forecast: StepForecast, caps: Iterable[CapState]) -> None:
    """Let providers count the prompts of a step whose bound takes a large part of what a cap has left.

    Bounds without a count are several times what is billed, which a small cap cannot hold.
    """
    caps = [cap for cap in caps if cap.unit != "ms"]
    for call in forecast.steps if caps else ():
        bound = await asyncio.to_thread(_of_call, call)
        rests = ((bound.in_unit_of(cap), cap.limit - cap.spent - cap.held) for cap in caps)
        if any(need is not None and need * _LARGE_PART > rest for need, rest in rests):
            await call.model.count_prompt(call.request)


def of_conclusion(forecast: StepForecast, *, counted: bool = False) -> CostBound:
    """The reservation for the answer.

    With `counted`, tokens are counted as for the real reservation if the model is loaded; this may block.
    """
    call = forecast.conclusion
    if call is None:
        return NOTHING
    return _of_call(call, forecast.slack, counted=counted and call.model.loaded)


def _of_call(
    call: CallForecast, slack: int = 0, *, counted: bool = False, caps: Sequence[CapState] = ()
) -> CostBound:
    request, traits = call.request, call.model.traits
    if counted:
        ask = call.model.reservation(request, call.role, slack)
    else:
        output = min(request.max_tokens, traits.max_output or request.max_tokens)
        account = Account("", 0, call.role, traits.name, request.purpose)
        ask = Ask(
            traits.price,
            call.model.bound(request) + slack,
            output,
            account,
            request.min_tokens,
            request.repeatable,
        )
    try:
        output = reserved_output(ask, caps)
    except BudgetError:  # The call will be refused: this is the least that it needs.
        output = ask.floor
    nano = None if traits.price is None else traits.price.worst(ask.prompt_tokens, output)
    return CostBound(nano, ask.prompt_tokens + output)


def unpriced(forecast: StepForecast, caps: Iterable[CapState]) -> PriceUnknown | None:
    """The error for a step with a model of unknown price under a cap in dollars; None if the step is allowed."""
    models = (call.model.traits for call in forecast.steps)
    name = next((traits.name for traits in models if traits.price is None), None)
    cap = next((cap for cap in caps if cap.unit == "usd" and cap.over(name or "")), None)
    return None if name is None or cap is None else price_unknown(name, cap)


def with_room(caps: Iterable[CapState], answer_hold: Hold | None, bound: CostBound) -> bool:
    """Whether every cap has room for this amount once the reservation for the answer is released."""
    rests = ((bound.in_unit_of(cap), cap.limit - used(cap, answer_hold)) for cap in caps)
    return all(need is not None and need <= rest for need, rest in rests)


def used(cap: CapState, answer_hold: Hold | None) -> int:
    """The spent and reserved part of a cap, without the reservation for the answer."""
    return cap.spent + cap.held - (answer_hold.amount(cap.unit) if answer_hold else 0)
