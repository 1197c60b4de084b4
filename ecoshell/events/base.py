"""What all events have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that happened; `type` names it in JSON."""

    type: ClassVar[str] = "event"


Emit = Callable[[Event], None]
"""Takes an event at once; ordering is the order of the calls."""
