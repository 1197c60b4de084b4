"""Events of the agent's work: its task list, its subagents, written plans, and quotes with their bills."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Literal

from ecoshell.budget import NANO, Unit, counted
from ecoshell.events.base import Event
from ecoshell.events.budget import Consumption
from ecoshell.events.figures import duration, span_text, usd_text
from ecoshell.events.lines import Line
from ecoshell.events.tools import MAX_RESULT_CHARS
from ecoshell.events.turn import ENDINGS, Status
from ecoshell.messages import Usage, visible_line

TodoState = Literal["pending", "in_progress", "done"]
TODO_MARKS: dict[TodoState, str] = {"done": "[x]", "in_progress": "[>]", "pending": "[ ]"}
BEYOND = "it is expected to cost more than the"
"""Beginning of the reason of a quote that does not fit."""
_NODES = {"graph": "node", "tasks": "subagent", "plan": "part"}


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One piece of work in the task list."""

    text: str
    state: TodoState = "pending"


@dataclass(frozen=True, slots=True)
class TodoChanged(Event):
    """The agent replaced its task list."""

    type: ClassVar[str] = "todo_changed"
    items: tuple[TodoItem, ...]

    def render(self) -> Line:
        return Line("info", "·", todo_headline(self.items))


def todo_headline(items: Sequence[TodoItem]) -> str:
    """How much of the task list is done, and what is in progress: `tasks: 1 of 3 done · write the test`."""
    now = [visible_line(item.text) for item in items if item.state == "in_progress"]
    done = sum(item.state == "done" for item in items)
    return " · ".join((f"tasks: {done} of {len(items)} done", *now))


def todo_lines(items: Sequence[TodoItem]) -> Iterator[str]:
    """The task list as plain text, one line per item: `[x] read the code`."""
    return (f"{TODO_MARKS[item.state]} {item.text}" for item in items)


def is_done(items: Sequence[TodoItem]) -> bool:
    """Whether nothing is left to do; also for an empty list."""
    return all(item.state == "done" for item in items)


@dataclass(frozen=True, slots=True)
class SubagentStarted(Event):
    """A subagent started to work; its own events are those of its session."""

    type: ClassVar[str] = "subagent_started"
    id: str
    """The call of `task` that started it."""
    name: str
    """The name of its definition; `subagent` without one."""
    session: str
    """The ID of its session, which can be resumed and exported."""
    model: str
    share_usd: str | None
    """Most dollars that it may spend; null without a share in dollars."""
    share: str = ""
    """The share in words, such as `$0.05` or `20,000 tokens`; empty without one."""

    @property
    def allowance(self) -> str:
        """`at most $0.05`, or empty."""
        return f"at most {self.share}" if self.share else ""

    def render(self) -> Line:
        detail = " · ".join(filter(None, (self.model, self.allowance)))
        return Line("info", "»", f"{self.name} started", detail)


@dataclass(frozen=True, slots=True)
class SubagentProgressed(Event):
    """A subagent reserved or paid for a model call, or called a tool; has the amounts so far, and is not stored."""

    type: ClassVar[str] = "subagent_progressed"
    id: str
    name: str
    session: str
    model: str
    doing: str
    """The tool that it called last; empty before the first."""
    share: str
    spent: str
    """What it used in the units of its share, in words."""
    spent_nano: int | None
    """None if a part of the price is unknown."""
    usage: Usage
    calls: int
    """Model calls, including those of its subagents."""
    seconds: float
    estimate: Usage | None = None
    """The usage with calls without reported usage as estimated by a tokenizer; None if all calls reported theirs."""
    estimate_nano: int | None = None
    """The price with the estimated calls; None if it equals `spent_nano`."""

    @property
    def consumption(self) -> Consumption:
        """Price and usage so far, for display."""
        return Consumption.of(self.spent_nano, self.usage, self.estimate, self.estimate_nano)

    @property
    def state(self) -> str:
        """What it used of its share: `$0.0031 of $0.05`."""
        return f"{self.spent} of {self.share}" if self.share else self.spent

    def render(self) -> None:
        """Screens show its state in the line of the subagent."""


@dataclass(frozen=True, slots=True)
class SubagentFinished(Event):
    """A subagent ended; what it did not spend of its share is available again."""

    type: ClassVar[str] = "subagent_finished"
    id: str
    name: str
    session: str
    status: Status
    share_usd: str | None
    spent_usd: str | None
    """Decimal dollars, including its subagents; null if a part of the price is unknown."""
    share: str = ""
    spent: str = ""
    """What it used in the units of its share, in words."""
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    calls: int = 0
    """Model calls, including those of its subagents."""
    changed_by: tuple[str, ...] = ()
    """The tools with lasting effects that it and its subagents ran."""
    estimate: Usage | None = None
    """The usage with calls without reported usage as estimated by a tokenizer; None if all calls reported theirs."""
    estimate_nano: int | None = None
    """The price with the estimated calls; None if it equals `spent_usd`."""

    @property
    def consumption(self) -> Consumption:
        """Price and usage of the subagent, for display."""
        return Consumption.of(self.spent_nano, self.usage, self.estimate, self.estimate_nano)

    @property
    def spent_nano(self) -> int | None:
        """`spent_usd` in nano-dollars."""
        return None if self.spent_usd is None else int(Decimal(self.spent_usd) * NANO)

    @property
    def outcome(self) -> str:
        """How it ended, and what it used of its share: `answered · $0.0031 of $0.05`."""
        share = f" of {self.share}" if self.share else ""
        return f"{ENDINGS[self.status]} · {self.spent}{share}"

    def render(self) -> Line:
        detail = f"{duration(self.seconds)} · session {self.session}"
        return Line("info", "»", f"{self.name} {self.outcome}", detail)


