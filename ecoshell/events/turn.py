"""Events of a turn: its start, steps, model text, answer and end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ecoshell.budget import about, amount_text, counted
from ecoshell.budget.amounts import short_tokens as tokens
from ecoshell.errors import EcoshellError
from ecoshell.events.base import Event
from ecoshell.events.budget import Consumption
from ecoshell.events.figures import duration, length_text
from ecoshell.events.lines import Line
from ecoshell.messages import Attachment, Usage, visible_line
from ecoshell.options import ROLES

Status = Literal["answered", "limit", "gave_up", "error", "interrupted"]
ENDINGS: Mapping[Status, str] = {
    "answered": "answered",
    "limit": "limit reached",
    "gave_up": "gave up",
    "error": "error",
    "interrupted": "stopped",
}
"""Text for each end of a turn."""
_CALL_CHARACTERS = 60
CALL_BEGINS = ("{", "```", '["', "[SoP]")
"""Beginnings of a call or a tool graph that a model writes as text; shown when complete, not while it streams."""


@dataclass(frozen=True, slots=True)
class TurnStarted(Event):
    """A turn began."""

    type: ClassVar[str] = "turn_started"
    turn: int
    question: str
    model: str
    mode: str
    strategy: str
    attachments: tuple[Attachment, ...] = ()
    """Mentioned files and large pastes sent with the question."""
    copies: str = ""
    """Name of the file copies from which /undo restores; empty in sessions of old versions, which use `turn`."""
    session_model: str = ""
    """The model of every role for which none is set; empty in sessions of old versions."""
    roles: tuple[str | None, ...] = ()
    """The roles' own models in the mode umi, in the order of ROLES."""
    advisor: str = ""
    """The model that gives advice; empty without one."""
    effort: str = ""
    """The session's reasoning effort; empty if unknown."""
    line: str = ""
    """The typed line whose custom command has given the question; empty if the question was typed."""

    def render(self) -> Line:
        files = (attachment_line(attachment).words for attachment in self.attachments)
        return Line("question", "›", self.question, ", ".join(files))


def attachment_line(attachment: Attachment) -> Line:
    """The name and the size of a file or paste that is sent with a question."""
    if attachment.image is not None:
        return Line("info", "¶", attachment.text)
    size = counted(attachment.text.rstrip("\n").count("\n") + 1, "line")
    return Line("info", "¶", attachment.name, size)


