"""Events of a turn: the question, the thoughts, the answer, and what a person does with a session beside it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ecoshell.errors import EcoshellError
from ecoshell.events.base import Event
from ecoshell.events.money import Taken
from ecoshell.messages import Attachment, Usage

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
    """Everything before is told to models as this summary from now on; the transcript keeps it whole."""

    type: ClassVar[str] = "compacted"
    summary: str
    model: str
    turns: int
    tokens_before: int
    tokens_after: int
