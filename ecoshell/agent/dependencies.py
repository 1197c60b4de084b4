"""The parts that the conversations of a shell share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ecoshell.agent.approval import Approvals
from ecoshell.agent.environment import Environment
from ecoshell.agent.experience import Experience
from ecoshell.agent.judge import JUDGES, Judge
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.providers import ProviderFollower
from ecoshell.agent.session_settings import SessionSettings
from ecoshell.agent.spending import SessionBudget
from ecoshell.agent.user_interface import NonInteractive, UserInterface
from ecoshell.agent.workspace import WorkspaceService
from ecoshell.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import UsageError
from ecoshell.sessions import EventLog
from ecoshell.strategies import StrategySpec

if TYPE_CHECKING:  # loaded with the first profile and the first definition of an agent
    from ecoshell.agent.agent_files import AgentFiles
    from ecoshell.agent.hooks import Hooks
    from ecoshell.agent.skill_files import SkillFiles
    from ecoshell.planning.catp.costs import CostTable


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Profiles:
    """The results of `ecoshell profile`."""

    unit_nano: int
    """The price of one of OpenCATP's price units, in nano-dollars."""
    resources: Mapping[str, int]
    """The value of the time and memory of one run of each profiled tool, in nano-dollars; it is never charged."""
    costs: "Callable[[], CostTable]"
    """The costs of tools by the size of their input; may block."""


def no_such(kind: str, name: str, names: Iterable[str]) -> UsageError:
    """The error for an unknown strategy or judge."""
    return UsageError(f"Unknown {kind} {name!r}.", fix=f"Available: {', '.join(names)}.")


class OptionalPart(Generic[T]):
    """A part of a shell that is made once one of its files or folders exists."""

    def __init__(
        self, make: Callable[[], T], places: Sequence[Path], *, is_needed: bool = False
    ) -> None:
        """`is_needed` makes it without any of the files."""
        self._make = make
        self._places = places
        self._is_needed = is_needed
        self._part: T | None = None

    def __call__(self) -> T | None:
        """Return the part; None without its files. May block."""
        if self._part is None and (self._is_needed or any(map(Path.exists, self._places))):
            self._part = self._make()
        return self._part


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The shared parts, built by assembly; `settings` and `models` hold what changes during a session."""

    catalog: Catalog
    ranker: Ranker
    providers: ProviderFollower
    budget: SessionBudget
    log: EventLog
    approvals: Approvals
    strategies: Mapping[str, StrategySpec]
    user: UserInterface
    workspace: WorkspaceService
    environment: Environment
    experience: Experience
    judge: Judge
    profiles: Profiles
    models: ActiveModels
    settings: SessionSettings
    agents: "Callable[[], AgentFiles]"
    """The agents that the tool `task` can name."""
    hooks: "OptionalPart[Hooks]"
    skills: "OptionalPart[SkillFiles]"
    agent: str = ""
    """The name of the subagent that uses them; empty for the session's own agent."""

    def require(self, name: str, value: object) -> None:
        """Raise UsageError if `value` is not an installed strategy or judge; `name` is a field of SessionSettings."""
        names = {"strategy": tuple(self.strategies), "judge": (*JUDGES, *self.judge.more)}.get(name)
        if names is not None and value not in names:
            raise no_such(name, str(value), names)

    @property
    def by_program(self) -> bool:
        """Whether the model first tries one program for a request about files, which some small models do better.

        Programs need a user who can be asked, or rules that allow them.
        """
        models, rules = self.models.current, self.approvals.rules
        if not models.mode.by_program or rules.read_only or self.settings.approval_mode == "plan":
            return False
        has_user = type(self.user) is not NonInteractive
        return has_user or (rules.yes and self.approvals.trusts(models.caller.traits))

    @property
    def strategy(self) -> StrategySpec:
        """The strategy of the next turn."""
        return self.strategies[self.settings.strategy]
