"""What status lines and side panels show of a shell: its session, models, caps and tools."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ecoshell.agent.mode import USUAL_OUTPUT, CallForecast, of_step
from ecoshell.agent.offer import first_load, names_room, names_tokens
from ecoshell.budget import CapState
from ecoshell.events import ContextTold, PlanChanged
from ecoshell.messages import Effect, ToolSchema
from ecoshell.models import estimate

if TYPE_CHECKING:
    from ecoshell.agent.conversation import Conversation
    from ecoshell.agent.dependencies import Dependencies
    from ecoshell.agent.shell import Shell


_CAPPED_STEPS = 4
"""Steps for which a suggested cap has room."""
_PLAIN_CAPS = (20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000)
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A known tool."""

    name: str
    tokens: int
    registered: bool
    by: str
    """Who registered it; empty if it is not registered."""
    description: str
    ahead: bool = False
    """Whether the session's first question will load it."""

    @property
    def loaded(self) -> bool:
        """Whether its schema is in the context, or will be with the first question."""
        return self.registered or self.ahead


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
    """Tokens of the loaded tool schemas and of the names of the other tools."""
    everything_tokens: int
    exact: bool
    next_nano: int | None = None
    """The largest reservation for the next step; None if the price is unknown."""
    next_tokens: int | None = None
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
    used_ms: int | None = 0
    """Working time of this session; None if partly unknown."""
    next_ms: int | None = None
    """Expected working time of the next step: the mean of the model's last ones; None before the first."""
    token_cap: str = "20000tok"
    """The suggested cap in tokens, as a user types it; empty under a cap."""

    @property
    def is_priced(self) -> bool:
        """Whether a cap in dollars limits the session's models: every price is known, and one is above 0."""
        return not self.is_free and self.next_nano is not None


def shell_status(shell: "Shell") -> ShellStatus:
    """The status of the shell without the plan of its last turn; may block."""
    deps, conversation, session = shell.deps, shell.conversation, shell.session
    caps = shell.ledger.caps(session, conversation.turn)
    tools, exact = _tool_rows(deps, conversation, caps)
    loaded_names = {tool.name for tool in tools if tool.loaded}
    shown_names = (conversation.memory.shown.names or {*deps.catalog.names}) - loaded_names
    listed = (name for name in deps.catalog.names if name in shown_names)
    names = names_tokens(deps, listed, lambda parts: deps.models.current.sizes_at_hand(parts)[0])
    spent = shell.ledger.session_row(session)
    pace = shell.ledger.pace(deps.models.name)
    next_step = of_step(deps.models.current.mode.forecast(conversation.ahead), caps)
    return ShellStatus(
        session=session,
        title=shell.store.title(session),
        model=deps.models.name,
        mode=deps.models.mode,
        strategy=deps.settings.strategy,
        caps=caps,
        spent_nano=spent.shown_nano if spent else 0,
        used_tokens=spent.shown_usage.total if spent else 0,
        tools=tools,
        context_tokens=min(names, names_room(deps))
        + sum(tool.tokens for tool in tools if tool.loaded),
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
        token_cap="" if caps else suggested_token_cap(shell),
    )


def suggested_token_cap(shell: "Shell") -> str:
    """A cap in tokens with room for four steps like the next one and the answer, as a user types it; may block."""
    deps, conversation = shell.deps, shell.conversation
    view, memory = conversation.ahead, conversation.memory
    if memory.shown.presentation is None:
        presentation, loaded = first_load(deps, memory.library, ())
        registered = deps.catalog.schemas_of((*memory.library.tools, *loaded))
        view = replace(view, presentation=presentation, registered=registered)
    forecast = deps.models.current.mode.forecast(view)
    need = _CAPPED_STEPS * max(map(_held, forecast.steps))
    if forecast.conclusion is not None:
        need += _held(forecast.conclusion, forecast.slack)
    return f"{next((cap for cap in _PLAIN_CAPS if cap >= need), _PLAIN_CAPS[-1])}tok"


def _held(call: CallForecast, slack: int = 0) -> int:
    """The tokens reserved for a call with a reply of usual length."""
    output = min(call.request.max_tokens, USUAL_OUTPUT)
    if call.model.loaded:
        return call.model.reservation(call.request, call.role, slack).prompt_tokens + output
    # a model that is not loaded yet will count its prompt exactly
    return call.model.bound(call.request) // _BYTES_PER_TOKEN + slack + output


def _tool_rows(
    deps: "Dependencies", conversation: "Conversation", caps: Sequence[CapState]
) -> tuple[tuple[ToolRow, ...], bool]:
    """All known tools, and whether their token counts are exact."""
    memory, schemas = conversation.memory, deps.catalog.schemas
    registered, presentation, ahead = memory.library.tools, memory.presentation, tuple[str, ...]()
    if memory.shown.presentation is None:
        presentation, ahead = first_load(deps, memory.library, caps)
    texts = presentation.prompt_texts(schemas)
    sizes, exact = deps.models.current.sizes_at_hand(texts)
    rows: list[ToolRow] = []
    for schema, tokens in zip(schemas, sizes, strict=True):
        tool = registered.get(schema.name)
        by = "" if tool is None else tool.by
        is_ahead = schema.name in ahead
        rows.append(ToolRow(schema.name, tokens, tool is not None, by, schema.summary, is_ahead))
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
class ToolDetails:
    """A tool with its schema, size and registration."""

    schema: ToolSchema
    effects: tuple[Effect, ...]
    price_nano: int
    tokens: int
    exact: bool
    by: str
    """Who registered it (agent, user, upfront); empty if it is not registered."""
    why: str
    """Why its schema is loaded or not; empty before the first turn."""
    skill: str = ""
