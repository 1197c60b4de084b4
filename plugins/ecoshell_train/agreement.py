"""How often the apprentice predicted the calls of paid models: records in one SQLite file, and figures per tool."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Self

from ecoshell.budget.database import Database
from ecoshell.paths import Paths

MIN_USES = 20
MAX_USES = 50
"""The number of latest uses by which a tool is judged."""
GOOD_SHARE = 0.8
"""The share of equal calls, by the lower end of Wilson's 95 % interval, from which a tool is good."""
_Z = 1.959964
_SCHEMA = """
CREATE TABLE predictions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, tool TEXT NOT NULL, model TEXT NOT NULL, alike INTEGER NOT NULL,
    spent_nano INTEGER
)
"""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Whether an apprentice made the same call as the paid model."""

    tool: str
    model: str
    """The apprentice's model."""
    alike: bool
    spent_nano: int | None
    """The cost of the paid model's call; None if unknown."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often an apprentice predicted the calls of a tool."""

    model: str
    """The apprentice."""
    tool: str
    uses: int
    alike: int
    """Predictions with the same name and arguments."""
    lower: float
    """The lower bound of that share among the latest uses (95 %)."""
    good: bool
    """Whether the apprentice could make the calls."""
    saved_nano: int
    """The cost of the predicted calls of the paid model."""


class Predictions:
    """Stores predictions; thread-safe. Raises StoreError when the file cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def under(cls, paths: Paths) -> Self:
        """Open the user's file."""
        return cls(Database(paths.data / "apprentice.sqlite", schema=_SCHEMA, version=1))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, use: Prediction) -> None:
        """Store a prediction."""
        row = (use.tool, use.model, use.alike, use.spent_nano)
        with self._database.writing("The turn continues; the prediction is lost.") as db:
            db.execute(
                "INSERT INTO predictions (tool, model, alike, spent_nano) VALUES (?, ?, ?, ?)", row
            )

    def of(self, model: str | None = None) -> list[Prediction]:
        """Return the predictions of one apprentice, or of all, oldest first."""
        query = "SELECT * FROM predictions WHERE ?1 IS NULL OR model = ?1 ORDER BY id"
        with self._database.reading() as db:
            rows = db.execute(query, (model,)).fetchall()
        return [
            Prediction(row["tool"], row["model"], bool(row["alike"]), row["spent_nano"])
            for row in rows
        ]


def agreements(predictions: Iterable[Prediction]) -> list[Agreement]:
    """One agreement for each apprentice and tool, in the order of their first prediction."""
    groups: dict[tuple[str, str], list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault((prediction.model, prediction.tool), []).append(prediction)
    results: list[Agreement] = []
    for uses in groups.values():
        latest = uses[-MAX_USES:]
        n, z2 = len(latest), _Z * _Z
        share = sum(use.alike for use in latest) / n
        spread = _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
        lower = max(0.0, (share + z2 / (2 * n) - spread) / (1 + z2 / n))
        alike = [use for use in uses if use.alike]
        is_good = n >= MIN_USES and lower >= GOOD_SHARE
        saved = sum(use.spent_nano or 0 for use in alike)
        results.append(
            Agreement(uses[0].model, uses[0].tool, len(uses), len(alike), lower, is_good, saved)
        )
    return results
