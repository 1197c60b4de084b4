"""What a plan is to a turn: it says which tools may not be used now, and is asked anew before every step."""

from collections.abc import Mapping
from typing import Protocol

from ecoshell.events import Emit


class Steering(Protocol):
    """The plan of one turn, as the driver and the guards see it."""

    @property
    def forbidden(self) -> Mapping[str, str]:
        """Tools that may not be used now, each with the reason in a word: budget, quota or blacklist."""
        ...

    async def refresh(self, emit: Emit) -> None:
        """Plan anew if something has changed since."""
        ...


class Unsteered:
    """No plan: nothing is forbidden."""

    @property
    def forbidden(self) -> Mapping[str, str]:
        return {}

    async def refresh(self, emit: Emit) -> None:
        """Nothing can have changed."""
