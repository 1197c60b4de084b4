"""What turns are planned with: the experience of this user, how questions are compared, and who judges results."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ecoshell.agent.judging import Judge
from ecoshell.agent.kit import Cast
from ecoshell.agent.plan.choices import Planning
from ecoshell.budget.money import parse_amount
from ecoshell.paths import Paths
from ecoshell.planning.btp.encoders import encoder_for
from ecoshell.planning.btp.experience import ExperienceStore
from ecoshell.planning.btp.past import Past

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings


def planning_of(settings: "Settings", paths: Paths, cast: Callable[[], Cast]) -> Planning:
    """How turns are planned by these settings; `cast` gives the model of the moment. Raises StoreError."""
    store = ExperienceStore(paths.experience_file)
    planning = Planning(
        records=store,
        past=Past(store, encoder_for(settings.experience.similarity)),
        judge=Judge(kind=lambda: planning.judged_by, cast=cast, file=paths.judge_file),
    )
    follow_plan(planning, settings)
    return planning


def follow_plan(planning: Planning, settings: "Settings") -> None:
    """Go by what the settings say of plans from the next turn on."""
    given = settings.plan
    planning.mode = given.mode
    planning.threshold = given.threshold
    planning.earned = given.earned_uses
    planning.judge_kind = given.judge
    planning.hour_nano = 0 if given.time_price == "off" else parse_amount(given.time_price).value
    planning.recording = settings.experience.record
