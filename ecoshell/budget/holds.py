"""What goes through the gate: an ask, the hold it becomes, and the settlement that ends it."""

from dataclasses import dataclass

from ecoshell.budget.price import Price
from ecoshell.messages import Usage


@dataclass(frozen=True, slots=True)
class Account:
    """On whose behalf a call is made."""

    session: str
    turn: int
    role: str
    model: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that wants to be made: at most `prompt_tokens` in, and at most `max_tokens` out.

    `min_tokens` is the least output the call is of any use with; below it the call is refused rather than clamped.
    """

    price: Price | None
    prompt_tokens: int
    max_tokens: int
    account: Account
    min_tokens: int = 16

    @property
    def floor(self) -> int:
        """The least `max_tokens` this call may be lowered to."""
        return min(self.min_tokens, self.max_tokens)

    @property
    def worst_nano(self) -> int | None:
        """The most it may cost; None when the price is unknown."""
        return None if self.price is None else self.price.worst(self.prompt_tokens, self.max_tokens)


@dataclass(frozen=True, slots=True)
class Hold:
    """The worst case of a call, reserved; `nano` is None when the price is unknown and no cap in dollars stands."""

    entry: int
    nano: int | None
    tokens: int
    max_tokens: int
    clamped: bool
    account: Account
    price: Price | None

    @property
    def prompt_tokens(self) -> int:
        """The prompt's bound."""
        return self.tokens - self.max_tokens


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a call came to; without a report the whole hold, and an overrun where the report says more than was held."""

    entry: int
    spent_nano: int | None
    usage: Usage
    reported: bool
    overrun_nano: int = 0
    overrun_tokens: int = 0
    estimate: Usage | None = None
    """Of a call that reported no usage: what a tokenizer counts in what was sent and received, for people to see."""
    estimate_nano: int | None = None
    """The price of that; None where it is unknown, and where it is no other than what is counted."""

    @property
    def overran(self) -> bool:
        """Whether the provider billed more than the prompt and `max_tokens` allow."""
        return self.overrun_nano > 0 or self.overrun_tokens > 0
