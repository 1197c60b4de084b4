"""ecoshell for Python programs: an agent within its caps, and functions as its tools.

from ecoshell import Agent, tool

@tool
def stock(item: str) -> int:
    \"\"\"Tell how many of an item are in stock.\"\"\"
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
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Generic, ParamSpec, Self, TypeVar, cast, get_args, overload

from ecoshell import errors
from ecoshell.budget import CapState, Scope, nano_to_usd_text, parse_amount
from ecoshell.errors import BudgetError, EcoshellError, GaveUp, LimitReached, StepsSpent, TurnStopped, UsageError
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetSettled,
    ErrorHappened,
    Event,
    LimitChosen,
    LimitHit,
    Notice,
    Status,
    StepStarted,
    Taken,
    TextArrived,
    ToolRegistered,
    TurnFinished,
)
from ecoshell.messages import Attachment, Call, Effect, Usage, visible_line
from ecoshell.options import Options
from ecoshell.paths import Paths, user_paths
from ecoshell.tools import Limits, Tool
from ecoshell.tools.function import FunctionTool

if TYPE_CHECKING:  # what builds an agent is imported once one is opened
    from ecoshell.agent import UserInterface
    from ecoshell.agent.shell import Shell
    from ecoshell.models import Model
    from ecoshell.settings.schema import Settings
    from ecoshell.tools.workspace import Workspace


EXIT_STATUS: Mapping[Status, int] = {"answered": 0, "error": 1, "limit": 3, "gave_up": 4, "interrupted": 130}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost and usage with calls that reported none as a tokenizer counts them."""

    cost_usd: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Result(Event):
    """What the turn came to: the last line of `ask --json`, which no session holds."""

    type: ClassVar[str] = "result"
    status: Status
    answer: str
    cost_usd: str | None
    """Decimal dollars; null when a part of the price is unknown."""
    usage: Usage
    estimate: Estimate | None
    """Null where all calls have reported."""
    steps: int
    registered: tuple[str, ...]
    refused: tuple[str, ...]
    """Calls that needed an approval while nobody was there to ask."""
    session: str | None
    """Null when no turn could begin."""