@dataclass(frozen=True, slots=True)
class SubagentLimited(Event):
    """A limit ended the subagent of `/task` and with it the turn; the user is not asked."""

    type: ClassVar[str] = "subagent_limited"
    name: str
    scope: str
    unit: Unit
    need: int
    left: int
    message: str

    def render(self) -> Line:
        return Line("warning", "■", f"{self.name}: limit reached", self.message)


@dataclass(frozen=True, slots=True)
class AdvisorReplied(Event):
    """The advisor answered the session's model."""

    type: ClassVar[str] = "advisor_replied"
    question: str
    advice: str
    model: str
    spent_usd: str | None
    """Decimal dollars; None if the price is unknown."""
    automatic: bool = False
    """Whether it was asked because the model was stuck; otherwise the model asked."""

    def render(self) -> Line:
        price = "an unknown price" if self.spent_usd is None else usd_text(float(self.spent_usd))
        why = ", because the last calls gave no result" if self.automatic else ""
        text = f"advice from {self.model} for {price}{why}"
        return Line("info", "◊", text, visible_line(self.advice, MAX_RESULT_CHARS))


@dataclass(frozen=True, slots=True)
class AdviceFollowed(Event):
    """The first call after an advice, and the last one before it."""

    type: ClassVar[str] = "advice_followed"
    before: str
    call: str

    def render(self) -> Line:
        previous, call = (
            visible_line(text, MAX_RESULT_CHARS // 2) for text in (self.before, self.call)
        )
        change = "the same call again" if previous == call else f"{call} instead of {previous}"
        return Line("info", "→", f"after the advice: {change}")


@dataclass(frozen=True, slots=True)
class PlanWritten(Event):
    """The answer of a turn in plan mode; `/plan accept` carries it out."""

    type: ClassVar[str] = "plan_written"
    text: str
    steps: int
    """Numbered or bulleted steps; at least 1."""

    def render(self) -> Line:
        text = f"plan of {counted(self.steps, 'step')}"
        return Line("info", "≡", text, "/plan accept carries it out")


@dataclass(frozen=True, slots=True)
class Quote(Event):
    """What planned work is expected to cost and to take, with bounds that hold 90 % of the bills; unknown is None."""

    type: ClassVar[str] = "quote"
    id: str
    """Identifies the work in its session; the bill carries the same."""
    kind: Literal["graph", "tasks", "plan"]
    """A tool graph, subagents of one reply, or a written plan."""
    nodes: int
    low_usd: float | None
    expected_usd: float | None
    high_usd: float | None
    low_seconds: float | None
    seconds: float | None
    high_seconds: float | None
    samples: int = 0
    """Past runs behind the least known node; 0 if the quote rests on a prior."""
    labels: tuple[str, ...] = ()
    """The nodes, any of which the user may omit."""
    reason: str = ""
    """Why it needs approval, or why it is refused; empty if it starts at once."""

    @property
    def is_beyond(self) -> bool:
        """Whether the expected price or time does not fit under a cap."""
        return self.reason.startswith(BEYOND)

    @property
    def high_nano(self) -> int | None:
        """The upper bound of the price in nano-dollars."""
        return None if self.high_usd is None else round(self.high_usd * NANO)

    def render(self) -> Line:
        basis = "from experience" if self.samples else "estimated, without experience"
        text = f"quote for {counted(self.nodes, _NODES[self.kind])}: {quote_text(self)} ({basis})"
        return Line("info", "$", text, self.reason)


def quote_text(event: Quote) -> str:
    """Price and time of a quote with their bounds: `$0.01 to $0.04, 12 s to 40 s`."""
    price = span_text(event.low_usd, event.high_usd, usd_text) or "price unknown"
    time = span_text(event.low_seconds, event.high_seconds, duration) or "time unknown"
    return f"{price}, {time}"


@dataclass(frozen=True, slots=True)
class QuoteChosen(Event):
    """The decision on quoted work."""

    type: ClassVar[str] = "quote_chosen"
    id: str
    choice: Literal["start", "trim", "refuse"]
    by: Literal["person", "cap"]
    """`cap` if no user could be asked and the expected price does not fit."""
    without: tuple[str, ...] = ()
    """Nodes that the user omits, and those that depend on them."""

    def render(self) -> Line | None:
        if self.choice == "start":
            return None
        if self.choice == "trim":
            return Line("info", "→", f"without {', '.join(self.without)}")
        why = ": the expected price does not fit" if self.by == "cap" else ""
        return Line("info", "→", f"not started{why}")


@dataclass(frozen=True, slots=True)
class Bill(Event):
    """What quoted work has cost and taken; a plan whose turn failed or was stopped has none."""

    type: ClassVar[str] = "bill"
    id: str
    kind: Literal["graph", "tasks", "plan"]
    spent_usd: str | None
    """None if a part is unknown."""
    seconds: float
    low_usd: float | None = None
    high_usd: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    """The bounds of the quote."""

    @property
    def is_within(self) -> bool | None:
        """Whether the quoted bounds hold the price; None if one is unknown."""
        if self.spent_usd is None or self.low_usd is None or self.high_usd is None:
            return None
        return self.low_usd <= float(self.spent_usd) <= self.high_usd

    def render(self) -> Line:
        price = "cost unknown" if self.spent_usd is None else usd_text(float(self.spent_usd))
        price_span = span_text(self.low_usd, self.high_usd, usd_text)
        time_span = span_text(self.low_seconds, self.high_seconds, duration)
        parts = ((price, price_span), (duration(self.seconds), time_span))
        texts = (text if span is None else f"{text} (quoted {span})" for text, span in parts)
        return Line("info", "$", f"bill: {', '.join(texts)}")
