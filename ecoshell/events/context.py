"""Events of the context: instructions and facts of the workspace, trust, and compaction."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ecoshell.events.base import Event


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One source of workspace context."""

    name: Literal["user", "project", "facts"]
    """`AGENTS.md` of the user's settings folder, `AGENTS.md` of the workspace, or facts about the workspace."""
    tokens: int
    """Tokens in the context; 0 if the part is not sent."""
    state: Literal["told", "untrusted", "unreadable"] = "told"
    """Whether it is sent to the model (`told`), or why it is not sent."""
    cut: bool = False
    """Whether only the beginning of a file is sent."""


@dataclass(frozen=True, slots=True)
class ContextTold(Event):
    """The workspace context that precedes a session's first question, and is repeated after a compaction."""

    type: ClassVar[str] = "context_told"
    text: str
    """Exactly as sent, so that a resumed session sends the same bytes."""
    parts: tuple[ContextPart, ...]
    exact: bool
    """Whether the counts come from the model's own tokenizer."""
    workspace: str


@dataclass(frozen=True, slots=True)
class TrustWanted(Event):
    """A file of the workspace needs the user's trust: instructions for a model, or commands that ecoshell would run."""

    type: ClassVar[str] = "trust_wanted"
    file: str
    text: str
    """As it would be used."""
    changed: bool
    """Whether the user decided about different content of this file before."""
    use: Literal["follow", "run"] = "follow"
    """Whether a model would follow the text, or ecoshell run its commands."""


@dataclass(frozen=True, slots=True)
class TrustGiven(Event):
    """The decision on a file of the workspace."""

    type: ClassVar[str] = "trust_given"
    decision: Literal["yes", "no", "later"]
    """`yes` and `no` hold until the file changes; `later` holds for this session."""
    by: Literal["person", "nobody"]
    """`person` if the user decided; `nobody` if the user could not be asked."""
    file: str = "AGENTS.md"
    """The file, relative to the workspace."""


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """A summary replaced earlier turns or steps in the model's context; the transcript keeps everything."""

    type: ClassVar[str] = "compacted"
    summary: str
    model: str
    """The model that wrote the summary; empty for an extract."""
    turns: int
    """Number of earlier turns that the summary replaces; 0 if it replaces steps of the running turn."""
    tokens_before: int
    tokens_after: int
    calls: tuple[str, ...] = ()
    """IDs of the running turn's calls that the summary replaces, with their results."""
    automatic: bool = False
    """Whether a full context triggered it; otherwise the user asked for it."""
    spent_nano: int | None = None
    """Price of the summary; None if unknown, and in sessions of earlier versions."""


@dataclass(frozen=True, slots=True)
class TrimmedResult:
    """A result that is shortened in the model's context."""

    turn: int
    id: str
    """ID of the call."""


@dataclass(frozen=True, slots=True)
class ResultsTrimmed(Event):
    """Only the beginning and the end of these results remain in the model's context; the transcript keeps them."""

    type: ClassVar[str] = "results_trimmed"
    results: tuple[TrimmedResult, ...]
    characters: int
    """Characters kept of each result."""
    tokens_before: int
    tokens_after: int
