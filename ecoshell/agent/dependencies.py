"""What conversations work with: parts that never change while a shell runs, and what a person may change."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Literal

from ecoshell.agent import NonInteractive, UserInterface
from ecoshell.agent.approval import Approvals
from ecoshell.agent.limits import Limit
from ecoshell.agent.model_set import ActiveModels, ModelSet
from ecoshell.agent.providers import ProviderFollower
from ecoshell.agent.workspace import Environment, WorkspaceService
from ecoshell.budget import NANO, Account, Amount, CapState, Scope
from ecoshell.budget.gate import Gate, finished
from ecoshell.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.errors import EcoshellError, ModelBroken, StoreError, UsageError
from ecoshell.events import Emit, Notice
from ecoshell.messages import Call, Message, Observation, visible_line
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.options import Effort, Presentation, Registration, RoleModels
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import Experienced, ExperienceStore
from ecoshell.sessions import EventLog
from ecoshell.strategies import StrategySpec
from ecoshell.tools.running import clip

if TYPE_CHECKING:  # loaded where something was profiled, or is judged
    from ecoshell.planning.catp.costs import CostTable
    from ecoshell.planning.judging import Verdict

# -- the judge

JUDGES = ("rules", "model")
"""The judges of the core; plugins provide others."""
JudgeFunction = Callable[[str, Call, Observation], "bool | Verdict | None"]
"""Judges the result of a call for a question; None means undecided."""
JUDGE = "judge"
JUDGE_TOKENS = 16
_QUESTION = 800
_CALL = 300
_RESULT = 1_500
"""Characters of each that the model reads."""
_YES_OR_NO = 'root ::= "yes" | "no"'
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


@dataclass(kw_only=True)
class Judge:
    """Says whether a result helped: by rules, the model, or a judge of a plugin.

    The model is asked only about what rules cannot tell without reading: failures, empty results and mistakes of the
    caller cost nothing. Its call passes the gate like every other (BTP §2.1). Whatever keeps a judge from judging, the
    rules' verdict stands, and the turn goes on.

    `kind` names the current judge: one of JUDGES, or a judge of a plugin (`more`).
    """

    kind: Callable[[], str]
    models: Callable[[], ModelSet]
    more: Mapping[str, JudgeFunction] = field(default_factory=dict[str, JudgeFunction])
    _told: set[str] = field(default_factory=set[str])
    """Why judging fell back to rules, as far as the person has been told."""

    async def judge(self, query: str, call: Call, observation: Observation, emit: Emit) -> "Verdict":
        """The verdict on one result; never raises for a judge that cannot judge."""
        from ecoshell.planning.judging import Verdict, by_rules, judgeable

        ruled = await asyncio.to_thread(by_rules, query, call, observation)
        kind = self.kind()
        try:
            if kind in self.more and judgeable(ruled):
                helped = await asyncio.to_thread(self.more[kind], query, call, observation)
                if isinstance(helped, Verdict):
                    return helped
                said = "helped" if helped else "did not help"
                return ruled if helped is None else Verdict(bool(helped), "plugin", f"{kind} says that it {said}")
            if kind == "model" and not ruled.sure:
                model = self.models().model
                helpful = await _asked(model, query, call, observation, emit)
                said = "helped" if helpful else "did not help"
                return Verdict(helpful, "model", f"{model.traits.name} says that it {said}")
        except EcoshellError as error:
            if type(error).__name__ not in self._told:
                self._told.add(type(error).__name__)
                emit(Notice(f"Results are judged by rules: {visible_line(str(error))}"))
            why = f"{ruled.reason}; the {kind} could not judge it: {visible_line(error.message)}"
            return replace(ruled, reason=why)
        return ruled


async def _asked(model: MeteredModel, query: str, call: Call, observation: Observation, emit: Emit) -> bool:
    """What the model says in a word."""
    from ecoshell.planning.judging import unwrapped

    result = unwrapped(observation.text)[0]
    system = (files("ecoshell.agent") / "judge.md").read_text(encoding="utf-8").strip()
    asked = f"Question: {_beginning(query, _QUESTION)}\n\nCall: {_beginning(call.signature(), _CALL)}"
    told = f"{asked}\n\nResult:\n{clip(result, _RESULT)[0]}\n\nDid it help? yes or no"
    messages = (Message("system", system), Message("user", told))
    asking = Request(messages, want="text", max_tokens=JUDGE_TOKENS, purpose="judge", grammar=_YES_OR_NO)
    reply = await model.ask(asking, emit, role=JUDGE)
    said = _WORD.search(reply.text)
    if said is None:
        raise ModelBroken(f"{model.traits.name} answered neither yes nor no.")
    return said[1].lower() == "yes"


def _beginning(text: str, characters: int) -> str:
    return clip(" ".join(text.split()), characters)[0]


# -- what a person may change, and the parts

PlanMode = Literal["off", "btp", "prompt", "btp+prompt"]
"""How turns are planned: not at all; so that calls may be refused; told to the model, the paper's +Prompt; or both."""


