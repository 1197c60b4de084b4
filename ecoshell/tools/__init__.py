"""Tools: what every tool is to the rest of ecoshell. Functions as tools, servers and built-in tools stand beside it."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Message, Observation, ToolDocument

LASTING: frozenset[Effect] = frozenset({"write", "execute"})
"""What stays done when the agent goes back to another way, or the tool is stopped."""


@dataclass(slots=True)
class ResultSize:
    """How many characters of a tool result the model reads; follows the context of the session's model."""

    characters: int = 8_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call of a tool may take."""

    seconds: float = 20.0
    result: ResultSize = field(default_factory=ResultSize)
    changes: int = 50_000
    """Characters of the changes in files that a person is shown."""


UNSTATED = Limits(seconds=120.0)
"""Of a tool that states none."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """Limits and permissions of the built-in tools; times are seconds."""

    result: ResultSize = field(default_factory=ResultSize)
    file_bytes: int = 10_000_000
    """The largest file that is read or written."""
    file_seconds: float = 20.0
    command_seconds: float = 120.0
    fetch_seconds: float = 30.0
    fetch_bytes: int = 2_000_000
    allow_private: bool = False
    """Whether `fetch_url` may reach this machine and its local network."""
    keep_variables: frozenset[str] = field(default_factory=frozenset[str])
    """Environment variables passed to commands although they look like secrets."""


@runtime_checkable
class Tool(Protocol):
    """A tool. `run` never raises for what the model did wrong: that is an observation with `ok=False`."""

    @property
    def document(self) -> ToolDocument:
        """What registering the tool tells a model."""
        ...

    @property
    def effects(self) -> frozenset[Effect]:
        """What a run may do beyond answering."""
        ...

    @property
    def price_nano(self) -> int:
        """What one use costs, in nano-dollars; 0 for everything that comes with ecoshell."""
        ...

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Run with these arguments, checked against the schema, within the tool's limits; it may be cancelled.

        It runs on the event loop, so what blocks belongs in a thread: `running.in_thread` gives it one that the end of
        the program does not wait for.
        """
        ...


class Subject(Enum):
    """What approval rules look at in a call; a function's argument says it: `Annotated[str, "…", Subject.PATH]`."""

    PATH = "path"
    """A file or folder, relative to the workspace or absolute."""
    COMMAND = "command"
    """A line for the shell."""
    ADDRESS = "address"
    """Where something is on the web."""
    CONTENT = "content"
    """The whole new text of the file that the call names; no pattern is about it."""


def subjects_of(tool: Tool) -> Mapping[str, Subject]:
    """The arguments, by name, that a tool declares in its `subjects` for approval rules; empty where it has none."""
    return getattr(tool, "subjects", {})


def limits_of(tool: Tool, unstated: Limits = UNSTATED) -> Limits:
    """What one call may take, as a tool states it in its `limits`, or the limits of tools that state none."""
    stated: object = getattr(tool, "limits", None)
    return stated if isinstance(stated, Limits) else unstated


@runtime_checkable
class Previewing(Protocol):
    """A tool that can say what a run would change before it runs."""

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """What a run with these arguments would change in files, as a unified diff; empty when it cannot be told.

        It changes nothing and may block.
        """
        ...


@runtime_checkable
class Warming(Protocol):
    """A tool that has something to start before it can run, and may do so ahead of its first call."""

    def warm(self) -> None:
        """Begin, on the event loop; returns at once and never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """What a model wrote for a tool."""

    text: str
    model: str
    cut: bool
    """Whether it was cut at its longest."""


class Caller(Protocol):
    """Whoever made the call that runs, for a tool that has something to say or to ask before it ends.

    A class derived of this hears nothing, and declines what it does not say otherwise.
    """

    def progress(self, text: str) -> None:
        """Tell how far it has come."""

    async def form(self, server: str, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the person fills in, valid under the schema of an object; None where nobody does."""
        return None

    async def visit(self, server: str, message: str, address: str) -> bool:
        """Whether the person says that they open the address; it is opened by nobody else."""
        return False

    async def sample(self, server: str, messages: Sequence[Message], most: int, *, allowed: bool) -> Sample:
        """What the session's model writes, within the caps; with `allowed` nobody need be asked. Raises ToolError."""
        raise ToolError("Nobody writes for it now.")


caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""The caller of the tool that runs in this context; None where nobody listens."""


class ToolProvider(Protocol):
    """Where tools come from that may change while a shell runs, such as a server; the tools themselves run."""

    @property
    def name(self) -> str: ...

    @property
    def tools(self) -> Sequence[Tool]:
        """Its tools as far as they are known now; another sequence once they have changed. Starts nothing, may block
        the first time, and never raises."""
        ...

    @property
    def known(self) -> bool:
        """Whether it has ever said which tools it has."""
        ...

    @property
    def status(self) -> str:
        """How it is, in a few words."""
        ...

    async def connect(self) -> None:
        """Find out which tools it has, and be ready to run them; raises ToolError."""
        ...

    async def aclose(self) -> None:
        """Let go of all it has started."""
        ...
