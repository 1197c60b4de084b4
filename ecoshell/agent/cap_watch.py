"""Reports caps that are nearly used up, once per cap and limit."""

from collections.abc import Iterable, Sequence

from ecoshell.budget import NEAR_CAP_SHARE, CapState, Unit
from ecoshell.events import CapNear, Emit, Event


class CapWatch:
    """Remembers what a session has reported; a raised cap is reported again."""

    def __init__(self, past: Sequence[Event] = ()) -> None:
        """`past` holds the session's earlier events."""
        self._limits: dict[tuple[str, Unit], int] = {
            (event.scope, event.unit): event.limit for event in past if isinstance(event, CapNear)
        }
        """The limit of each reported cap."""

    def look(self, caps: Iterable[CapState], emit: Emit) -> None:
        """Report every cap that came near its limit since the last call."""
        for cap in caps:
            key = (cap.scope, cap.unit)
            if cap.spent < NEAR_CAP_SHARE * cap.limit:
                self._limits.pop(key, None)  # raised, or a new day
            elif self._limits.get(key) != cap.limit:
                self._limits[key] = cap.limit
                emit(CapNear(cap.scope, cap.unit, cap.limit, cap.spent))