@dataclass(frozen=True, slots=True)
class ToolsOffered(Event):
    """The tools that the model knows when the turn starts: names, loaded schemas, and the reason for the choice."""

    type: ClassVar[str] = "tools_offered"
    names: tuple[str, ...]
    upfront: tuple[str, ...]
    """Tools whose schemas are loaded in this turn from the start."""
    presentation: str
    context_tokens: int
    """Tokens of the names and loaded schemas."""
    everything_tokens: int
    """Tokens of all schemas together."""
    exact: bool
    """Whether the counts come from the model's own tokenizer."""
    why: str
    listing: str = ""
    """Text before the question: names and schemas that the model has not seen before."""
    advice: str = ""
    """Text after the question: what the plan says about costs and forbidden tools."""
    budget: str = ""
    """The line of remaining budget after the question."""
    core: tuple[str, ...] = ()
    """The loaded tools of the core set."""
    known: tuple[str, ...] = ()
    """Tools that are known by name and not loaded."""
    loaded: tuple[str, ...] = ()
    """All loaded tools, those of earlier turns included."""
    declared: tuple[str, ...] = ()
    """Tools whose short schemas a local model reads in every session, loaded or not."""
    skills: tuple[str, ...] = ()
    """Skills that are known by name in this turn."""
    ends: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lines before the question about background commands that have ended, by ID."""

    def render(self) -> Line:
        """Return how many tools are loaded and known; the detail is their size and the reason."""
        loaded = self.loaded or self.upfront  # sessions of old versions list only the new ones
        known_count = len(self.names) - sum(name in self.names for name in loaded)
        skills = f", {counted(len(self.skills), 'skill')}" if self.skills else ""
        text = f"{counted(len(loaded), 'tool')} loaded{f', {known_count} known by name' if known_count else ''}{skills}"
        size = f"{self.context_tokens:,} of {counted(self.everything_tokens, 'token')}"
        details = (size if self.exact else f"about {size}", self.why)
        return Line("info", "·", text, " · ".join(filter(None, details)))


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """A model is about to produce its next step."""

    type: ClassVar[str] = "step_started"
    step: int
    role: str
    model: str

    def render(self) -> None:
        """Its content follows in other events."""


@dataclass(frozen=True, slots=True)
class TextArrived(Event):
    """A piece of streamed text: a thought, the answer, or reasoning before either."""

    type: ClassVar[str] = "text_arrived"
    text: str
    channel: Literal["thought", "answer", "reasoning"]
    role: str
    node: str = ""
    """The node of a tool graph, whose nodes stream concurrently; empty otherwise."""

    def render(self) -> None:
        """Interfaces show the text itself."""


@dataclass(frozen=True, slots=True)
class CallArriving(Event):
    """A long call is still being written by the model; repeated while its arguments grow, and not stored."""

    type: ClassVar[str] = "call_arriving"
    name: str
    path: str
    """The file that it names; empty if none is known yet."""
    lines: int
    """Lines of its arguments so far."""
    role: str

    @property
    def words(self) -> str:
        """What the model writes: `write_file notes.md, 120 lines`."""
        call = " ".join(filter(None, (self.name, self.path)))
        return f"{visible_line(call, _CALL_CHARACTERS)}, {counted(self.lines, 'line')}"

    def render(self) -> None:
        """Screens show its words while it grows; the call itself follows."""


@dataclass(frozen=True, slots=True)
class Reasoned(Event):
    """A model's complete reasoning before a reply; displayed folded and never sent as text to another model."""

    type: ClassVar[str] = "reasoned"
    text: str
    role: str
    tokens: int | None = None
    """Part of the reply's output tokens; None if not counted."""

    def render(self) -> Line:
        """Return the length of the reasoning."""
        count = length_text(self.text) if self.tokens is None else counted(self.tokens, "token")
        return Line("info", "◦", f"thought for {count}")


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
    """Number of tool calls in the reply."""
    reasoning_tokens: int | None = None
    """Reported by the provider; part of the output tokens."""
    family: str = ""
    """The provider family that receives `message` again."""
    message: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The reply in litellm's form, with the provider's own fields (thinking blocks, signatures, call IDs)."""
    has_unusable_call: bool = False
    """Whether its first call is incomplete or unreadable, so that the model is asked again."""

    def render(self) -> None:
        """Its content follows in other events."""


@dataclass(frozen=True, slots=True)
class Rationale(Event):
    """A complete thought."""

    type: ClassVar[str] = "rationale"
    text: str
    role: str

    def render(self) -> Line | None:
        return Line("thought", "◊", self.text.strip()) if self.text.strip() else None


@dataclass(frozen=True, slots=True)
class StepProposed(Event):
    """A candidate step of a search; the chosen one is reported again when it is taken."""

    type: ClassVar[str] = "step_proposed"
    rationale: str
    step: str
    """The call as shown to the user, `answer` or `give up`."""
    role: str

    def render(self) -> Line:
        return Line("info", "◦", f"proposed {self.step}", self.rationale.strip())


@dataclass(frozen=True, slots=True)
class BranchLeft(Event):
    """A search continues from another path; effects of the abandoned steps remain."""

    type: ClassVar[str] = "branch_left"
    path: tuple[str, ...]
    """IDs of the calls on the path it continues from, first to last; empty at the beginning."""
    left: int
    """Number of abandoned steps."""
    reason: str
    unregistered: tuple[str, ...] = ()
    """Tools that only the abandoned steps had registered."""

    def render(self) -> Line:
        target = f"step {len(self.path)}" if self.path else "the beginning"
        return Line("warning", "←", f"back to {target}", self.reason)


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """Information for the user that does not stop the turn."""

    type: ClassVar[str] = "notice"
    text: str

    def render(self) -> Line:
        return Line("note", "!", self.text)


@dataclass(frozen=True, slots=True)
class Answer(Event):
    """The complete answer."""

    type: ClassVar[str] = "answer"
    text: str
    partial: bool = False
    """Whether a limit ended the turn early."""
    role: str = ""
    """The role that wrote it; empty if a result is quoted at a limit, and in sessions of old versions."""

    @property
    def by(self) -> str:
        """`by the summarizer`, if several roles share the turn."""
        return f"by the {self.role}" if self.role in ROLES else ""

    def render(self) -> Line:
        """Return who gives the answer, and whether it is partial; the detail is the answer."""
        text = "partial answer from the results so far" if self.partial else "answer"
        icon = "≈" if self.partial else "√"
        return Line("answer", icon, f"{text} {self.by}".rstrip(), self.text)


@dataclass(frozen=True, slots=True)
class ErrorHappened(Event):
    """An error ended the turn."""

    type: ClassVar[str] = "error"
    kind: str
    message: str
    kept: str = ""
    """What was preserved."""
    fix: str = ""
    """What the user can do."""

    @classmethod
    def of(cls, error: Exception, kept: str = "The session is kept.") -> "ErrorHappened":
        """Make the event of an error; `kept` applies to errors that are not EcoshellErrors."""
        kind = type(error).__name__
        if isinstance(error, EcoshellError):
            return cls(kind, error.message, error.kept, error.fix)
        return cls(kind, f"Something unexpected happened: {str(error) or kind}", kept)

    def render(self) -> Line:
        """Return what happened; the detail is what was kept and what to do next."""
        return Line("error", "×", self.message, "\n".join(filter(None, (self.kept, self.fix))))


@dataclass(frozen=True, slots=True)
class TurnFinished(Event):
    """The turn ended; the last event of every turn."""

    type: ClassVar[str] = "turn_finished"
    turn: int
    status: Status
    answer: str
    spent_nano: int | None
    """None if any part is unknown."""
    usage: Usage
    steps: int
    registered: tuple[str, ...]
    seconds: float
    saved_tokens: int = 0
    """Input tokens saved by not loading every schema, added up over the steps."""
    estimate: Usage | None = None
    """The usage with calls without reported usage as estimated by a tokenizer; None if all calls reported theirs."""
    estimate_nano: int | None = None
    """The price with the estimated calls; None if it equals `spent_nano`."""
    reason: str = ""
    """Why it ended early, if no event of a limit or an error says so."""

    @property
    def consumption(self) -> Consumption:
        """Price and usage of the turn, for display."""
        return Consumption.of(self.spent_nano, self.usage, self.estimate, self.estimate_nano)

    def render(self) -> Line:
        """Return the ending, unless it is an answer, and the totals of a turn; the detail is its tokens."""
        total = self.consumption
        usage = total.usage
        cost = "cost unknown" if total.nano is None else amount_text(total.nano, "usd")
        if total.nano == 0:
            cost = f"{tokens(usage.total)} tok"
        cost = about(cost, estimated=total.estimated_nano)
        parts = [cost, counted(self.steps, "step"), duration(self.seconds)]
        if self.status != "answered":
            parts.insert(0, ENDINGS[self.status])
        if self.saved_tokens > 0 and self.spent_nano:
            parts.append(f"saved {tokens(self.saved_tokens)} tok of schemas")
        cached = f" ({usage.cached:,} cached)" if usage.cached else ""
        flow = f"{usage.input:,} tokens in{cached}, {usage.output:,} out"
        kind, icon = ("good", "√") if self.status == "answered" else ("warning", "■")
        return Line(kind, icon, " · ".join(parts), about(flow, estimated=total.estimated))


@dataclass(frozen=True, slots=True)
class CommandRan(Event):
    """The user ran a shell command from the chat; its output precedes the next question."""

    type: ClassVar[str] = "command_ran"
    command: str
    output: str
    ok: bool
    truncated: bool
    seconds: float

    def render(self) -> Line:
        ending = duration(self.seconds) if self.ok else f"failed after {duration(self.seconds)}"
        truncated = " · output truncated" if self.truncated else ""
        return Line("info" if self.ok else "warning", "$", self.command, f"{ending}{truncated}")


@dataclass(frozen=True, slots=True)
class TurnUndone(Event):
    """A turn was undone: models no longer see it, and files that its tools changed were restored."""

    type: ClassVar[str] = "turn_undone"
    turn: int
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files not restored because they changed after the turn."""
    removed: tuple[str, ...] = ()
    """Files of `restored` that did not exist before the turn."""

    @property
    def put_back(self) -> tuple[str, ...]:
        """The restored files that existed before the turn."""
        return tuple(path for path in self.restored if path not in self.removed)

    def render(self) -> Line:
        parts = [f"restored {', '.join(self.put_back)}"] if self.put_back else []
        if self.removed:
            parts.append(f"removed {', '.join(self.removed)}")
        if self.kept:
            parts.append(f"not restored because of later changes: {', '.join(self.kept)}")
        return Line("warning", "«", f"turn {self.turn} was undone", " · ".join(parts))