_MOST_UNKEPT = 200
"""Uses and attempts that wait for a store that cannot be written; of more, the earliest are given up."""


@dataclass(slots=True)
class SessionSettings:
    """What a person may change while a session runs, beside caps and models; it holds from the next turn on.

    A field with a `key` is given by the settings file under that key, and by an option of its name for one run.
    """

    strategy: str = field(default="react", metadata={"key": "agent.strategy"})
    registration: Registration = field(default="auto", metadata={"key": "agent.registration"})
    presentation: Presentation = field(default="auto", metadata={"key": "agent.presentation"})
    max_steps: Limit = field(default="auto", metadata={"key": "agent.max_steps"})
    effort: Effort = field(default="auto", metadata={"key": "agent.effort"})
    """How much models reason."""
    compact_model: str | None = field(default=None, metadata={"key": "agent.compact_model"})
    """A model that writes the summary of /compact in the place of the session's."""
    compact_at: float | Literal["off"] = field(default=0.8, metadata={"key": "agent.compact_at"})
    """Share of the context at which it is compacted automatically."""
    names_share: float = field(default=0.1, metadata={"key": "registration.names_share"})
    """The share of the context that names may take before only a shortlist is shown."""
    ask_above_nano: int | None = field(default=None, metadata={"key": "budget.ask_above"})
    """A step that may cost more is asked about first; None is never."""
    plan: PlanMode = field(default="btp", metadata={"key": "plan.mode"})
    threshold: float = field(default=0.15, metadata={"key": "plan.threshold"})
    """τ: the value from which on a tool with a history is worth a use."""
    strict: bool = field(default=False, metadata={"key": "plan.strict"})
    """Whether what is not planned is forbidden, as in the paper; else the plan is advice, and a call that is asked for
    is refused only where it would leave the answer or a better use unpaid, or where the tool's record is bad."""
    earned: bool = field(default=True, metadata={"key": "plan.earned_uses"})
    """Whether a use that helped earns the tool a further one in its turn."""
    budget_line: bool = field(default=True, metadata={"key": "plan.budget_line"})
    judge: str = field(default="rules", metadata={"key": "plan.judge"})
    fallback: Sequence[str] = field(default=(), metadata={"key": "models.fallback"})
    """Models that take over, in this order, when the one in use is unavailable."""
    hour_nano: int | None = field(default=None, metadata={"key": "plan.time_price"})
    """What an hour of waiting is worth; None is nothing."""
    recording: bool = field(default=True, metadata={"key": "experience.record"})
    alpha: float = field(default=0.5, metadata={"key": "graph.alpha"})
    """How much performance weighs beside cost where a finished tool graph is scored."""
    most_nano: int = field(default=NANO // 20, metadata={"key": "graph.most"})
    """What a tool graph may cost at most, C_max, where no cap allows less."""
    checker: str | None = field(default=None, metadata={"key": "graph.checker"})
    """A command that tells by its exit status whether an answer, on its standard input, is right."""
    presets: Mapping[str, RoleModels] = field(default_factory=dict[str, RoleModels])
    """Models of roles that the settings give together, by the name of the whole."""
    named_models: Sequence[str] = ()
    """Models the settings speak of."""
    readers: set[str] = field(default_factory=set[str])
    """Models beside the session's that were named to the person before they read the conversation."""

    @property
    def judged_by(self) -> str:
        """Who judges results; without a plan nothing depends on it, so nobody is paid for it."""
        return "rules" if self.plan == "off" and self.judge == "model" else self.judge


SETTING_KEYS: Mapping[str, str] = {
    one.metadata["key"]: one.name for one in fields(SessionSettings) if "key" in one.metadata
}
"""The keys of the settings file that a running shell goes by, each with the field that holds it."""


@dataclass(slots=True, eq=False)
class Experience:
    """`records` keep what happens; `past` says what it tells of tools and modes, may block, and raises StoreError."""

    records: ExperienceStore
    past: Past
    unkept: list[Experienced] = field(default_factory=list[Experienced])
    """What could not be kept yet; it is with the next use or attempt."""
    _keeping: Lock = field(default_factory=Lock)

    def keep(self, *items: Experienced) -> None:
        """Remember these, and those that wait; may block. What cannot be kept waits for the next.

        Raises StoreError where it is the first that waits; those after it add nothing to that.
        """
        with self._keeping:  # branches of a plan finish at the same time
            others_wait = bool(self.unkept)
            self.unkept = [*self.unkept, *items][-_MOST_UNKEPT:]
            if not self.unkept:
                return
            try:
                self.records.add(self.unkept)
                self.unkept = []
            except StoreError:
                if not others_wait:
                    raise

    async def remember(self, made: Callable[[], Experienced], emit: Emit) -> None:
        """Keep what is made in a thread; that it cannot be kept yet is told when it is the first that waits."""
        try:
            await asyncio.to_thread(lambda: self.keep(made()))
        except StoreError as failure:
            emit(Notice(f"What this turn came to is not remembered for planning yet. {failure}"))


def now() -> str:
    """The time as experience keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(eq=False)
class SessionBudget:
    """The gate as one session's present turn uses it: knows whose money is being spent."""

    gate: Gate
    _session: str = ""
    _turn: int = 0

    def enter(self, session: str, turn: int) -> None:
        """From now on calls are this session's, in this turn."""
        self._session, self._turn = session, turn

    def account(self) -> Account:
        """Whose money a call made now is; role, model and purpose are for the caller to fill in."""
        return Account(session=self._session, turn=self._turn, role="", model="", purpose="")

    async def caps(self, *, at_rest: bool = False) -> tuple[CapState, ...]:
        """The caps over the turn of the moment; `at_rest` without what calls hold that are under way.

        Most of that will be free again.
        """
        return await asyncio.to_thread(self.gate.ledger.caps, self._session, self._turn, at_rest=at_rest)

    async def set_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Set a cap, or remove the scope's with None."""
        await finished(asyncio.to_thread(self.gate.ledger.set_cap, self._session, scope, amount))


@dataclass(frozen=True, slots=True)
class Profiles:
    """What `ecoshell profile` has found out of tools."""

    unit_nano: int
    """What one of OpenCATP's price units is worth; 0 is nothing."""
    resources: Mapping[str, int]
    """What the time and memory of one run of a profiled tool are worth, in nano-dollars; unlike its price, unpaid."""
    costs: "Callable[[], CostTable]"
    """What tools cost by the size of what they are given; may block."""


def no_such(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a strategy or a judge that is not there."""
    return UsageError(f"There is no {what} called {name!r}.", fix=f"There are {', '.join(known)}.")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts that the conversations of a shell share; assembly builds them, and nothing else does.

    What changes while they run is in `settings` and `models`.
    """

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

    def require(self, name: str, value: object) -> None:
        """Raise UsageError for a value of SessionSettings that names what no plugin brought."""
        known = {"strategy": tuple(self.strategies), "judge": (*JUDGES, *self.judge.more)}.get(name)
        if known is not None and value not in known:
            raise no_such(name, str(value), known)

    @property
    def by_program(self) -> bool:
        """Whether a program is tried first for what is asked of files: some small models do that better than calls.

        It may run where the user can be asked, or need not be.
        """
        models, rules = self.models.current, self.approvals.rules
        if not models.mode.by_program or rules.read_only:
            return False
        somebody = type(self.user) is not NonInteractive  # one that decides is derived of it
        return somebody or (rules.yes and self.approvals.trusts(models.caller.traits))

    @property
    def strategy(self) -> StrategySpec:
        """The strategy of the next turn."""
        return self.strategies[self.settings.strategy]