@dataclass(slots=True)
class Outcome:
    """Read from the events as they come, so that it is true at every moment, also when the last event never comes."""

    status: Status = "error"
    answer: str = ""
    spent_nano: int | None = 0
    usage: Usage = field(default_factory=Usage)
    taken: Taken = field(default_factory=Taken)
    """What it took as people are shown it."""
    steps: int = 0
    registered: tuple[str, ...] = ()
    session: str | None = None
    refused: tuple[str, ...] = ()
    """Calls that needed an approval while nobody was there to ask."""
    _asked: dict[str, str] = field(default_factory=dict[str, str])
    _limit: LimitHit | None = None
    """At which the turn stands, or has ended."""
    _error: ErrorHappened | None = None

    @property
    def exit_status(self) -> int:
        """What the process ends with; an answer beside a call that nobody could approve is not all that was asked."""
        return EXIT_STATUS["gave_up" if self.refused and self.status == "answered" else self.status]

    @property
    def cost_usd(self) -> Decimal | None:
        """Dollars; None when a part of the price is unknown."""
        return None if self.spent_nano is None else Decimal(nano_to_usd_text(self.spent_nano))

    @property
    def failure(self) -> EcoshellError | None:
        """Why there is no answer, or none but one from what there was; None where the turn was answered."""
        match self.status:
            case "answered":
                return None
            case "gave_up":
                return GaveUp(self.answer or "The agent gave up.")
            case "interrupted":
                return TurnStopped("The turn was stopped.", kept="The session is kept.")
            case "limit" if (hit := self._limit) is not None:
                return LimitReached(hit.message, scope=hit.scope, need=hit.need, left=hit.left, unit=hit.unit)
            case "limit":
                return StepsSpent("The turn ended before it was done.", fix="Allow more steps, or ask for less.")
            case "error":
                event = self._error or ErrorHappened("", "The turn ended without an answer.", fix="Ask again.")
                found = getattr(errors, event.kind, None)
                kind = found if isinstance(found, type) and issubclass(found, EcoshellError) else EcoshellError
                return (BudgetError if kind is LimitReached else kind)(event.message, kept=event.kept, fix=event.fix)

    def see(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case TurnFinished():
                self.status, self.answer = event.status, event.answer or self.answer
                self.spent_nano, self.usage, self.taken = event.spent_nano, event.usage, event.taken
                self.steps, self.registered = event.steps, event.registered
            case TextArrived(channel="answer"):
                self.answer += event.text
            case StepStarted():
                self.steps, self.answer = event.step, ""
            case ApprovalWanted():
                self._asked[event.id] = visible_line(Call(event.name, event.arguments).signature())
            case ApprovalGiven(by="nobody"):
                self.refused += (self._asked.get(event.id, event.id),)
            case ToolRegistered():
                self.registered += (event.name,)
            case BudgetSettled():
                unknown = self.spent_nano is None or event.spent_nano is None
                self.spent_nano = None if unknown else (self.spent_nano or 0) + (event.spent_nano or 0)
                self.usage += event.usage
                self.taken = self.taken.plus(event)
            case LimitHit():
                self._limit = event
            case LimitChosen(choice="raise" | "model"):
                self._limit = None
            case ErrorHappened():
                self._error = event
            case _:
                pass

    def result(self) -> Result:
        """What it came to, as programs are told it."""
        taken, estimate = self.taken, None
        if taken.estimated or taken.estimated_nano:
            estimate = Estimate(None if taken.nano is None else nano_to_usd_text(taken.nano), taken.usage)
        return Result(
            status=self.status,
            answer=self.answer,
            cost_usd=None if self.spent_nano is None else nano_to_usd_text(self.spent_nano),
            usage=self.usage,
            estimate=estimate,
            steps=self.steps,
            registered=self.registered,
            refused=self.refused,
            session=self.session,
        )


P = ParamSpec("P")
R = TypeVar("R")

EVERY_TOOL = ("*",)
"""All tools that a shell has with these settings: built-in ones, and those of servers and plugins."""
_SECONDS = Limits().seconds


class ToolFunction(FunctionTool, Generic[P, R]):
    """A function that is a tool too; it can still be called."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> ToolFunction[P, R]: ...


@overload
def tool(
    *, name: str = "", effects: Iterable[Effect] = (), seconds: float = ..., price: str | None = None
) -> Callable[[Callable[P, R]], ToolFunction[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str = "",
    effects: Iterable[Effect] = (),
    seconds: float = _SECONDS,
    price: str | None = None,
) -> ToolFunction[P, R] | Callable[[Callable[P, R]], ToolFunction[P, R]]:
    """Make a function, plain or `async`, a tool: its signature is the schema, its docstring's first line what it does.

    What it returns (a text, or anything JSON can say) is what the model reads; `ToolError` tells the model what went
    wrong. A call takes `seconds` at most. One with `effects` beyond reading is asked about first, as the rules say.
    `price` is what one use costs (`0.002`, `1c`), and counts under the caps. Raises UsageError for what is no price or
    no effect.
    """
    known = frozenset(effects)
    if not known <= {*get_args(Effect)}:  # what is none would be neither asked about nor kept from a read-only shell
        raise UsageError(f"{effects!r} are no effects of a tool.", fix=f"Give some of {[*get_args(Effect)]}.")
    price_nano = 0
    if price is not None:
        amount = parse_amount(price)
        if amount.unit != "usd":
            raise UsageError(f"{price!r} is no price of a tool.", fix="Give dollars, such as 0.002 or 1c.")
        price_nano = amount.value
    limits = Limits(seconds=seconds)

    def made(function: Callable[P, R]) -> ToolFunction[P, R]:
        return ToolFunction(function, effects=known, limits=limits, name=name, price_nano=price_nano)

    return made if function is None else made(function)


class Agent:
    """An agent in a session of its own, open within `async with`; one question is answered at a time.

    Entering raises SettingsError, StoreError, UsageError and, where the model cannot be had, ModelMissing.
    """

    def __init__(
        self,
        model: "str | Model | None" = None,
        *,
        tools: Sequence[Tool | str] = EVERY_TOOL,
        cap: str | None = None,
        home: str | Path | None = None,
        user: "UserInterface | None" = None,
        options: Options | None = None,
    ) -> None:
        """`model` is a name as for `--model`, a model of one's own, which its owner closes, or None for the settings'.

        `tools` are tools, and names of built-in ones (`read_file`, `*_file`); without them there are all that a shell
        has, those of its servers and plugins, too. `cap` is the session's (`0.50`, `20000tok`).
        Settings and all that is kept are below the folder `home`; None is where the user's shells have theirs. `user`
        decides what the rules ask about; without one nothing of that runs, and at a limit the answer comes from what
        there is. `options` are those of the command line, such as the workspace.
        """
        self.outcome = Outcome()
        """What the last question came to, so far as it has come; also where `ask` has raised."""
        options = options or Options()
        self._owned = None if model is None or isinstance(model, str) else model
        name = self._owned.traits.name if self._owned else model if isinstance(model, str) else options.model
        self._options = replace(options, model=name, budget=options.budget if cap is None else cap)
        if self._options.budget is not None:
            parse_amount(self._options.budget)
        self._tools = tools
        self._paths = user_paths() if home is None else Paths.under(home)
        self._user = user
        self._shell: Shell | None = None

    async def __aenter__(self) -> Self:
        from ecoshell.assembly import tools_of
        from ecoshell.assembly.model_factory import lending
        from ecoshell.assembly.shell import assemble

        if self._shell is not None:
            raise UsageError("The agent is open already.", fix="Open another one for what goes on beside it.")
        own = self._owned
        self._shell = await assemble(
            self._options,
            self._user,
            paths=self._paths,
            model_factory=lending(lambda name: own if own is not None and name == own.traits.name else None),
            tools=tools_of if tuple(self._tools) == EVERY_TOOL else self._tools_of,
        )
        self.outcome.session = self._shell.session
        await self._shell.warm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        """Stop what runs and close what is open."""
        shell, self._shell = self._open, None
        await shell.aclose()

    async def ask(self, question: str, attachments: Sequence[Attachment] = ()) -> Outcome:
        """The answer, with what it took.

        Raises LimitReached at a cap, StepsSpent at the step limit, GaveUp, TurnStopped, ModelError, BudgetError and
        StoreError; what there is of an answer is then in `outcome`.
        """
        async with aclosing(self.stream(question, attachments)) as events:
            async for _ in events:
                pass
        if (failure := self.outcome.failure) is not None:
            raise failure
        return self.outcome

    async def stream(self, question: str, attachments: Sequence[Attachment] = ()) -> AsyncGenerator[Event]:
        """Every event of the turn as it happens; however the turn ends, the last is TurnFinished.

        Raises UsageError for an empty question and while another turn runs, and StoreError.
        """
        shell, outcome = self._open, Outcome(session=self.session)
        async with aclosing(shell.ask(question, attachments)) as events:
            async for event in events:
                self.outcome = outcome
                outcome.see(event)
                yield event
        if self.outcome is not outcome:  # it was stopped before the turn began
            outcome.status, self.outcome = "interrupted", outcome

    async def stop(self) -> None:
        """Stop the turn that runs; its `ask` raises TurnStopped."""
        await self._open.stop()

    @property
    def session(self) -> str:
        """The session's id, by which `Options(resume=…)` and `ecoshell --resume` go on with it."""
        return self._open.session

    @property
    def resumed(self) -> Notice | None:
        """With what a session goes on that was there before."""
        return self._open.resumed

    async def caps(self) -> tuple[CapState, ...]:
        """The caps as they stand: what was spent, what is held, what is left."""
        return await self._open.deps.budget.caps()

    async def set_cap(self, scope: Scope, cap: str | None) -> None:
        """Set the cap of a turn, the session, the day or the month; None removes it. Raises UsageError."""
        await self._open.set_cap(scope, None if cap is None else parse_amount(cap))

    @property
    def _open(self) -> "Shell":
        if self._shell is None:
            raise UsageError("The agent is not open.", fix="Use it within `async with Agent(…) as agent:`.")
        return self._shell

    def _tools_of(self, settings: "Settings", workspace: "Workspace") -> list[Tool]:
        from ecoshell.assembly import tool_named, tools_of

        built_in = {one.document.name: one for one in tools_of(settings, workspace)}
        chosen: list[Tool] = []
        for wanted in self._tools:
            if isinstance(wanted, str):
                names = fnmatch.filter(built_in, wanted)
                found = [built_in[name] for name in names] or [tool_named(wanted, [*built_in.values()])]
                chosen += [one for one in found if one not in chosen]
            elif isinstance(cast("object", wanted), Tool):
                chosen.append(wanted)
            else:
                raise UsageError(f"{wanted!r:.80} is no tool.", fix="Mark a function with @ecoshell.tool.")
        return chosen
