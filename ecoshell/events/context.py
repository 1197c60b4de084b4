"""Events of the context: instructions and facts of the workspace, trust, and compaction."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar, Literal

from ecoshell.budget import amount_text, counted
from ecoshell.events.base import Event
from ecoshell.events.figures import sizes_text
from ecoshell.events.lines import Line

_PARTS = {
    "user": "your AGENTS.md",
    "project": "AGENTS.md of this project",
    "facts": "facts of the workspace",
}
_STATES = {"untrusted": "not trusted", "unreadable": "cannot be read"}
_TRUSTS = {
    "yes": "is trusted until it changes",
    "no": "is not read; you are asked again when it changes, or use --trust-project",
    "later": "is not read now",
}


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

    def render(self) -> Line | None:
        if all(part.name == "facts" for part in self.parts):  # which only a panel shows
            return None
        return Line("info", "·", f"context: {context_line(self)}")


def context_line(event: ContextTold) -> str:
    """The parts of the workspace context: `your AGENTS.md (120 tokens), facts of the workspace (92 tokens)`."""
    sizes = ((part.name, part_size(part, event, " tokens")) for part in event.parts)
    return ", ".join(f"{_PARTS[name]} ({size})" for name, size in sizes)


def part_size(part: ContextPart, event: ContextTold, unit: str) -> str:
    """The size of a part, or why it is not sent."""
    if part.state != "told":
        return _STATES[part.state]
    return f"{'' if event.exact else '≈ '}{part.tokens:,}{unit}{', cut' if part.cut else ''}"


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

    def render(self) -> Line:
        may = "the model follow" if self.use == "follow" else "ecoshell run the commands in"
        changed = ", which has changed" if self.changed else ""
        text = f"may {may} {PurePath(self.file).name} of this project{changed}"
        return Line("question", "?", text, self.file)


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

    def render(self) -> Line | None:
        if self.by != "person":  # a notice says why the user was not asked
            return None
        return Line("info", "?", f"{self.file} of this project {_TRUSTS[self.decision]}")


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

    def render(self) -> Line:
        calls = counted(len(self.calls), "earlier call")
        text = counted(self.turns, "turn") if self.turns else calls
        if not self.model:
            text += " replaced by an extract that no model wrote"
        else:
            text += f" summarized by {self.model}"
            if self.spent_nano is not None:
                text += f" for {amount_text(self.spent_nano, 'usd')}"
        return Line("good", "≡", text, sizes_text(self.tokens_before, self.tokens_after))


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

    def render(self) -> Line:
        text = f"{counted(len(self.results), 'large result')} trimmed to make room"
        return Line("info", "≡", text, sizes_text(self.tokens_before, self.tokens_after))
