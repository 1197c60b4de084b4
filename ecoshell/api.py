"""ecoshell for Python programs: an agent under caps, with functions as its tools.

from ecoshell import Agent, tool

@tool
def stock(item: str) -> int:
    \"\"\"Return how many of an item are in stock.\"\"\"
    return {"apples": 12}.get(item, 0)

async with Agent("openai/gpt-4o-mini", tools=[stock], cap="0.05", home="state") as agent:
    print((await agent.ask("How many apples are there?")).answer)
"""

import fnmatch
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    get_args,
    overload,
)

from ecoshell import errors
from ecoshell.budget import CapState, Scope, nano_to_usd_text, parse_amount
from ecoshell.errors import (
    BudgetError,
    EcoshellError,
    GaveUp,
    LimitReached,
    StepsSpent,
    TurnStopped,
    UsageError,
)
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetSettled,
    Consumption,
    ErrorHappened,
    Event,
    LimitChosen,
    LimitHit,
    Notice,
    Rationale,
    Status,
    StepStarted,
    SubagentFinished,
    SubagentLimited,
    TextArrived,
    TodoItem,
    ToolRegistered,
    TurnFinished,
)
from ecoshell.messages import Attachment, Call, Effect, Usage, visible_line
from ecoshell.options import Options
from ecoshell.paths import Paths, user_paths
from ecoshell.tools import Limits, Tool
from ecoshell.tools.function import FunctionTool

if TYPE_CHECKING:  # imported when an agent is opened
    from ecoshell.agent import UserInterface
    from ecoshell.agent.shell import Shell
    from ecoshell.models import Model
    from ecoshell.settings.schema import Settings
    from ecoshell.tools.workspace import Workspace


