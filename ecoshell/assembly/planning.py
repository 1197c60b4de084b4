"""What turns are planned with: the experience of this user, how questions are compared, and who judges results."""

import math
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from ecoshell.agent.dependencies import Cast
from ecoshell.agent.judging import Judge
from ecoshell.agent.plan.choices import Planning
from ecoshell.budget.money import parse_amount
from ecoshell.errors import StoreError
from ecoshell.paths import Paths
from ecoshell.planning.btp.attempts import AttemptRow
from ecoshell.planning.btp.base import Experienced
from ecoshell.planning.btp.encoders import encoder_for
from ecoshell.planning.btp.experience import Columns, ExperienceStore
from ecoshell.planning.btp.past import Past
from ecoshell.planning.catp.profiles import ProfileStore, cost_table

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

T = TypeVar("T")


def planning_of(settings: "Settings", paths: Paths, cast: Callable[[], Cast]) -> Planning:
    """How turns are planned by these settings; `cast` gives the model of the moment. Raises UsageError."""
    store = _opened(paths)
    planning = Planning(
        records=store,
        past=Past(store, encoder_for(settings.experience.similarity)),
        judge=Judge(kind=lambda: planning.judged_by, cast=cast, file=paths.judge_file),
    )
    follow_plan(planning, settings)
    unit = settings.plan.resource_price
    planning.standard.unit_nano = 0 if unit == "off" else parse_amount(unit).value
    planning.resources = _resources(settings, paths)
    planning.profiled = cache(lambda: cost_table(_profiled(paths, ProfileStore.runs)))
    return planning


_PATIENCE = 0.3
"""Seconds a turn waits for a file that another process is writing; what could not be kept is kept with the next use."""


class Unopened:
    """The experience in a file that cannot be opened: whoever needs it is told why, and goes on without."""

    def __init__(self, failure: StoreError) -> None:
        self._failure = failure

    @property
    def generation(self) -> int:
        raise self._failure

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        raise self._failure

    def columns(self, after: int = 0) -> Columns:
        raise self._failure

    def attempts_after(self, after: int = 0) -> list[AttemptRow]:
        raise self._failure

    def vectors(self, encoder: str, after: int = 0) -> list[tuple[int, bytes]]:
        raise self._failure

    def keep_vectors(self, encoder: str, rows: Iterable[tuple[int, bytes]]) -> None:
        raise self._failure

    def add(self, items: Iterable[Experienced]) -> None:
        raise self._failure

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool:
        raise self._failure

    def close(self) -> None:
        """Nothing is open."""


def _opened(paths: Paths) -> ExperienceStore | Unopened:
    try:
        return ExperienceStore(paths.experience_file, busy_seconds=_PATIENCE)
    except StoreError as failure:
        return Unopened(failure)


def follow_plan(planning: Planning, settings: "Settings") -> None:
    """Go by what the settings say of plans from the next turn on."""
    given = settings.plan
    planning.mode = given.mode
    planning.threshold = given.threshold
    planning.strict = given.strict
    planning.earned = given.earned_uses
    planning.judge_kind = given.judge
    planning.hour_nano = 0 if given.time_price == "off" else parse_amount(given.time_price).value
    planning.recording = settings.experience.record
    planning.standard.alpha = settings.graph.alpha
    planning.standard.most_nano = parse_amount(settings.graph.most).value
    planning.standard.checker = settings.graph.checker or ""


def _resources(settings: "Settings", paths: Paths) -> dict[str, int]:
    """What one run of each profiled tool is worth; nothing where the settings give units no price."""
    if settings.plan.resource_price == "off":
        return {}
    unit = parse_amount(settings.plan.resource_price).value
    profiles = _profiled(paths, ProfileStore.profiles)
    return {tool: math.ceil(unit * profile.usual) for tool, profile in profiles.items()}


def _profiled(paths: Paths, read: Callable[[ProfileStore], dict[str, T]]) -> dict[str, T]:
    """What is kept of each profiled tool, nothing where nobody profiled.

    A file that cannot be read counts as none: the plan is made without it, as before the first profile.
    """
    if not paths.profiles_file.is_file():
        return {}
    try:
        with closing(ProfileStore(paths.profiles_file, busy_seconds=_PATIENCE)) as store:
            return read(store)
    except StoreError:
        return {}
