"""Asking a model for each step, with the reference's own steps before it (α-UMi, Appendix C).

The model plays in the mode that the shell would give it, behind the gate and under the user's caps, and sees what it
would see there with every tool of the task registered. Nothing that it calls is carried out.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing, closing
from dataclasses import dataclass
from uuid import uuid4

from ecoshell.agent.dependencies import SessionBudget
from ecoshell.agent.memory import opening_text
from ecoshell.agent.mode import View
from ecoshell.assembly import load_settings, open_ledger, roles_of
from ecoshell.assembly.model_factory import ConfiguredModelFactory
from ecoshell.budget import SCOPES, Amount, parse_amount
from ecoshell.budget.gate import Gate
from ecoshell.catalog import PLAIN, presentation_of
from ecoshell.errors import CallBroken, ModelBroken, UsageError
from ecoshell.events import BudgetSettled, Event
from ecoshell.messages import Call, Observation, Usage
from ecoshell.models import Model
from ecoshell.options import NO_ROLE_MODELS, ROLES, Options, RoleModels
from ecoshell.paths import user_paths
from ecoshell.planning.judging import unwrapped
from ecoshell.settings.schema import Settings
from ecoshell.strategies import Path, Step, Thought, ending
from ecoshell_bench.results import known_sum
from ecoshell_bench.umi.metrics import Prediction
from ecoshell_train.trajectories import Trajectory

MODES = ("single", "umi")
"""The modes that can be measured."""
Asked = tuple[Trajectory, int]
"""A trajectory, and the number of one of its steps."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """Who is asked: a model in a mode, and the models that roles of the mode have of their own."""

    model: str
    mode: str = "single"
    roles: RoleModels = NO_ROLE_MODELS

    @classmethod
    def of(cls, model: str, mode: str, roles: RoleModels = NO_ROLE_MODELS) -> "ModelSetup":
        """Who plays when the shell begins with this model and mode: roles that are not told are as the settings say.

        Raises UsageError for a mode that cannot be measured, and for roles where there are none; SettingsError.
        """
        if mode not in MODES:
            raise UsageError(f"The mode {mode!r} cannot be measured.", fix=f"Choose of {', '.join(MODES)}.")
        if mode == "umi":
            return cls(model, mode, roles_of(load_settings(user_paths()), Options(roles=roles)))
        if roles != NO_ROLE_MODELS:
            raise UsageError("In the mode single there are no roles.", fix="Add --mode umi.")
        return cls(model, mode)

    @property
    def named(self) -> dict[str, str]:
        """The models of roles, where those are others than the model itself."""
        given = {role: self.roles.of(role) for role in ROLES}
        return {role: model for role, model in given.items() if model not in (None, self.model)}


@dataclass(frozen=True, slots=True)
class Answered:
    """One step as the model answered it, and what that took; `error` says why there is no decision."""

    id: str
    step: int
    """Counted from 0."""
    prediction: Prediction
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    spent_nano: int | None = 0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        """Which step it is."""
        return self.id, self.step


async def ask_all(
    setup: ModelSetup, budget: Amount | None, steps: Iterable[Asked], told: Callable[[Answered], None]
) -> None:
    """Ask for these steps one after another, and tell of each answer before the next; `budget` caps the whole run.

    Raises SettingsError, StoreError, BudgetError, ModelMissing, ModelUnavailable, and ModelBroken of a model that said
    nothing at all.
    """
    paths = user_paths()
    settings = await asyncio.to_thread(load_settings, paths)
    with closing(await asyncio.to_thread(open_ledger, paths, settings)) as ledger:
        async with aclosing(ModelUnderTest(setup, settings, SessionBudget(Gate(ledger)))) as model:
            await model.set_caps(settings, budget)
            for asked in steps:
                told(await model.answer(asked))


class ModelUnderTest(ConfiguredModelFactory):
    """A model in a mode, asked for steps of task after task; each model is made once."""

    def __init__(self, setup: ModelSetup, settings: Settings, session_budget: SessionBudget) -> None:
        super().__init__(
            settings,
            Options(model=setup.model),
            session_budget=session_budget,
            paths=user_paths(),
        )
        self._setup = setup
        self._made: dict[str, Model] = {}
        self._session = f"bench-{uuid4().hex[:12]}"
        self._turn = 0

    async def set_caps(self, settings: Settings, budget: Amount | None) -> None:
        """The caps of the settings, each step being a turn of one session; `budget` stands in for the session's."""
        self._session_budget.enter(self._session, self._turn)
        for scope in SCOPES:
            text = getattr(settings.budget, scope)
            given = None if text is None else parse_amount(text)
            if scope == "session" and budget is not None:
                given = budget
            if scope in ("day", "month"):
                await asyncio.to_thread(self._session_budget.gate.ledger.adopt_cap, scope, given)
            elif given is not None:
                await self._session_budget.set_cap(scope, given)

    async def answer(self, asked: Asked) -> Answered:
        """What the model does at this step; a reply that cannot be used is no decision, and says why."""
        trajectory, number = asked
        self._turn += 1
        self._session_budget.enter(self._session, self._turn)
        who = self._setup
        models = await asyncio.to_thread(lambda: self.make(who.model, who.mode, roles=who.roles))
        view, settled = view_of(trajectory, number, direct=models.calls_undeclared), list[BudgetSettled]()
        started = time.monotonic()

        def emit(event: Event) -> None:
            if isinstance(event, BudgetSettled):
                settled.append(event)

        error = ""
        try:
            prediction = predicted(await models.mode.think(view, emit), view.path)
        except CallBroken as broken:  # the decision was to call, and the call counts as it was written
            prediction, error = Prediction("call", broken.tool, broken.arguments), broken.message
        except ModelBroken as broken:
            if not broken.billed:
                raise
            prediction, error = Prediction(None), broken.message
        except UsageError as unfit:  # the task does not fit into the model's context
            prediction, error = Prediction(None), unfit.message
        usage = sum((one.usage for one in settled), Usage())
        return Answered(
            trajectory.id,
            number,
            prediction,
            error=error,
            input_tokens=usage.input,
            output_tokens=usage.output,
            spent_nano=known_sum(one.spent_nano for one in settled),
            seconds=time.monotonic() - started,
        )

    async def aclose(self) -> None:
        for model in self._made.values():
            await model.aclose()
        await super().aclose()

    def _model(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = super()._model(name)
        return self._made[name]


def view_of(trajectory: Trajectory, number: int, *, direct: bool = False) -> View:
    """What a mode sees before the step with this number: the reference's own steps, and every tool registered.

    With `direct` tools are put before it as they are before models on this machine.
    """
    path = Path(trajectory.query)
    for place, step in enumerate(trajectory.steps[:number]):
        seen = Observation(step.observation, ok=not unwrapped(step.observation)[1])
        path = path.then(Step(step.thought, Call(step.tool, step.arguments, f"r{place}"), seen))
    names = tuple(tool.name for tool in trajectory.tools)
    way = (presentation_of("direct", names, registers=False) if direct else None) or PLAIN
    opening = opening_text(way.opening(names, trajectory.tools), trajectory.query)
    return View(path, opening, (), names, trajectory.tools, way)


def predicted(thought: Thought, path: Path) -> Prediction:
    """The decision in a thought; raises ModelBroken when it neither calls nor says anything."""
    end = ending(thought, path)
    if end is None:
        call = thought.call or Call("")
        return Prediction("call", call.name, dict(call.arguments))
    if end.ending == "gave_up":
        return Prediction("give_up", answer=end.answer)
    if thought.call is None and not end.answer.strip():
        raise ModelBroken("The model gave an empty answer.")
    return Prediction("finish", answer=end.answer)
