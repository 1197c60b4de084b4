"""What a plan is to a turn: it says which tools may not be used now, and is asked anew before every step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ecoshell.events import Emit


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one use of a tool is expected to take; unknown is None."""

    price_nano: int | None = None
    seconds: float | None = None


class Steering(Protocol):
    """The plan of one turn, as the driver and the guards see it."""

    @property
    def forbidden(self) -> Mapping[str, str]:
        """Tools that may not be used now, whoever asks, each with the reason in a word: budget, quota or blacklist."""
        ...

    def refusal(self, tool: str) -> str:
        """Why a call of the tool that is asked for would be refused now, and what is affordable instead.

        Empty where it would not. May take a moment.
        """
        ...

    def allows(self, tool: str) -> int | None:
        """How many more uses of a tool are allowed now; None where nothing limits them."""
        ...

    def expected(self, tool: str) -> Estimate:
        """What one use of a tool is expected to take; may block."""
        ...

    async def refresh(self, emit: Emit) -> None:
        """Plan anew if something has changed since."""
        ...


class Unsteered:
    """No plan: nothing is forbidden."""

    @property
    def forbidden(self) -> Mapping[str, str]:
        return {}

    def refusal(self, tool: str) -> str:
        return ""

    def allows(self, tool: str) -> int | None:
        return None

    def expected(self, tool: str) -> Estimate:
        return Estimate()

    async def refresh(self, emit: Emit) -> None:
        """Nothing can have changed."""
