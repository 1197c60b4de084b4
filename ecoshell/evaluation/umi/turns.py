"""What recorded turns take in each mode: the shell's own modes and requests, the replies being the reference's.

Every call goes through the gate like any other. A cache holds for a turn and begins empty, as in `bench ecoact`.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ecoshell.agent.dependencies import SessionBudget
from ecoshell.agent.mode import Mode
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.evaluation.umi.asking import view_of
from ecoshell.evaluation.umi.recorded import Count, Form, RecordedModel
from ecoshell.evaluation.umi.reference import Trajectory
from ecoshell.events import BudgetSettled, Event
from ecoshell.messages import Usage
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.single import Single
from ecoshell.modes.umi import Trio, Umi

Turn = tuple[Usage, ...]
"""What one turn took in one mode, call by call."""
_ENDLESS = 1 << 20
"""Tokens; no reply of the reference is cut."""


def _single(model: MeteredModel) -> Mode:
    return Single(model, max_tokens=_ENDLESS, answer_tokens=_ENDLESS)


def _trio(model: MeteredModel) -> Mode:
    return Umi(Trio.of(model), max_tokens=_ENDLESS, answer_tokens=_ENDLESS)


CASTS: Mapping[str, Callable[[MeteredModel], Mode]] = {"single": _single, "umi": _trio}
"""How one model is cast in each mode that is measured."""


async def replay(
    trajectories: Iterable[Trajectory], count: Count, form: Form, told: Callable[[], None]
) -> list[dict[str, Turn]]:
    """Every trajectory as a turn in each mode; `told` is called after each."""
    turns: list[dict[str, Turn]] = []
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite")
        try:
            for number, trajectory in enumerate(trajectories, start=1):
                purse = SessionBudget(Gate(ledger))
                purse.enter("bench", number)
                played = {mode: RecordedModel(trajectory, count, form) for mode in CASTS}
                turns.append({mode: await _turn(trajectory, mode, model, purse) for mode, model in played.items()})
                told()
        finally:
            ledger.close()
    return turns


async def _turn(trajectory: Trajectory, mode: str, model: RecordedModel, purse: SessionBudget) -> Turn:
    calls: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, BudgetSettled):
            calls.append(event.usage)

    playing = CASTS[mode](MeteredModel(model, purse.gate, purse.account))
    for number in range(len(trajectory.steps)):
        model.number = number
        await playing.think(view_of(trajectory, number), emit)
    return tuple(calls)
