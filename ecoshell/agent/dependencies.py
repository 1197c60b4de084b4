"""What conversations work with: parts that never change while a shell runs, and what a person may change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

from ecoshell.agent.approval import Approvals
from ecoshell.agent.environment import Environment
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.planning import Planning
from ecoshell.agent.user_interface import UserInterface
from ecoshell.agent.workspace import WorkspaceService
from ecoshell.budget.caps import CapState, Scope
from ecoshell.budget.gate import Gate
from ecoshell.budget.holds import Account
from ecoshell.budget.money import Amount
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.events import Event
from ecoshell.options import Presentation, Registration, RoleModels
from ecoshell.strategies.base import Way


@dataclass(slots=True)
class SessionSettings:
    """What a person may change while a session runs, beside caps and models; it holds from the next turn on.

    A field with a `key` is given by the settings file under that key, and by an option of its name for one run.
    """

    strategy: str = field(default="react", metadata={"key": "agent.strategy"})
    registration: Registration = field(default="auto", metadata={"key": "agent.registration"})
    presentation: Presentation = field(default="auto", metadata={"key": "agent.presentation"})
    max_steps: int = field(default=24, metadata={"key": "agent.max_steps"})
    compact_model: str | None = field(default=None, metadata={"key": "agent.compact_model"})
    """A model that writes the summary of /compact in the place of the session's."""
    names_share: float = field(default=0.1, metadata={"key": "registration.names_share"})
    """The share of the context that names may take before only a shortlist is shown."""
    ask_above_nano: int | None = field(default=None, metadata={"key": "budget.ask_above"})
    """A step that may cost more is asked about first; None is never."""
    presets: Mapping[str, RoleModels] = field(default_factory=dict[str, RoleModels])
    """Models of roles that the settings give together, by the name of the whole."""
    named_models: Sequence[str] = ()
    """Models the settings speak of."""
    readers: set[str] = field(default_factory=set[str])
    """Models beside the session's that were named to the person before they read the conversation."""


SETTING_KEYS: Mapping[str, str] = {
    one.metadata["key"]: one.name for one in fields(SessionSettings) if "key" in one.metadata
}
"""The keys of the settings file that a running shell goes by, each with the field that holds it."""


class SessionBudget:
    """The gate as one session's present turn uses it: knows whose money is being spent."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._session = ""
        self._turn = 0

    def enter(self, session: str, turn: int) -> None:
        """From now on calls are this session's, in this turn."""
        self._session, self._turn = session, turn

    def account(self) -> Account:
        """Whose money a call made now is; role, model and purpose are for the caller to fill in."""
        return Account(session=self._session, turn=self._turn, role="", model="", purpose="")

    async def caps(self) -> tuple[CapState, ...]:
        """The caps over the turn of the moment."""
        return await self.gate.caps(self.account())

    async def caps_at_rest(self) -> tuple[CapState, ...]:
        """The same, without what calls hold that are under way, most of which will be free again."""
        return await self.gate.caps_at_rest(self.account())

    async def set_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Set a cap, or remove the scope's with None."""
        await self.gate.set_cap(self.account(), scope, amount)

    async def require(self, nano: int) -> None:
        """Raise LimitReached when a cap does not leave this much now; nothing is reserved by asking."""
        await self.gate.require(self.account(), nano)

    async def charge_tool(self, tool: str, nano: int) -> None:
        """Pay for one use of a tool; raises LimitReached."""
        await self.gate.charge_tool(self.account(), tool, nano)


class Log(Protocol):
    """Where events are kept, in order, before anybody sees them and before what they announce is done."""

    async def record(self, session: str, events: Sequence[Event]) -> None: ...

    def keep(self, session: str, events: Sequence[Event]) -> None:
        """Keep events for the next `record` or `flush` to write."""
        ...

    async def flush(self) -> None:
        """Return when what was kept is on disk; raises StoreError when it cannot be written."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts that the conversations of a shell share; assembly builds them, and nothing else does.

    What changes while they run is in `settings` and `models`, and in what plans go by.
    """

    catalog: Catalog
    ranker: Ranker
    budget: SessionBudget
    log: Log
    approvals: Approvals
    strategies: Mapping[str, Way]
    user: UserInterface
    workspace: WorkspaceService
    environment: Environment
    planning: Planning
    models: ActiveModels
    settings: SessionSettings

    @property
    def strategy(self) -> Way:
        """The strategy of the next turn."""
        return self.strategies[self.settings.strategy]
