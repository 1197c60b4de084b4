"""The driver: runs a strategy's wishes against a mode and the guarded tools, from question to answer."""

from dataclasses import dataclass, field, replace

from ecoshell.agent.cashier import AnswerNow, Cashier, StopNow
from ecoshell.agent.guards import Scene, Source
from ecoshell.agent.mode import Mode, View
from ecoshell.agent.steering import Steering, Unsteered
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.catalog.skills import SkillLibrary
from ecoshell.errors import BudgetError, LimitReached, ModelBroken, StoreError
from ecoshell.events import Answer, Emit, Notice, Rationale, Status, StepStarted
from ecoshell.messages import Message, Observation
from ecoshell.strategies.base import Outcome, Path, Strategy, Think, Thought, Want


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands still during a turn: the opening, what came before, and what is known."""

    opening: str
    history: tuple[Message, ...]
    catalog: Catalog
    names: tuple[str, ...]
    base: SkillLibrary
    """What was registered before the turn's first step."""
    presentation: Presentation
    large: bool = False
    along: str = ""
    """What goes along with the question: attachments, and what commands put out."""
    plan: Steering = field(default_factory=Unsteered)

    def registered(self, path: Path) -> tuple[str, ...]:
        """Names the path may call, in the order of registration."""
        names = dict.fromkeys((*self.base.names, *path.registered))
        return tuple(name for name in names if name in self.catalog)

    def view(self, path: Path) -> View:
        """What a mode sees on this path."""
        documents = tuple(self.catalog.document(name) for name in self.registered(path))
        return View(
            path=path,
            opening=self.opening,
            history=self.history,
            known=self.names,
            registered=documents,
            presentation=self.presentation,
            large=self.large,
            along=self.along,
            forbidden=frozenset(self.plan.forbidden),
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended."""

    status: Status
    answer: str
    path: Path
    steps: int


class Turn:
    """One question's way to its answer. Raises ModelError, StoreError and the budget errors that no choice can lift."""

    def __init__(
        self, frame: Frame, *, mode: Mode, strategy: Strategy, source: Source, cashier: Cashier, emit: Emit
    ) -> None:
        self._frame = frame
        self._mode = mode
        self._strategy = strategy
        self._source = source
        self._cashier = cashier
        self._emit = emit
        self._path = Path("")
        self._steps = 0
        self._rationales: dict[str, str] = {}
        """Why each call is made, by its id: what a person is told who has to approve it."""

    async def run(self, question: str, max_steps: int) -> Ended:
        """Drive the strategy until it ends, a limit ends it, or the task is cancelled."""
        self._path = Path(question)
        thinking = self._strategy(question, max_steps)
        try:
            reply: Thought | Observation | None = None
            while True:
                want = thinking.send(reply)
                reply = await self._fulfil(want)
        except StopIteration as stop:
            return await self._end(stop.value)
        except AnswerNow:
            return await self._conclude()
        except StopNow:
            return self.so_far("limit")
        finally:
            thinking.close()
            await self._give_back()

    @property
    def view(self) -> View:
        """What the next step would see, as far as the turn has come."""
        return self._frame.view(self._path)

    def so_far(self, status: Status, answer: str = "") -> Ended:
        """The turn as an ending here would leave it."""
        return Ended(status, answer, self._path, self._steps)

    async def _fulfil(self, want: Want) -> Thought | Observation:
        self._path = want.path
        if isinstance(want, Think):
            return await self._think(want.path)
        rationale = self._rationales.pop(want.call.id, "")
        scene = Scene(want.path, frozenset(self._frame.registered(want.path)), self._emit, rationale)
        return await self._source.act(want.call, scene)

    async def _think(self, path: Path) -> Thought:
        await self._frame.plan.refresh(self._emit)
        view, agreed = self._frame.view(path), ""
        while True:
            try:
                if agreed != self._mode.model:  # else the person has said already that this step may go on
                    await self._cashier.before_step(view, self._emit)
                    await self._follow()
                    agreed = self._mode.model
                await self._mode.set_aside(view)
                self._emit(StepStarted(self._steps + 1, self._mode.role, self._mode.model))
                thought = await self._mode.think(view, self._emit)
                break
            except LimitReached as hit:
                await self._cashier.at_limit(hit, view, self._emit)
                await self._follow()
        self._steps += 1
        if thought.call is None:
            return thought
        if thought.rationale:
            self._emit(Rationale(thought.rationale, self._mode.role))
        call = replace(thought.call, id=thought.call.id or f"c{self._steps}")
        self._rationales[call.id] = thought.rationale
        return replace(thought, call=call)

    async def _follow(self) -> None:
        """Let the model think that the person chose meanwhile; what another had set aside is given back."""
        if self._cashier.mode is not self._mode:
            await self._give_back()
            self._mode = self._cashier.mode

    async def _end(self, outcome: Outcome) -> Ended:
        self._path = outcome.path
        if outcome.ending == "exhausted":
            self._emit(Notice(f"The step limit of {self._steps} was reached; answering from what there is."))
            return await self._conclude()
        if outcome.ending == "answered" and not outcome.answer.strip():
            raise ModelBroken(
                f"{self._mode.model} gave an empty answer.",
                kept="The session is kept.",
                fix="Ask again, or choose another model with /model.",
            )
        self._emit(Answer(outcome.answer))
        return self.so_far(outcome.ending, outcome.answer)

    async def _conclude(self) -> Ended:
        """Answer from what there is, paid from what was set aside; without such an answer, quote the last result."""
        text = ""
        await self._follow()
        try:
            text = await self._mode.conclude(self._frame.view(self._path), self._emit)
        except BudgetError as refused:
            self._emit(Notice(f"No model call fits under the cap any more. {refused.message}"))
        text = text or _last_result(self._path)
        if text:
            self._emit(Answer(text, partial=True))
        return self.so_far("limit", text)

    async def _give_back(self) -> None:
        """Release what the mode had set aside; where that fails it keeps counting, and the turn goes on."""
        try:
            await self._mode.release()
        except StoreError as failure:
            self._emit(Notice(f"What was set aside for the answer could not be given back. {failure}"))


def _last_result(path: Path) -> str:
    useful = [step for step in path.steps if step.observation.ok]
    return f"The last result, as it came from {useful[-1].call.name}: {useful[-1].observation.text}" if useful else ""
