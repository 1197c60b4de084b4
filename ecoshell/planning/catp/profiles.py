"""What runs of tools took on inputs of growing size, kept beside the experience: the source of their cost vectors."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from decimal import Decimal
from pathlib import Path

from ecoshell.budget.database import Database
from ecoshell.messages import Footprint
from ecoshell.planning.catp.price import TABLE_B2, Tariff
from ecoshell.planning.catp.sizes import CostTable, CostVector, cost_vector, size_levels

VERSION = 1
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, tool TEXT NOT NULL, at TEXT NOT NULL, size INTEGER NOT NULL,
    milliseconds REAL NOT NULL, cpu_mb REAL, cpu_instant_mb REAL, gpu_mb REAL, gpu_instant_mb REAL
);
CREATE INDEX runs_of_tool ON runs (tool)
"""
_MEMORY = tuple(spec.name for spec in fields(Footprint))


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One run on an input of `size` bytes."""

    size: int
    milliseconds: float
    footprint: Footprint

    def price(self, tariff: Tariff = TABLE_B2) -> Decimal:
        """What it costs, in OpenCATP's units."""
        return tariff.price(self.milliseconds, self.footprint)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a tool costs by the size of its input."""

    levels: tuple[float, ...]
    """Centres of the size levels of what it was run on, in bytes."""
    vector: CostVector

    @classmethod
    def of(cls, runs: Iterable[ProfiledRun]) -> "Profile | None":
        """The profile of some runs; None of none."""
        known = [*runs]
        levels = size_levels([run.size for run in known])
        vector = cost_vector([(run.size, run.price()) for run in known], levels)
        return vector and cls(levels, vector)

    @property
    def usual(self) -> Decimal:
        """The cost on an input of which nothing is known: the mean over the levels."""
        return statistics.mean(self.vector.costs)


def cost_table(runs: Mapping[str, Sequence[ProfiledRun]]) -> CostTable:
    """The costs of several tools, by size levels of all that they were run on (CATP-LLM §3.2.1)."""
    levels = size_levels([run.size for some in runs.values() for run in some])
    return CostTable(levels, _vectors(runs, levels, ProfiledRun.price), _vectors(runs, levels, _milliseconds))


def _vectors(
    runs: Mapping[str, Sequence[ProfiledRun]], levels: Sequence[float], figure: Callable[[ProfiledRun], Decimal]
) -> dict[str, CostVector]:
    vectors = {tool: cost_vector([(run.size, figure(run)) for run in some], levels) for tool, some in runs.items()}
    return {tool: vector for tool, vector in vectors.items() if vector is not None}


def _milliseconds(run: ProfiledRun) -> Decimal:
    return Decimal(repr(run.milliseconds))


class ProfileStore:
    """Profiled runs by tool, in one SQLite file; opening and every method may block and raise StoreError."""

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        self._database = Database(path, schema=SCHEMA, version=VERSION, busy_seconds=busy_seconds)

    def replace(self, tool: str, at: str, runs: Iterable[ProfiledRun]) -> None:
        """Keep these runs of a tool in the place of earlier ones; `at` is UTC, ISO 8601."""
        rows = [(tool, at, run.size, run.milliseconds, *astuple(run.footprint)) for run in runs]
        columns = ("tool", "at", "size", "milliseconds", *_MEMORY)
        marks = ", ".join("?" * len(columns))
        with self._database.writing("The earlier profile is kept.") as connection:
            connection.execute("DELETE FROM runs WHERE tool = ?", (tool,))
            connection.executemany(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})", rows)

    def profiles(self) -> dict[str, Profile]:
        """The profile of each tool that was profiled."""
        made = {tool: Profile.of(runs) for tool, runs in self.runs().items()}
        return {tool: profile for tool, profile in made.items() if profile is not None}

    def runs(self) -> dict[str, list[ProfiledRun]]:
        """The runs of each tool that was profiled."""
        found: dict[str, list[ProfiledRun]] = {}
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT tool, size, milliseconds, {', '.join(_MEMORY)} FROM runs ORDER BY id")
            for tool, size, milliseconds, *memory in rows:
                found.setdefault(tool, []).append(ProfiledRun(size, milliseconds, Footprint(*memory)))
        return found

    def close(self) -> None:
        """Close the file."""
        self._database.close()
