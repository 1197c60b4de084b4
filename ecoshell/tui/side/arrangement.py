"""How the person arranged the screen, kept in a file from one run to the next."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.files import replacement
from ecoshell.paths import make_private

_LONGEST = 64 * 1024
_WIDEST = 1_000
FOLDED_AT_FIRST = ("plan", "roles")
"""Panels that are no more than their titles until the person opens them: two are enough to begin with."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What the person chose: the side's width, whether it is hidden, and the names of the panels that are folded."""

    width: int | None = None
    """In columns; None is as wide as it suits the screen."""
    hidden: bool = False
    folded: tuple[str, ...] = ()


class ArrangementFile:
    """One arrangement on disk. A file that is broken or cannot be written is no error: the screen is then as it was."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> Arrangement:
        """The arrangement of the last time; whatever in the file makes no sense is left out."""
        try:
            with self._file.open(encoding="utf-8") as file:
                found: object = json.loads(file.read(_LONGEST))
        except FileNotFoundError:
            return Arrangement(folded=FOLDED_AT_FIRST)
        except (OSError, ValueError, RecursionError):
            return Arrangement()
        return _sane(cast("dict[str, Any]", found)) if isinstance(found, dict) else Arrangement()

    def write(self, arrangement: Arrangement) -> None:
        """Keep the arrangement, whole or not at all."""
        with suppress(OSError):
            make_private(self._file.parent)
            with replacement(self._file) as fresh:
                fresh.write(json.dumps(asdict(arrangement)).encode() + b"\n")


def _sane(found: dict[str, Any]) -> Arrangement:
    width, hidden, folded = found.get("width"), found.get("hidden"), found.get("folded")
    names = cast("list[object]", folded) if isinstance(folded, list) else []
    return Arrangement(
        width=width if type(width) is int and 0 < width <= _WIDEST else None,
        hidden=hidden is True,
        folded=tuple(name for name in names if isinstance(name, str)),
    )
