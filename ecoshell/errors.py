"""Everything that can go wrong on purpose, in one small tree.

EcoshellError              what happened, what was kept, what to do
├── UsageError             what was typed cannot be taken (exit 2)
├── SettingsError          the configuration is wrong: file, line, key (exit 2)
├── StoreError             a database is locked, full, read-only or damaged
├── Unanswered             a turn ended without the answer it was asked for
│   ├── GaveUp             the agent gave up, and the message is why (exit 4)
│   ├── StepsSpent         the step limit came first (exit 3)
│   └── TurnStopped        it was stopped (exit 130)
├── ModelError
│   ├── ModelMissing       no such model, file, extra or key
│   ├── ModelUnavailable   the network or the provider did not answer; trying again may help
│   └── ModelBroken        it answered, and the answer cannot be used
│       ├── CallBroken     and was a call, also when it was asked for again
│       └── ContextExceeded  it refused the prompt as longer than its context
├── BudgetError
│   ├── LimitReached       the next call could pass a cap (exit 3)
│   ├── PriceUnknown       a cap in dollars stands, and this model has no price
│   └── ModelDisabled        the model once billed more than it may; no calls under a cap
└── ToolError              a tool refused or failed; told to the model as an observation
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class EcoshellError(Exception):
    """A failure the user is told about: what happened, what was kept, and what to do."""

    exit_status = 1

    def __init__(self, message: str, *, kept: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kept = kept
        self.fix = fix

    def __str__(self) -> str:
        return " ".join(part for part in (self.message, self.kept, self.fix) if part)


class UsageError(EcoshellError):
    """What was typed cannot be taken; `fix` says what can."""

    exit_status = 2


class SettingsError(EcoshellError):
    """The configuration is wrong; the message names the file, the line and the key."""

    exit_status = 2


class StoreError(EcoshellError):
    """A database is locked, full, read-only or damaged."""


class Unanswered(EcoshellError):
    """A turn ended without the answer it was asked for, for another reason than those below."""


class GaveUp(Unanswered):
    """The agent gave up; the message is why, in its words."""

    exit_status = 4


class StepsSpent(Unanswered):
    """The turn took all its steps, or every path that it tried failed; there may be an answer from what was found."""

    exit_status = 3


class TurnStopped(Unanswered):
    """The turn was stopped before it had an answer."""

    exit_status = 130


class ModelError(EcoshellError):
    """A model could not be had or used.

    `billed` is False only when nothing can have been charged: there was no connection, or the call was turned away.
    `model` names the model once its call has failed for good; `shown` says whether a part of its reply was shown.
    """

    model: str = ""
    shown: bool = False

    def __init__(self, message: str, *, kept: str = "", fix: str = "", billed: bool = True) -> None:
        super().__init__(message, kept=kept, fix=fix)
        self.billed = billed


class ModelMissing(ModelError):
    """There is no such model, file, installed extra or API key; as a rule that is seen before anything is sent.

    `key` says that it is a key that is not there, or was refused.
    """

    def __init__(self, message: str, *, kept: str = "", fix: str = "", billed: bool = False, key: bool = False) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed)
        self.key = key


class ModelUnavailable(ModelError):
    """The network or the provider did not answer.

    `transient` says whether another attempt may succeed; `retry_after` is the wait in seconds the provider asks for.
    """

    def __init__(
        self,
        message: str,
        *,
        kept: str = "",
        fix: str = "",
        billed: bool = True,
        transient: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed)
        self.transient = transient
        self.retry_after = retry_after


class ModelUnreachable(ModelUnavailable):
    """No connection to the model's address could be made; another attempt at once would not help."""

    def __init__(self, message: str, *, kept: str = "", fix: str = "", billed: bool = True) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed, transient=False)


class ModelBroken(ModelError):
    """The model answered, and the answer cannot be used."""


class CallBroken(ModelBroken):
    """A model made a call that cannot be used, also when it was asked for it again.

    `tool` and `arguments` are what it wrote, as far as that could be read; empty where it could not.
    """

    def __init__(
        self, message: str, *, tool: str = "", arguments: Mapping[str, Any] | None = None, kept: str = "", fix: str = ""
    ) -> None:
        super().__init__(message, kept=kept, fix=fix)
        self.tool = tool
        self.arguments: Mapping[str, Any] = arguments or {}


class ContextExceeded(ModelBroken):
    """The prompt is longer than the model's context. `limit` is that context in tokens if the provider said it."""

    def __init__(
        self, message: str, *, limit: int | None = None, kept: str = "", fix: str = "", billed: bool = False
    ) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed)
        self.limit = limit


class BudgetError(EcoshellError):
    """A call was refused for the sake of a cap."""


class LimitReached(BudgetError):
    """The next call could pass a cap.

    `scope` is the cap's scope (turn, session, day, month); `need` and `left` count nano-dollars or tokens (`unit`).
    """

    exit_status = 3

    def __init__(self, message: str, *, scope: str, need: int, left: int, unit: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.scope = scope
        self.need = need
        self.left = left
        self.unit = unit


class PriceUnknown(BudgetError):
    """A cap in dollars stands and this model's price is not known."""


class ModelDisabled(BudgetError):
    """This model once billed more than prompt and `max_tokens` allow, so no call goes to it under a cap."""


class ToolError(EcoshellError):
    """A tool refused or failed; the model reads the message as an observation."""


def closest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word most like this one; one of the same letters goes first, because letters are swapped easily."""
    from difflib import get_close_matches  # only where something is wrong

    close = get_close_matches(word, list(known), n=3)
    return min(close, key=lambda one: sorted(one) != sorted(word), default=None)


def suggestion(word: str, known: Sequence[str]) -> str:
    """What to do about a word that is none of these: the one most like it, or all there are."""
    near = closest_word(word, known)
    return f"Did you mean {near}?" if near else f"There are {', '.join(known) or 'none'}."
