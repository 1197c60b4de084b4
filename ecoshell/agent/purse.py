"""The purse: the gate as one session's present turn uses it."""

from ecoshell.budget.caps import CapState, Scope
from ecoshell.budget.gate import Gate
from ecoshell.budget.holds import Account
from ecoshell.budget.money import Amount


class Purse:
    """Knows whose money is being spent: the session and the turn of the moment."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._session = ""
        self._turn = 0

    def enter(self, session: str, turn: int) -> None:
        """From now on calls are this session's, in this turn."""
        self._session, self._turn = session, turn

    def account(self) -> Account:
        """Whose money a call made now is; role, model and purpose are for the caller to fill in."""
        return Account(session=self._session, turn=self._turn, role="", model="", purpose="")

    async def caps(self) -> tuple[CapState, ...]:
        """The caps over the turn of the moment."""
        return await self.gate.caps(self.account())

    async def caps_at_rest(self) -> tuple[CapState, ...]:
        """The same, without what calls hold that are under way, most of which will be free again."""
        return await self.gate.caps_at_rest(self.account())

    async def set_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Set a cap, or remove the scope's with None."""
        await self.gate.set_cap(self.account(), scope, amount)

    async def require(self, nano: int) -> None:
        """Raise LimitReached when a cap does not leave this much now; nothing is reserved by asking."""
        await self.gate.require(self.account(), nano)

    async def charge_tool(self, tool: str, nano: int) -> None:
        """Pay for one use of a tool; raises LimitReached."""
        await self.gate.charge_tool(self.account(), tool, nano)
