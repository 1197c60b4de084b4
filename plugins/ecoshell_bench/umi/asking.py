"""Ask a model for each step, given the previous steps of the reference (α-UMi, Appendix C).

The model runs in the shell's mode, behind the gate and under the user's caps, with the shell's prompt and every tool
of the task registered. Its calls are not run.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing, closing
from dataclasses import dataclass
from uuid import uuid4

from ecoshell.agent.spending import SessionBudget
from ecoshell.agent.view import View, opening_text
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
from ecoshell.settings.schema import Settings
from ecoshell.strategies import Path, Step, Thought, ending
from ecoshell_bench.results import known_sum
from ecoshell_bench.umi.metrics import Prediction
from ecoshell_train.envelopes import unwrapped
from ecoshell_train.trajectories import Trajectory

MODES = ("single", "umi")
StepId = tuple[Trajectory, int]
"""A trajectory, and the index of one of its steps."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """A model, a mode, and the models of single roles of the mode."""

    model: str
    mode: str = "single"
    roles: RoleModels = NO_ROLE_MODELS

    @classmethod
    def of(cls, model: str, mode: str, roles: RoleModels = NO_ROLE_MODELS) -> "ModelSetup":
        """Return the setup of a shell with this model and mode; roles not given come from the settings.

        Raises SettingsError, and UsageError for an unsupported mode or for roles in the mode single.
        """
        if mode not in MODES:
            raise UsageError(
                f"The mode {mode!r} cannot be measured.", fix=f"Available: {', '.join(MODES)}."
            )
        if mode == "umi":
            return cls(model, mode, roles_of(load_settings(user_paths()), Options(roles=roles)))
        if roles != NO_ROLE_MODELS:
            raise UsageError("The mode single has no roles.", fix="Add --mode umi.")
        return cls(model, mode)

    @property
    def role_models(self) -> dict[str, str]:
        """The models of roles that differ from the main model."""
        models = {role: self.roles.of(role) for role in ROLES}
        return {role: model for role, model in models.items() if model not in (None, self.model)}


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The model's answer to a step and its usage; `error` is the reason for a missing decision."""

    id: str
    step: int
    """The index of the step."""
    prediction: Prediction
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    spent_nano: int | None = 0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.step


async def ask_all(
    setup: ModelSetup,
    budget: Amount | None,
    steps: Iterable[StepId],
    report: Callable[[ModelAnswer], None],
) -> None:
    """Ask for the steps in order and report each answer before the next; `budget` caps the whole run.

    Raises SettingsError, StoreError, BudgetError, ModelMissing, ModelUnavailable, and ModelBroken for a model that did
    not reply at all.
    """
    paths = user_paths()
    settings = await asyncio.to_thread(load_settings, paths)
    with closing(await asyncio.to_thread(open_ledger, paths, settings)) as ledger:
        async with aclosing(ModelUnderTest(setup, settings, SessionBudget(Gate(ledger)))) as model:
            await model.set_caps(settings, budget)
            for step in steps:
                report(await model.answer(step))


class ModelUnderTest(ConfiguredModelFactory):
    """A model in a mode that answers steps of many tasks; each model is created once."""

    def __init__(
        self, setup: ModelSetup, settings: Settings, session_budget: SessionBudget
    ) -> None:
        super().__init__(
            settings,
            Options(model=setup.model),
            session_budget=session_budget,
            paths=user_paths(),
        )
        self._setup = setup
        self._models: dict[str, Model] = {}
        self._session = f"bench-{uuid4().hex[:12]}"
        self._turn = 0

    async def set_caps(self, settings: Settings, budget: Amount | None) -> None:
        """Set the caps of the settings, with `budget` for the session; each step is a turn of one session."""
        self._session_budget.enter(self._session, self._turn)
        for scope in SCOPES:
            text = getattr(settings.budget, scope)
            cap = None if text is None else parse_amount(text)
            if scope == "session" and budget is not None:
                cap = budget
            if scope in ("day", "month"):
                await asyncio.to_thread(self._session_budget.gate.ledger.adopt_cap, scope, cap)
            elif cap is not None:
                await self._session_budget.set_cap(scope, cap)

    async def answer(self, step: StepId) -> ModelAnswer:
        """Ask the model for this step; an unusable reply gives no decision and an error."""
        trajectory, number = step
        self._turn += 1
        self._session_budget.enter(self._session, self._turn)
        setup = self._setup
        models = await asyncio.to_thread(
            lambda: self.make(setup.model, setup.mode, roles=setup.roles)
        )
        view, settled = (
            view_of(trajectory, number, direct=models.calls_undeclared),
            list[BudgetSettled](),
        )
        started = time.monotonic()

        def emit(event: Event) -> None:
            if isinstance(event, BudgetSettled):
                settled.append(event)

        error = ""
        try:
            prediction = predicted(await models.mode.think(view, emit), view.path)
        except CallBroken as broken:  # the decision was a call, which counts as written
            prediction, error = Prediction("call", broken.tool, broken.arguments), broken.message
        except ModelBroken as broken:
            if not broken.billed:
                raise
            prediction, error = Prediction(None), broken.message
        except UsageError as failure:  # the task does not fit into the model's context
            prediction, error = Prediction(None), failure.message
        usage = sum((event.usage for event in settled), Usage())
        return ModelAnswer(
            trajectory.id,
            number,
            prediction,
            error=error,
            input_tokens=usage.input,
            output_tokens=usage.output,
            spent_nano=known_sum(event.spent_nano for event in settled),
            seconds=time.monotonic() - started,
        )

    async def aclose(self) -> None:
        for model in self._models.values():
            await model.aclose()
        await super().aclose()

    def _model(self, name: str) -> Model:
        if name not in self._models:
            self._models[name] = super()._model(name)
        return self._models[name]


def view_of(trajectory: Trajectory, number: int, *, direct: bool = False) -> View:
    """Return a mode's view before a step: the reference's previous steps, and every tool registered.

    With `direct`, tools are presented as for local models.
    """
    path = Path(trajectory.query)
    for index, step in enumerate(trajectory.steps[:number]):
        observation = Observation(step.observation, ok=not unwrapped(step.observation)[1])
        path = path.then(
            Step(step.thought, Call(step.tool, step.arguments, f"r{index}"), observation)
        )
    names = tuple(tool.name for tool in trajectory.tools)
    presentation = (presentation_of("direct", names, registers=False) if direct else None) or PLAIN
    opening = opening_text(presentation.opening(names, trajectory.tools), trajectory.query)
    return View(path, opening, (), names, trajectory.tools, presentation)


def predicted(thought: Thought, path: Path) -> Prediction:
    """Return the decision in a thought; raises ModelBroken for an empty one."""
    end = ending(thought, path)
    if end is None:
        call = thought.call or Call("")
        return Prediction("call", call.name, dict(call.arguments))
    if end.ending == "gave_up":
        return Prediction("give_up", answer=end.answer)
    if thought.call is None and not end.answer.strip():
        raise ModelBroken("The model gave an empty answer.")
    return Prediction("finish", answer=end.answer)
