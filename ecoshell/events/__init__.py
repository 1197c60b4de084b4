"""Everything that happens in a turn, as small frozen values; the core emits them and every interface reads them.

Amounts of money are whole nano-dollars and end in `_nano`; tokens are whole numbers; times are seconds.
`to_json` and `from_json` are how they are kept and sent.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Literal, cast, get_args

from ecoshell.budget import CapState, Unit
from ecoshell.errors import EcoshellError
from ecoshell.messages import Attachment, Effect, Image, Usage


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened; `type` names it in JSON."""

    type: ClassVar[str] = "event"
    __pydantic_config__: ClassVar[Mapping[str, bool]] = {"use_attribute_docstrings": True}
    """Has pydantic take the descriptions of fields from the docstrings below them, where it makes a schema."""


Emit = Callable[[Event], None]
"""Takes an event at once; ordering is the order of the calls."""


@dataclass(frozen=True, slots=True)
class BudgetHeld(Event):
    """The worst case of the next model call is reserved; `held_nano` is None when the price is unknown."""

    type: ClassVar[str] = "budget_held"
    entry: int
    role: str
    model: str
    held_nano: int | None
    held_tokens: int
    max_tokens: int
    clamped: bool
    """Whether `max_tokens` was lowered to what is left."""


@dataclass(frozen=True, slots=True)
class BudgetSettled(Event):
    """A model call is paid; without reported usage the whole reservation counts; None is an unknown price."""

    type: ClassVar[str] = "budget_settled"
    entry: int
    role: str
    model: str
    spent_nano: int | None
    usage: Usage
    reported: bool
    seconds: float
    overrun_nano: int = 0
    estimate: Usage | None = None
    """Where no usage was reported: what a tokenizer counts in what was sent and received, for people to see."""
    estimate_nano: int | None = None
    """The price of that; None where it is unknown, and where it is no other than what counts."""
    why: str = ""
    """Why no usage was reported: `the call was stopped`."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What calls took as people are shown it: one that reported no usage counts as it is estimated, not as reserved."""

    nano: int | None = 0
    """None once a part of it is unknown."""
    usage: Usage = field(default_factory=Usage)
    estimated: bool = False
    """Whether a part of the usage is an estimate."""
    estimated_nano: bool = False
    """Whether a part of the price is."""

    def plus(self, call: BudgetSettled) -> "Taken":
        """The same with one more call."""
        nano = call.spent_nano if call.estimate_nano is None else call.estimate_nano
        return Taken(
            nano=None if self.nano is None or nano is None else self.nano + nano,
            usage=self.usage + (call.estimate or call.usage),
            estimated=self.estimated or call.estimate is not None,
            estimated_nano=self.estimated_nano or call.estimate_nano is not None,
        )

    def paid(self, nano: int) -> "Taken":
        """The same with what a tool has cost."""
        return self if self.nano is None else replace(self, nano=self.nano + nano)


@dataclass(frozen=True, slots=True)
class BudgetChanged(Event):
    """The caps as they stand now."""

    type: ClassVar[str] = "budget_changed"
    caps: tuple[CapState, ...]


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """Another model to go on with, and what the step that waits could cost there."""

    name: str
    local: bool
    most_nano: int | None
    """The worst case in nano-dollars; None when the price is unknown."""
    most_tokens: int
    fits: bool
    """Whether every cap has room for it."""


@dataclass(frozen=True, slots=True)
class LimitHit(Event):
    """The next call could pass a cap; the turn waits for a choice, or answers from what there is."""

    type: ClassVar[str] = "limit_hit"
    scope: str
    unit: Unit
    need: int
    left: int
    message: str
    offers: tuple[ModelOffer, ...] = ()
    """Cheaper and local models, the best first."""
    enough: int = 0
    """A cap that leaves room for the step at its longest and for the answer, in the cap's unit; 0 is not known."""


@dataclass(frozen=True, slots=True)
class LimitChosen(Event):
    """What was chosen at a limit."""

    type: ClassVar[str] = "limit_chosen"
    choice: str