EXIT_STATUS: Mapping[Status, int] = {
    "answered": 0,
    "error": 1,
    "limit": 3,
    "gave_up": 4,
    "interrupted": 130,
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost and usage in which unreported calls are estimated with a tokenizer."""

    cost_usd: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Result(Event):
    """The result of a turn: the last line of `ask --json`; not stored in the session."""

    type: ClassVar[str] = "result"
    status: Status
    answer: str
    cost_usd: str | None
    """Decimal dollars; null when a part of the price is unknown."""
    usage: Usage
    estimate: Estimate | None
    """Null if every call reported its usage."""
    steps: int
    registered: tuple[str, ...]
    refused: tuple[str, ...]
    """Calls that needed approval in a run without a user to ask."""
    session: str | None
    """Null if no turn could start."""


@dataclass(slots=True)
class Outcome:
    """The state of a turn, updated with each event, so that it is valid even if the turn is cut off."""

    status: Status = "error"
    answer: str = ""
    spent_nano: int | None = 0
    usage: Usage = field(default_factory=Usage)
    consumption: Consumption = field(default_factory=Consumption)
    """Usage and price as shown to users, with estimates."""
    steps: int = 0
    registered: tuple[str, ...] = ()
    session: str | None = None
    refused: tuple[str, ...] = ()
    """Calls that needed approval in a run without a user to ask."""
    _requested_calls: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Calls that needed approval, by subagent and ID."""
    _limit: LimitHit | SubagentLimited | None = None
    """The limit that holds or ended the turn."""
    _error: ErrorHappened | None = None
    _unfinished: str = ""
    """Text of the running step, which may become its answer."""

    @property
    def exit_status(self) -> int:
        """The exit status of the process; an answer with refused calls counts as `gave_up`."""
        return EXIT_STATUS["gave_up" if self.refused and self.status == "answered" else self.status]

    @property
    def cost_usd(self) -> Decimal | None:
        """Dollars; None if a part of the price is unknown."""
        return None if self.spent_nano is None else Decimal(nano_to_usd_text(self.spent_nano))

    @property
    def failure(self) -> EcoshellError | None:
        """The error for a turn that was not answered; None for an answered turn."""
        match self.status:
            case "answered":
                return None
            case "gave_up":
                return GaveUp(self.answer or "The agent gave up.")
            case "interrupted":
                return TurnStopped("The turn was stopped.", kept="The session is kept.")
            case "limit" if (hit := self._limit) is not None:
                return LimitReached(
                    hit.message, scope=hit.scope, need=hit.need, left=hit.left, unit=hit.unit
                )
            case "limit":
                return StepsSpent(
                    "The turn ended before it was done.", fix="Allow more steps, or ask for less."
                )
            case "error":
                event = self._error or ErrorHappened(
                    "", "The turn ended without an answer.", fix="Ask again."
                )
                kind = getattr(errors, event.kind, None)
                if not (isinstance(kind, type) and issubclass(kind, EcoshellError)):
                    kind = EcoshellError
                kind = BudgetError if kind is LimitReached else kind  # LimitReached needs a cap.
                return kind(event.message, kept=event.kept, fix=event.fix)

    def see(self, event: Event) -> None:
        """Update the state with one event."""
        match event:
            case TurnFinished():
                self.status, self.answer = event.status, event.answer or self.answer
                if event.status in ("error", "interrupted"):
                    self.answer = self.answer or self._unfinished
                self.spent_nano, self.usage = event.spent_nano, event.usage
                self.consumption = event.consumption
                self.steps, self.registered = event.steps, event.registered
            case TextArrived(channel="answer"):
                self.answer += event.text
            case TextArrived(channel="thought", node=""):
                self._unfinished += event.text
            case Rationale():
                self._unfinished = ""
            case StepStarted():
                self.steps, self.answer, self._unfinished = event.step, "", ""
            case ApprovalWanted():
                signature = visible_line(Call(event.name, event.arguments).signature())
                by = f"{event.agent}: " if event.agent else ""
                self._requested_calls[event.agent, event.id] = f"{by}{signature}"
            case ApprovalGiven(by="nobody"):
                self.refused += (self._requested_calls.get((event.agent, event.id), event.id),)
            case ToolRegistered():
                self.registered += (event.name,)
            case BudgetSettled() | SubagentFinished():
                spent = (self.spent_nano, event.spent_nano)
                self.spent_nano = None if None in spent else sum(nano or 0 for nano in spent)
                self.usage += event.usage
                self.consumption += event.consumption
            case LimitHit() | SubagentLimited():
                self._limit = event
            case LimitChosen(choice="raise" | "model"):
                self._limit = None
            case ErrorHappened():
                self._error = event
            case _:
                pass

    def result(self) -> Result:
        """Return the result event."""
        totals, estimate = self.consumption, None
        if totals.estimated or totals.estimated_nano:
            estimate = Estimate(_usd(totals.nano), totals.usage)
        return Result(
            status=self.status,
            answer=self.answer,
            cost_usd=_usd(self.spent_nano),
            usage=self.usage,
            estimate=estimate,
            steps=self.steps,
            registered=self.registered,
            refused=self.refused,
            session=self.session,
        )


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd_text(nano)


P = ParamSpec("P")
R = TypeVar("R")

ALL_TOOLS = ("*",)
"""All tools of a shell with these settings: built-in tools, and those of servers and plugins."""
_DEFAULT_SECONDS = Limits().seconds


class ToolFunction(FunctionTool, Generic[P, R]):
    """A function that is also a tool; it can still be called."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> ToolFunction[P, R]: ...


@overload
def tool(
    *,
    name: str = "",
    effects: Iterable[Effect] = (),
    seconds: float = ...,
    price: str | None = None,
) -> Callable[[Callable[P, R]], ToolFunction[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str = "",
    effects: Iterable[Effect] = (),
    seconds: float = _DEFAULT_SECONDS,
    price: str | None = None,
) -> ToolFunction[P, R] | Callable[[Callable[P, R]], ToolFunction[P, R]]:
    """Turn a plain or `async` function into a tool.

    Its signature becomes the schema, and the first line of its docstring the description. The model reads the returned
    text or JSON value; raise `ToolError` to report a failure to the model. `seconds` limits a call. Calls with
    `effects` beyond reading need approval, as the rules say. `price` is the cost of one use (`0.002`, `1c`) and counts
    under the caps. Raises UsageError for an invalid price or effect.
    """
    effect_set = frozenset(effects)
    # An unknown effect would bypass approval and read-only mode.
    if not effect_set <= {*get_args(Effect)}:
        fix = f"Available: {', '.join(get_args(Effect))}."
        raise UsageError(f"{effects!r} are not effects of a tool.", fix=fix)
    price_nano = 0
    if price is not None:
        amount = parse_amount(price)
        if amount.unit != "usd":
            raise UsageError(
                f"{price!r} is not a price of a tool.", fix="Use dollars, such as 0.002 or 1c."
            )
        price_nano = amount.value
    limits = Limits(seconds=seconds)

    def make(function: Callable[P, R]) -> ToolFunction[P, R]:
        return ToolFunction(
            function, effects=effect_set, limits=limits, name=name, price_nano=price_nano
        )

    return make if function is None else make(function)


class Agent:
    """An agent with one session, open within `async with`; it answers one question at a time.

    Entering raises SettingsError, StoreError, UsageError and, if the model cannot be loaded, ModelMissing.
    """

    def __init__(
        self,
        model: "str | Model | None" = None,
        *,
        tools: Sequence[Tool | str] = ALL_TOOLS,
        cap: str | None = None,
        home: str | Path | None = None,
        user: "UserInterface | None" = None,
        options: Options | None = None,
    ) -> None:
        """Configure the agent.

        `model` is a name as for `--model`, a model object that the caller closes, or None for the settings' model.
        `tools` are tool objects and names of tools, built-in or of plugins (`read_file`, `git_*`); the default is all
        tools of a shell, including those of servers. `cap` is the session's cap (`0.50`, `20000tok`, `2min`). Settings
        and data are below the folder `home`, by default the user's own. `user` decides approvals and limits; without
        it, calls that need approval are refused, and at a limit the agent answers with what was found so far. `options`
        are those of the command line, such as the workspace.
        """
        self.outcome = Outcome()
        """The state of the last question, also while it runs and after `ask` has raised."""
        options = options or Options()
        self._owned = None if isinstance(model, str) else model
        name = self._owned.traits.name if self._owned else (model or options.model)
        self._options = replace(options, model=name, budget=options.budget if cap is None else cap)
        if self._options.budget is not None:
            parse_amount(self._options.budget)
        self._tools = tools
        self._paths = user_paths() if home is None else Paths.under(home)
        self._user = user
        self._shell: Shell | None = None
        self.on_event: Callable[[Event], None] = lambda event: None
        """Receives events that happen outside a turn, such as the end of a background command."""

    async def __aenter__(self) -> Self:
        from ecoshell.assembly import tools_of
        from ecoshell.assembly.model_factory import lending
        from ecoshell.assembly.shell import assemble

        if self._shell is not None:
            raise UsageError(
                "The agent is already open.", fix="Open a second agent for parallel work."
            )
        own = self._owned
        self._shell = await assemble(
            self._options,
            self._user,
            paths=self._paths,
            model_factory=lending(
                lambda name: own if own is not None and name == own.traits.name else None
            ),
            tools=tools_of if tuple(self._tools) == ALL_TOOLS else self._tools_of,
        )
        self._shell.on_event = self.on_event
        self.outcome.session = self._shell.session
        await self._shell.warm()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the running turn and close the agent."""
        shell, self._shell = self._open, None
        await shell.aclose()

    async def ask(self, question: str, attachments: Sequence[Attachment] = ()) -> Outcome:
        """Ask a question and return the outcome.

        Raises LimitReached at a cap, StepsSpent at the step limit, GaveUp, TurnStopped, ModelError, BudgetError and
        StoreError; `outcome` then holds a partial answer, if any. Raises UsageError as `stream` does.
        """
        async with aclosing(self.stream(question, attachments)) as events:
            async for _ in events:
                pass
        if (failure := self.outcome.failure) is not None:
            raise failure
        return self.outcome

    async def stream(
        self, question: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncGenerator[Event]:
        """Yield the events of a turn as they happen; the last is always TurnFinished.

        Raises UsageError for an empty question, for a command of the chat and while another turn runs, and StoreError.
        """
        shell, outcome = self._open, Outcome(session=self.session)
        await shell.require_question(question)
        async with aclosing(shell.ask(question, attachments)) as events:
            async for event in events:
                self.outcome = outcome
                outcome.see(event)
                yield event
        if self.outcome is not outcome:  # Stopped before the turn started.
            outcome.status, self.outcome = "interrupted", outcome

    async def accept_plan(self, text: str = "", *, edits: bool = False) -> Outcome:
        """Carry out the last written plan, or `text` in its place, and return the outcome; raises as `ask` does.

        A plan is the answer of an agent with `Options(approval_mode="plan")`. `edits` accepts writes inside the
        workspace without asking.
        """
        return await self.ask(await self._open.accept_plan(text, edits=edits))

    async def stop(self) -> None:
        """Stop the running turn; its `ask` raises TurnStopped."""
        await self._open.stop()

    @property
    def session(self) -> str:
        """The session's ID, for `Options(resume=…)` and `ecoshell --resume`."""
        return self._open.session

    @property
    def resumed(self) -> Notice | None:
        """The notice about a resumed session; None for a new one."""
        return self._open.resumed

    @property
    def todo(self) -> tuple[TodoItem, ...]:
        """The agent's task list."""
        return self._open.conversation.memory.shown.todo

    async def caps(self) -> tuple[CapState, ...]:
        """Return the caps with their spent, held and remaining amounts."""
        return await self._open.deps.budget.caps()

    async def set_cap(self, scope: Scope, cap: str | None) -> None:
        """Set or, with None, remove the cap of a turn, the session, the day or the month. Raises UsageError."""
        await self._open.set_cap(scope, None if cap is None else parse_amount(cap))

    @property
    def _open(self) -> "Shell":
        if self._shell is None:
            raise UsageError(
                "The agent is not open.", fix="Use it within `async with Agent(…) as agent:`."
            )
        return self._shell

    def _tools_of(self, settings: "Settings", workspace: "Workspace") -> list[Tool]:
        from ecoshell.assembly import plugin_tools, tool_named

        by_name = plugin_tools(settings, self._paths, workspace, lambda _: None)
        chosen: list[Tool] = []
        for selector in self._tools:
            if isinstance(selector, str):
                names = fnmatch.filter(by_name, selector)
                matches = [by_name[name] for name in names]
                matches = matches or [tool_named(selector, [*by_name.values()])]
                chosen += [tool for tool in matches if tool not in chosen]
            elif isinstance(cast("object", selector), Tool):
                chosen.append(selector)
            else:
                raise UsageError(
                    f"{selector!r:.80} is not a tool.", fix="Mark a function with @ecoshell.tool."
                )
        return chosen
