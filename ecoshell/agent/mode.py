"""What a mode is to the agent: what it sees, what it returns, and what it is expected to cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ecoshell.budget import Hold
from ecoshell.catalog import Presentation
from ecoshell.events import Emit
from ecoshell.messages import Attachment, Call, Message, ToolSchema
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Path, Sibling, Step, Thought


@dataclass(frozen=True, slots=True)
class View:
    """Everything a mode may use to produce a step."""

    path: Path
    opening: str
    """The question as the model reads it, with names, and with schemas if the presentation puts them there."""
    history: tuple[Message, ...]
    """Earlier turns of the session."""
    known: tuple[str, ...]
    """Names of all tools that may be registered or called."""
    registered: tuple[ToolSchema, ...]
    """Tools that this path may call, in the order of registration."""
    presentation: Presentation
    deferrable: tuple[ToolSchema, ...] = ()
    """All tools, if the provider's search loads them or the presentation declares some."""
    large: bool = False
    """Whether only a shortlist of names is shown and `tool_search` is offered."""
    along: str = ""
    """Attachments and command output sent with the question; `opening` contains them as well."""
    attachments: tuple[Attachment, ...] = ()
    """Files for which a program is tried first."""
    contexts: tuple[str, ...] = ()
    """Workspace contexts at the head of questions in `history`; omitted for small models."""
    skills: bool = False
    """Whether `tool_register` is offered because it loads skills."""
    forbidden: frozenset[str] = frozenset()
    """Names that the plan forbids now."""
    closed: bool = False
    """Whether no tool may be used, so that only an answer is possible."""
    searching: bool = False
    """Whether giving up leads to another path, so that `finish` is offered."""
    siblings: tuple[Sibling, ...] = ()
    """Steps already tried from here; the next one must differ."""

    @property
    def array(self) -> tuple[ToolSchema, ...]:
        """The tool array of a request."""
        return self.presentation.array(
            self.registered,
            deferrable=self.deferrable,
            large=self.large,
            finish=self.searching,
            skills=self.skills,
        )

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of tools that may be registered or called now."""
        return tuple(name for name in self.known if name not in self.forbidden)


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
    """Why it cannot be run."""
    costs: str = ""
    """The costs of tools as text; empty if not shown."""
    grammar: Callable[[], str] | None = None
    """Makes the grammar of valid graphs, in the form of numbers; may take a second."""


@dataclass(frozen=True, slots=True)
class FillTask:
    """A node of a tool graph that needs its call."""

    label: str
    """As in the graph: `read_file#2`."""
    schema: ToolSchema
    plan: str
    """The text of the graph."""
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
    """Name of the leading model."""
    answer_hold: Hold | None
    """The current reservation for the answer."""
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

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next step on the view's path."""
        ...

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

    async def release(self) -> None:
        """Release the reservation for the answer."""
        ...
