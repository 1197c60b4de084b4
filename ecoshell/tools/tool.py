"""The interface of tools: protocols, limits, options and approval subjects."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ecoshell.errors import ToolError
from ecoshell.events.base import Event
from ecoshell.messages import Effect, Message, Observation, ToolSchema

if TYPE_CHECKING:
    from ecoshell.tools.background import BackgroundCommands
    from ecoshell.tools.sandbox import Sandbox

LASTING: frozenset[Effect] = frozenset({"write", "execute"})
"""Effects that persist when the agent backtracks or the tool is stopped."""


@dataclass(slots=True)
class ResultSize:
    """Maximum characters of a tool result; follows the context size of the session's model."""

    characters: int = 8_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one tool call."""

    seconds: float = 20.0
    result: ResultSize = field(default_factory=ResultSize)
    changes: int = 50_000
    """Maximum characters of a displayed diff."""
    grace: float = 2.0
    """Seconds that a cancelled call gets to clean up."""
    delegates: bool = False
    """Whether the call only starts a subagent, whose calls have their own limits and costs."""
    is_live: bool = False
    """Whether its result changes by itself, so that the same call may be made again."""
    sandbox: "Sandbox | None" = None
    """Where the tool runs programs; None if it runs none or runs them outside."""


UNSTATED = Limits(seconds=120.0)
"""Limits of tools that define none."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """Limits and permissions of the built-in tools; times are seconds."""

    result: ResultSize = field(default_factory=ResultSize)
    file_bytes: int = 10_000_000
    """Maximum size of files that are read or written."""
    file_seconds: float = 20.0
    command_seconds: float = 120.0
    fetch_seconds: float = 30.0
    fetch_bytes: int = 2_000_000
    allow_private: bool = False
    """Whether `fetch_url` may access this machine and its local network."""
    keep_variables: frozenset[str] = field(default_factory=frozenset[str])
    """Environment variables passed to commands although they look like secrets."""
    background: "BackgroundCommands | None" = None
    """The background commands of the session; None without any."""
    sandbox: "Sandbox | None" = None
    """The sandbox of commands; None runs them outside."""


@runtime_checkable
class Tool(Protocol):
    """A tool. Mistakes of the model are observations with `ok=False`; `run` does not raise for them."""

    @property
    def schema(self) -> ToolSchema:
        """The name, description and parameters that a model sees."""
        ...

    @property
    def effects(self) -> frozenset[Effect]:
        """Possible side effects of a run."""
        ...

    @property
    def price_nano(self) -> int:
        """Price of one use in nano-dollars; 0 for all tools of ecoshell."""
        ...

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Check the arguments and run within the limits; may be cancelled.

        Runs on the event loop, so blocking work needs a thread (`running.in_thread`).
        """
        ...


class Subject(Enum):
    """The role of an argument in approval rules, declared as `Annotated[str, "…", Subject.PATH]`."""

    PATH = "path"
    """A file or folder, relative to the workspace or absolute."""
    TREE = "tree"
    """A folder that the tool reads as a whole; it omits what `protection` hides."""
    COMMAND = "command"
    """A shell command line."""
    ADDRESS = "address"
    """A web address."""
    CONTENT = "content"
    """The complete new text of the call's file; not matched by patterns."""


def subjects_of(tool: Tool) -> Mapping[str, Subject]:
    """Return the tool's arguments with an approval subject; empty if it declares none."""
    return getattr(tool, "subjects", {})


def limits_of(tool: Tool, unstated: Limits = UNSTATED) -> Limits:
    """Return the tool's `limits`, or `unstated` if it defines none."""
    limits: object = getattr(tool, "limits", None)
    return limits if isinstance(limits, Limits) else unstated


def sandbox_of(tool: Tool) -> "Sandbox | None":
    """Return the sandbox of the tool's programs; None if they run outside."""
    sandbox = limits_of(tool).sandbox
    return sandbox if sandbox is not None and sandbox.mode != "off" else None


@runtime_checkable
class Previewing(Protocol):
    """A tool that can preview its changes."""

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """Return the file changes of a run as a unified diff, empty if unknown; changes nothing and may block."""
        ...


@runtime_checkable
class Warming(Protocol):
    """A tool that can start its resources before its first call."""

    def warm(self) -> None:
        """Start on the event loop; returns at once and never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """Text that a model wrote for a tool; `cut` if it reached the length limit."""

    text: str
    model: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Delegation:
    """A piece of work for a subagent; empty fields have defaults."""

    instructions: str
    agent: str = ""
    """The name of its definition."""
    tools: tuple[str, ...] = ()
    """The names of the tools it may use; all if empty."""
    model: str = ""
    budget: str = ""
    """The most it may spend, as typed."""


class Caller(Protocol):
    """The interface of a running tool to the agent and the user; the default methods ignore or decline."""

    def progress(self, text: str) -> None:
        """Report progress."""

    async def advise(self, question: str) -> str:
        """Ask the session's advisor; raises ToolError."""
        raise ToolError("No advisor is available here.")

    def report(self, event: Event) -> None:
        """Report an event."""

    async def form(
        self, server: str, message: str, schema: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Ask the user to fill in a form and return the valid input; None if declined."""
        return None

    async def visit(self, server: str, message: str, address: str) -> bool:
        """Ask the user to open an address, and return whether they agree."""
        return False

    async def sample(
        self, server: str, messages: Sequence[Message], max_tokens: int, *, allowed: bool
    ) -> Sample:
        """Let the session's model write within the caps, without approval if `allowed`; raises ToolError."""
        raise ToolError("Sampling is not available.")

    async def use_tool(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Call another tool as the model could, with the same checks and costs."""
        return Observation("Tools cannot be called from here.", ok=False)

    async def delegate(self, delegation: Delegation) -> Observation:
        """Let a subagent do a piece of work within the caps, and return its summary; raises ToolError."""
        raise ToolError("Subagents are not available.")


caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""The caller of the tool that runs in this context."""


class ToolProvider(Protocol):
    """A source of tools that can change at run time, such as an MCP server."""

    @property
    def name(self) -> str: ...

    @property
    def tools(self) -> Sequence[Tool]:
        """The currently known tools, a new sequence after each change. Starts nothing, may block on the first access,
        and never raises."""
        ...

    @property
    def known(self) -> bool:
        """Whether its tools have ever been listed."""
        ...

    @property
    def status(self) -> str:
        """A short status text."""
        ...

    async def connect(self) -> None:
        """List its tools and prepare to run them; raises ToolError."""
        ...

    async def aclose(self) -> None:
        """Stop everything it has started."""
        ...