@dataclass(frozen=True, slots=True)
class CostWanted(Event):
    """The next step may cost more than the person wants to spend unasked; the turn waits for a word."""

    type: ClassVar[str] = "cost_wanted"
    role: str
    model: str
    low_nano: int
    """A step that finds its whole prompt cached and answers shortly, in SHORT_ANSWER tokens (agent/approval)."""
    high_nano: int
    """The worst case, which is what will be reserved."""
    threshold_nano: int
    offers: tuple[ModelOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class CostChosen(Event):
    """What was chosen before an expensive step."""

    type: ClassVar[str] = "cost_chosen"
    choice: str


Status = Literal["answered", "limit", "gave_up", "error", "interrupted"]


@dataclass(frozen=True, slots=True)
class TurnStarted(Event):
    """A question is on its way."""

    type: ClassVar[str] = "turn_started"
    turn: int
    question: str
    model: str
    mode: str
    strategy: str
    attachments: tuple[Attachment, ...] = ()
    """What goes along with the question: mentioned files and large pastes."""
    copies: str = ""
    """The name of the copies /undo restores files from; empty in sessions of old versions, where the number is it."""
    session_model: str = ""
    """The model of every role that names none; empty in sessions of old versions."""
    roles: tuple[str | None, ...] = ()
    """The models that roles of the mode umi have of their own, in the order of ROLES."""


@dataclass(frozen=True, slots=True)
class ModeChosen(Event):
    """Who thinks from here on in a turn whose mode is `auto`, and why."""

    type: ClassVar[str] = "mode_chosen"
    mode: str
    model: str
    why: str
    after: str = ""
    """The mode that has given up in this turn; empty before the first step."""


@dataclass(frozen=True, slots=True)
class ToolsOffered(Event):
    """What the model knows as the turn starts: how many names, which schemas up front, and why."""

    type: ClassVar[str] = "tools_offered"
    names: tuple[str, ...]
    upfront: tuple[str, ...]
    presentation: str
    context_tokens: int
    """Tokens the names and documents take now."""
    everything_tokens: int
    """Tokens every document together would take."""
    exact: bool
    """Whether the counts come from the model's own tokenizer."""
    why: str
    listing: str = ""
    """The text that stands before the question: names and documents the model was not told before."""
    advice: str = ""
    """What stands after it: what the plan says of costs and of what may not be used."""
    budget: str = ""
    """The line after the question that says what is left of the budget."""


@dataclass(frozen=True, slots=True)
class ContextPart:
    """Something the model is told of where it works, or would have been."""

    name: Literal["user", "project", "facts"]
    """`AGENTS.md` of the user's settings folder, that of the workspace, or what was found out of the workspace."""
    tokens: int
    """In the context; 0 for what is not told."""
    state: Literal["told", "untrusted", "unreadable"] = "told"
    cut: bool = False
    """Whether only the beginning of a file is told."""


@dataclass(frozen=True, slots=True)
class ContextTold(Event):
    """What stands at the head of a session's first question, and again after it was compacted."""

    type: ClassVar[str] = "context_told"
    text: str
    """As the model reads it, so that a resumed session sends the same bytes."""
    parts: tuple[ContextPart, ...]
    exact: bool
    """Whether the counts come from the model's own tokenizer."""
    workspace: str


@dataclass(frozen=True, slots=True)
class TrustWanted(Event):
    """The workspace's `AGENTS.md` waits for a person's word before a model is told of it."""

    type: ClassVar[str] = "trust_wanted"
    file: str
    text: str
    """As the model would read it."""
    changed: bool
    """Whether another content of the file was asked about before."""


@dataclass(frozen=True, slots=True)
class TrustGiven(Event):
    """What became of that."""

    type: ClassVar[str] = "trust_given"
    decision: Literal["yes", "no", "later"]
    """`yes` and `no` stand until the file changes; `later` for now."""
    by: Literal["person", "nobody"]


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """A model is asked for its next thought."""

    type: ClassVar[str] = "step_started"
    step: int
    role: str
    model: str


@dataclass(frozen=True, slots=True)
class TextArrived(Event):
    """A piece of streamed text; `channel` tells a thought from the answer, and what a model reasons before either."""

    type: ClassVar[str] = "text_arrived"
    text: str
    channel: Literal["thought", "answer", "reasoning"]
    role: str
    node: str = ""
    """Of a parallel plan, whose texts arrive side by side; empty for a text that belongs to none."""


@dataclass(frozen=True, slots=True)
class Reasoned(Event):
    """What a model reasoned before a reply, whole; it is shown folded, and no model is told of it."""

    type: ClassVar[str] = "reasoned"
    text: str
    role: str
    tokens: int | None = None
    """None where nobody counted them; they are part of the reply's output, and priced with it."""


@dataclass(frozen=True, slots=True)
class ModelReplied(Event):
    """A model's reply is complete."""

    type: ClassVar[str] = "model_replied"
    group: str
    """Identifies the reply; its calls carry the same."""
    role: str
    model: str
    finish: str
    """Why the model stopped: `stop`, `tool_calls`, `length`, `content_filter`; empty if the provider did not say."""
    calls: int = 0
    """How many tool calls it made."""
    reasoning_tokens: int | None = None
    """Reported by the provider; part of the output tokens."""
    family: str = ""
    """The provider family that receives `message` again."""
    message: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The reply in litellm's form, with the provider's own fields (thinking blocks, signatures, call IDs)."""


@dataclass(frozen=True, slots=True)
class Rationale(Event):
    """A finished thought, whole."""

    type: ClassVar[str] = "rationale"
    text: str
    role: str


@dataclass(frozen=True, slots=True)
class StepProposed(Event):
    """A next step that is compared with another before either is taken; the one that is taken is told again."""

    type: ClassVar[str] = "step_proposed"
    rationale: str
    step: str
    """The call as a person reads it, `answer` or `give up`."""
    role: str


@dataclass(frozen=True, slots=True)
class BranchLeft(Event):
    """A search goes on from another path; what was done on the one it leaves stays done."""

    type: ClassVar[str] = "branch_left"
    path: tuple[str, ...]
    """The ids of the calls that lead to where it goes on, the first one first; empty at the beginning."""
    left: int
    """How many steps are not followed any further."""
    reason: str
    unregistered: tuple[str, ...] = ()
    """Tools whose documents only the left steps had registered."""


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """Something the person should know that stops nothing."""

    type: ClassVar[str] = "notice"
    text: str


@dataclass(frozen=True, slots=True)
class Answer(Event):
    """The answer, whole; `partial` when a limit ended the search for more."""

    type: ClassVar[str] = "answer"
    text: str
    partial: bool = False
    role: str = ""
    """Who wrote it; empty where it is quoted at a limit, and in sessions of old versions."""


@dataclass(frozen=True, slots=True)
class ErrorHappened(Event):
    """What went wrong, what was kept, and what to do."""

    type: ClassVar[str] = "error"
    kind: str
    message: str
    kept: str = ""
    fix: str = ""

    @classmethod
    def of(cls, error: Exception, kept: str = "The session is kept.") -> "ErrorHappened":
        """The event that tells of an error; `kept` is said of one that nobody expected."""
        kind = type(error).__name__
        if isinstance(error, EcoshellError):
            return cls(kind, error.message, error.kept, error.fix)
        return cls(kind, f"Something unexpected happened: {str(error) or kind}", kept)


@dataclass(frozen=True, slots=True)
class TurnFinished(Event):
    """The last event of every turn."""

    type: ClassVar[str] = "turn_finished"
    turn: int
    status: Status
    answer: str
    spent_nano: int | None
    """None when a part of it is unknown."""
    usage: Usage
    steps: int
    registered: tuple[str, ...]
    seconds: float
    saved_tokens: int = 0
    """Input tokens not sent because documents were not registered, counted over the turn's steps."""
    estimate: Usage | None = None
    """The usage with calls that reported none as a tokenizer counts them; None where all have."""
    estimate_nano: int | None = None
    """The price with these as they are estimated; None where that makes no difference."""

    @property
    def taken(self) -> Taken:
        """What the turn has taken as people are shown it."""
        nano = self.spent_nano if self.estimate_nano is None else self.estimate_nano
        usage = self.estimate or self.usage
        return Taken(nano, usage, self.estimate is not None, self.estimate_nano is not None)


@dataclass(frozen=True, slots=True)
class CommandRan(Event):
    """A command the person ran from the chat; its output stands before the next question."""

    type: ClassVar[str] = "command_ran"
    command: str
    output: str
    ok: bool
    truncated: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnUndone(Event):
    """A turn was taken back: it is no longer told to models, and the files its tools changed are as before it."""

    type: ClassVar[str] = "turn_undone"
    turn: int
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files left alone because somebody changed them after the turn."""


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """Models read a summary in place of earlier turns, or of earlier steps; the transcript keeps everything."""

    type: ClassVar[str] = "compacted"
    summary: str
    model: str
    """Who wrote the summary; empty for an extract."""
    turns: int
    """Earlier turns that the summary replaces; 0 when it replaces steps of the running turn."""
    tokens_before: int
    tokens_after: int
    calls: tuple[str, ...] = ()
    """IDs of the running turn's calls that the summary replaces, with their results."""
    automatic: bool = False
    """Whether a full context triggered it; otherwise the user asked for it."""
    spent_nano: int | None = None
    """Price of the summary; None when unknown, and in sessions of earlier versions."""


@dataclass(frozen=True, slots=True)
class TrimmedResult:
    """A result that models read shortened."""

    turn: int
    id: str
    """ID of the call."""


@dataclass(frozen=True, slots=True)
class ResultsTrimmed(Event):
    """Models read only the beginning and the end of these results; the transcript keeps them whole."""

    type: ClassVar[str] = "results_trimmed"
    results: tuple[TrimmedResult, ...]
    characters: int
    """What stays of each result."""
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class ToolRegistered(Event):
    """A tool's document is now before the model."""

    type: ClassVar[str] = "tool_registered"
    name: str
    tokens: int
    exact: bool
    step: int
    by: Literal["agent", "user", "upfront"]
    id: str = ""
    """The agent's call that registered it."""
    group: str = ""
    """The reply that made the call."""
    loaded: bool = False
    """Whether the provider's tool search loaded it, so that `id` is the tool's own first call."""


@dataclass(frozen=True, slots=True)
class ToolUnregistered(Event):
    """A tool was taken out by the user."""

    type: ClassVar[str] = "tool_unregistered"
    name: str


@dataclass(frozen=True, slots=True)
class ApprovalWanted(Event):
    """A call waits for a person's word."""

    type: ClassVar[str] = "approval_wanted"
    id: str
    name: str
    arguments: Mapping[str, Any]
    effects: tuple[Effect, ...]
    reason: str
    """What the call would do, and what "always" would stand for."""
    rationale: str = ""
    """Why the agent wants it, in its own words."""
    price_nano: int = 0
    """What one use of the tool costs."""
    changes: str = ""
    """What the call would change in files, as a unified diff; empty where the tool cannot tell."""
    fault: str = ""
    """What is wrong with the arguments, when they are the person's and the tool cannot take them: asked once more."""

    @property
    def of_server(self) -> str:
        """The server that asks this of the person beside a call; empty for a call, as no tool's name has a colon."""
        return self.name.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class ApprovalGiven(Event):
    """A call was allowed or refused."""

    type: ClassVar[str] = "approval_given"
    id: str
    decision: str
    by: str
    """Who decided: the person, a rule, or nobody (no person and no --yes)."""
    arguments: Mapping[str, Any] | None = None
    """What the person made of the arguments; None when they stayed as they were."""
    instead: str = ""
    """What the person wants in the place of a call that they refused."""


@dataclass(frozen=True, slots=True)
class CallStarted(Event):
    """A call is on its way through the guards."""

    type: ClassVar[str] = "call_started"
    id: str
    name: str
    arguments: Mapping[str, Any]
    through: str = ""
    """The meta-tool the model called it through; empty when it was called directly."""
    role: str = ""
    """Who made the call; empty where no model did, and in sessions of old versions."""
    group: str = ""
    """The reply that made the call: equal for all calls of one reply, empty where no model made it."""


@dataclass(frozen=True, slots=True)
class CallProgressed(Event):
    """How far a running call has come, in the words of its tool."""

    type: ClassVar[str] = "call_progressed"
    id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished(Event):
    """What a call came to."""

    type: ClassVar[str] = "call_finished"
    id: str
    name: str
    ok: bool
    observation: str
    truncated: bool
    seconds: float
    refused: str = ""
    """Which guard refused the call (unknown, repeated, unregistered, forbidden, unaffordable, unapproved), or `stopped`
    where the turn ended before it ran; empty when the tool ran."""
    spent_nano: int = 0
    """What the tool itself cost; model calls are settled on their own."""
    changes: str = ""
    """What changed in files, as a unified diff; empty when nothing did."""
    memory_mb: float | None = None
    """The most memory the run held, on CPU and GPU, in MB of 2^20 bytes; None when it is not known."""
    units: float | None = None
    """What the run cost by its time and memory, in OpenCATP's price units; None when its memory is not known."""
    group: str = ""
    """The reply that made the call, as in `call_started`."""
    images: tuple[Image, ...] = ()
    """What models with vision see beside the text; `ask --json` leaves their data empty."""


@dataclass(frozen=True, slots=True)
class CallJudged(Event):
    """Whether a call's result helped, which decides what it may still be used for (BTP §2.4)."""

    type: ClassVar[str] = "call_judged"
    id: str
    name: str
    helpful: bool | None
    """None when nobody could tell."""
    by: str
    """`rules`, `classifier`, `model` or `plugin`; empty when nobody judged."""
    reason: str = ""
    note: str = ""
    """What the model reads after the result: what may not be used any more, and what is left."""


@dataclass(frozen=True, slots=True)
class CallMarked(Event):
    """The person's own word on a result, which outweighs any other."""

    type: ClassVar[str] = "call_marked"
    turn: int
    id: str
    name: str
    helpful: bool | None
    """None takes the mark back."""


PlanState = Literal["planned", "forbidden", "unplanned"]
PlanWhy = Literal["value", "new", "budget", "quota", "blacklist", "below τ"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One tool in the plan; `cost` and `spread` are in the plan's unit, for one use."""

    tool: str
    value: float
    """0 to 1 (SPEC §2)."""
    cost: int
    spread: int
    """One standard deviation of the cost; 0 when there is too little experience."""
    bound: int
    """How often it should be used at most for this question, by experience."""
    planned: int
    """How often it may be used in this turn in all, uses so far included."""
    used: int
    state: PlanState
    why: PlanWhy
    """`value`: planned by its value; `new`: planned, without history; `budget`, `quota`, `blacklist`, `below τ`: what
    keeps it out of the plan, whether that forbids it (`forbidden`) or is advice (`unplanned`)."""
    chance: float = 1.0
    """How likely the question uses the tool, by experience and local ranking; the plan goes by value × chance."""

    @property
    def worth(self) -> float:
        """What one planned use is expected to bring."""
        return self.value * self.chance

    @property
    def left(self) -> int:
        """Uses that are left."""
        return max(0, self.planned - self.used) if self.state == "planned" else 0


@dataclass(frozen=True, slots=True)
class PlanChanged(Event):
    """The plan as it stands: what the budget allows of each tool (SPEC §2). Amounts are in `unit`."""

    type: ClassVar[str] = "plan_changed"
    mode: str
    """`btp`, `prompt`, `btp+prompt`."""
    reason: str
    """What made it: the question, or what has changed since."""
    number: int
    """1 for the turn's first plan; each replanning counts one up."""
    rows: tuple[PlanRow, ...]
    """Those worth showing, most valuable first."""
    others: int
    """Tools that are not among the rows."""
    unit: Unit
    cap: int | None
    """What the caps leave this turn in all; None without a cap."""
    reserved: int
    """Of it, what is set aside for the prompts and the answer."""
    budget: int | None
    """R: what uses of tools may still cost, what is `paid` of that included; None without a cap."""
    planned_cost: int
    """What the planned uses that are left are expected to cost."""
    enforced: bool
    """Whether what the rows say is forbidden is refused; without a cap the plan is advice."""
    low: int | None = None
    """The turn's estimated price from here, at the least and at the most likely; None when a price is unknown."""
    high: int | None = None
    paid: int = 0
    """What of the planned uses is paid already: thinking that is to lead to the next of them. The budget is the cap
    less what is reserved, and this."""
    whole: int | None = None
    """What the caps, as they are now, left this turn before it spent anything; None without a cap."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a branching plan, with what it is expected to take; unknown is None."""

    label: str
    """`read_file`, then `read_file#2`."""
    tool: str
    after: tuple[str, ...]
    """Labels of earlier nodes, or `<task>`."""
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    """Kinds of what flows in and out: text, json, number, file, …"""
    price_nano: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GraphPlanned(Event):
    """A branching plan, before it runs (SPEC §3)."""

    type: ClassVar[str] = "graph_planned"
    nodes: tuple[GraphNode, ...]
    """Each after those it waits for."""
    text: str
    """The plan in the tool planning language."""
    repaired: bool = False
    """Whether it takes the place of one that failed in part."""
    kept: tuple[str, ...] = ()
    """Labels of nodes that the plan before it has finished, and that do not run again."""
    critical: tuple[str, ...] = ()
    """Labels of the longest path, first to last."""
    price_nano: int | None = None
    """What the tools are expected to cost together."""
    seconds: float | None = None
    """How long the longest path is expected to take."""


NodeState = Literal["waiting", "running", "done", "failed", "denied", "skipped", "stopped"]
"""How a node stands; `denied` where its call was not approved, `stopped` where it ran when the turn was stopped, or
when nothing was heard of it any more."""


@dataclass(frozen=True, slots=True)
class NodeChanged(Event):
    """A node of the branching plan has come to stand otherwise."""

    type: ClassVar[str] = "node_changed"
    label: str
    state: NodeState
    call: str = ""
    """The id of its call."""
    seconds: float = 0.0
    """Since it began to run, filling in its arguments included."""
    spent_nano: int | None = 0
    """What it has cost so far: its tool, and the model calls that filled in its arguments; None is unknown."""
    reason: str = ""
    """Why it failed, or was skipped."""


@dataclass(frozen=True, slots=True)
class PlanScored(Event):
    """What a branching plan was worth, told when its turn has ended and again when a mark has changed it (SPEC §3)."""

    type: ClassVar[str] = "plan_scored"
    turn: int
    performance: float | None
    """P, 0 to 1: the share of its nodes that helped; None when nobody could tell."""
    judged_by: str
    """Who told, joined by ` + `: `you`, `checker`, `agent`, `rules`, `classifier`, `model`; empty when nobody did."""
    cost_nano: int | None
    """C: what the turn has cost, what its tools took of the machine included; None when a part of it is unknown."""
    most_nano: int
    """C_max."""
    alpha: float
    quality: float | None
    """α·P − (1 − α)·C/C_max; None when P or C is unknown."""
    resources_nano: int | None = 0
    """Of C, the time and memory of its tools, which nobody pays; 0 where they are given no price."""
    checked: bool | None = None
    """What the checker of the settings said of the answer; None where none did."""


def _attachment(name: str, text: str, image: Mapping[str, Any] | None = None) -> Attachment:
    return Attachment(name, text, None if image is None else Image(**image))


_NESTED: Mapping[str, Callable[..., Any]] = {
    "caps": CapState,
    "attachments": _attachment,
    "images": Image,
    "offers": ModelOffer,
    "rows": PlanRow,
    "nodes": GraphNode,
    "parts": ContextPart,
    "results": TrimmedResult,
}
"""Fields that hold several values of their own."""
_PLAIN = (str, int, float, bool, int | None, bool | None)
"""Types of fields that JSON keeps as they are."""
EVENTS: Mapping[str, type[Event]] = {
    kind.type: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
"""Every kind of event, by the `type` that names it."""


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object whose `type` names it."""
    return {"type": event.type, **dataclasses.asdict(event)}


def from_json(record: Mapping[str, Any]) -> Event:
    """The event a JSON object stands for; raises ValueError where it stands for none, ignores unknown fields."""
    if not isinstance(record, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("an event is an object")
    found = EVENTS.get(str(record.get("type")))
    if found is None:
        raise ValueError(f"unknown event type {record.get('type')!r}")
    plain, nested = _fields(found)
    values: dict[str, Any] = {}
    for name, kinds in plain:
        if name in record:
            values[name] = value = record[name]
            if not isinstance(value, kinds):
                raise ValueError(f"{name} of {found.type} is {value!r}")
    for name in nested:
        if name in record:
            values[name] = _revive(name, record[name])
    return found(**values)


@cache
def _fields(kind: type[Event]) -> tuple[tuple[tuple[str, tuple[type, ...]], ...], tuple[str, ...]]:
    """The fields that JSON keeps as they are, with their types, and the others; a long session asks very often."""
    plain: list[tuple[str, tuple[type, ...]]] = []
    others: list[str] = []
    for spec in dataclasses.fields(kind):
        if spec.type in _PLAIN:
            kinds = get_args(spec.type) or (cast("type", spec.type),)
            plain.append((spec.name, (*kinds, int) if float in kinds else kinds))
        else:
            others.append(spec.name)
    return tuple(plain), tuple(others)


def _revive(name: str, value: Any) -> Any:
    """Give back the tuples and nested values that JSON turned into lists and objects."""
    if name in ("usage", "estimate"):
        return None if value is None else Usage(**value)
    if name == "nodes":  # whose lists are tuples, too
        value = [{below: _revive(below, item) for below, item in one.items()} for one in value]
    if name in _NESTED:
        return tuple(_NESTED[name](**one) for one in value)
    if isinstance(value, list):
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
