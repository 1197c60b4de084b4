"""What status lines and side panels show of a shell: its session, models, caps and tools."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecoshell.agent.mode import of_step
from ecoshell.agent.offer import names_room, names_tokens
from ecoshell.budget import CapState
from ecoshell.events import (
    ContextTold,
    Event,
    PlanChanged,
    ToolRegistered,
    ToolUnregistered,
    TurnStarted,
)
from ecoshell.messages import Effect, ToolSchema
from ecoshell.models import estimate

if TYPE_CHECKING:
    from ecoshell.agent.conversation import Conversation
    from ecoshell.agent.dependencies import Dependencies
    from ecoshell.agent.shell import Shell


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A known tool."""

    name: str
    tokens: int
    registered: bool
    by: str
    """Who registered it; empty if it is not registered."""
    description: str


@dataclass(frozen=True, slots=True)
class ShellStatus:
    """The status of the open session."""

    session: str
    title: str
    model: str
    mode: str
    strategy: str
    caps: tuple[CapState, ...]
    """Without a team's caps if its server is unavailable."""
    spent_nano: int | None
    """Spent in this session; None if partly unknown."""
    used_tokens: int
    tools: tuple[ToolRow, ...]
    context_tokens: int
    """Tokens of the registered tool schemas and of the names of the other tools."""
    everything_tokens: int
    """Tokens of all tool schemas."""
    exact: bool
    next_nano: int | None = None
    """The largest reservation for the next step; None if the price is unknown."""
    next_tokens: int | None = None
    """The same in tokens."""
    plan: str = "btp"
    """How turns are planned: `off`, `btp`, `prompt`, `btp+prompt`."""
    effort: str = "auto"
    approval_mode: str = "ask"
    """`ask`, `plan` (plan mode) or `edits` (edits are accepted)."""
    players: tuple[tuple[str, str], ...] = ()
    """Each role and the name of its model."""
    context: ContextTold | None = None
    """The workspace context that the model received; None before the first turn."""
    planned: PlanChanged | None = None
    """The plan of the last turn under the present caps; None before the first turn and during a turn."""
    away: bool = False
    """Whether a team's caps are unknown."""
    estimated: bool = False
    """Whether `used_tokens` is partly an estimate."""
    estimated_nano: bool = False
    """Whether `spent_nano` is partly an estimate."""
    is_free: bool = False
    """Whether the session's models cost nothing, so that tokens and time are what counts."""
    background: int = 0
    """Commands that run in the background."""
    used_ms: int | None = 0
    """Working time of this session; None if partly unknown."""
    next_ms: int | None = None
    """Expected working time of the next step: the mean of the model's last ones; None before the first."""


def shell_status(shell: "Shell") -> ShellStatus:
    """The status of the shell without the plan of its last turn; may block."""
    deps, conversation, session = shell.deps, shell.conversation, shell.session
    tools, exact = _tool_rows(deps, conversation)
    loaded_names = {tool.name for tool in tools if tool.registered}
    shown_names = (conversation.memory.shown.names or {*deps.catalog.names}) - loaded_names
    listed = (name for name in deps.catalog.names if name in shown_names)
    names = names_tokens(deps, listed, lambda parts: deps.models.current.sizes_at_hand(parts)[0])
    spent = shell.ledger.session_row(session)
    pace = shell.ledger.pace(deps.models.name)
    next_step = of_step(deps.models.current.mode.forecast(conversation.ahead))
    return ShellStatus(
        session=session,
        title=shell.store.title(session),
        model=deps.models.name,
        mode=deps.models.mode,
        strategy=deps.settings.strategy,
        caps=shell.ledger.caps(session, conversation.turn),
        spent_nano=spent.shown_nano if spent else 0,
        used_tokens=spent.shown_usage.total if spent else 0,
        tools=tools,
        context_tokens=min(names, names_room(deps))
        + sum(tool.tokens for tool in tools if tool.registered),
        everything_tokens=sum(tool.tokens for tool in tools),
        exact=exact,
        next_nano=next_step.nano,
        next_tokens=next_step.tokens,
        plan=deps.settings.plan,
        effort=deps.settings.effort,
        approval_mode=deps.settings.approval_mode,
        players=deps.models.current.seats,
        context=conversation.memory.shown.context,
        away=shell.ledger.away is not None,
        estimated=spent is not None and spent.estimate is not None,
        estimated_nano=spent is not None and spent.estimate_nano is not None,
        is_free=deps.models.current.is_free,
        background=len(deps.workspace.background.running),
        used_ms=spent.ms if spent else 0,
        next_ms=None if pace is None else pace.step_ms,
    )


def _tool_rows(
    deps: "Dependencies", conversation: "Conversation"
) -> tuple[tuple[ToolRow, ...], bool]:
    """All known tools, and whether their token counts are exact."""
    schemas, registered = deps.catalog.schemas, conversation.memory.library.tools
    texts = conversation.memory.presentation.prompt_texts(schemas)
    sizes, exact = deps.models.current.sizes_at_hand(texts)
    rows: list[ToolRow] = []
    for schema, tokens in zip(schemas, sizes, strict=True):
        tool = registered.get(schema.name)
        by = "" if tool is None else tool.by
        rows.append(ToolRow(schema.name, tokens, tool is not None, by, schema.summary))
    for skill in deps.catalog.skills.values():
        loaded = registered.get(skill.name)
        tokens = estimate(skill.sketch) if loaded is None else loaded.tokens
        rows.append(
            ToolRow(
                skill.name,
                tokens,
                loaded is not None,
                loaded.by if loaded else "",
                f"skill: {skill.description}",
            )
        )
    return tuple(rows), exact


@dataclass(frozen=True, slots=True)
class RegistrationTime:
    """When a tool was registered."""

    at: float
    """Seconds since 1970."""
    turn: int
    """0 before the first turn."""
    step: int


@dataclass(frozen=True, slots=True)
class ToolDetails:
    """A tool with its schema, size and registration."""

    schema: ToolSchema
    effects: tuple[Effect, ...]
    price_nano: int
    tokens: int
    exact: bool
    by: str
    """Who registered it (agent, user, upfront); empty if it is not registered."""
    since: RegistrationTime | None
    why: str
    """Why its schema is loaded or not; empty before the first turn."""
    skill: str = ""
    """The text of a skill; empty for a tool."""


def registration_time(name: str, events: Iterable[tuple[float, Event]]) -> RegistrationTime | None:
    """When the tool was registered, from a session's events; None if it is not registered."""
    registration: RegistrationTime | None = None
    turn = 0
    for at, event in events:
        match event:
            case TurnStarted():
                turn = event.turn
            case ToolRegistered() if event.name == name and registration is None:
                registration = RegistrationTime(at, turn, event.step)
            case ToolUnregistered() if event.name == name:
                registration = None
            case _:
                pass
    return registration
