"""The tree of expected errors.

EcoshellError              says what happened, what was kept, what to do
├── UsageError             invalid command-line input (exit 2)
├── DependencyMissing      a package that a plugin needs is not installed
├── SettingsError          invalid configuration: file, line, key (exit 2)
├── StoreError             a database is locked, full, read-only or damaged
├── Unanswered             a turn ended without an answer
│   ├── GaveUp             the agent gave up; the message is its reason (exit 4)
│   ├── StepsSpent         the turn reached the step limit (exit 3)
│   └── TurnStopped        the user stopped the turn (exit 130)
├── ModelError
│   ├── ModelMissing       the model, its file, an extra or a key is missing
│   ├── ModelUnavailable   the network or the provider failed; a retry may help
│   └── ModelBroken        the reply cannot be used
│       ├── CallBroken     the reply is an invalid call, also after a retry
│       └── ContextExceeded  the prompt is longer than the model's context
├── BudgetError
│   ├── LimitReached       the next call could exceed a cap (exit 3)
│   ├── PriceUnknown       a dollar cap is set and the model has no price
│   └── ModelDisabled      the model once billed more than allowed; disabled under caps
└── ToolError              a tool refused or failed; the model reads it as an observation
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class EcoshellError(Exception):
    """A failure shown to the user: what happened, what was kept, and what to do next."""

    exit_status = 1

    def __init__(self, message: str, *, kept: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kept = kept
        self.fix = fix

    def __str__(self) -> str:
        return " ".join(part for part in (self.message, self.kept, self.fix) if part)


class UsageError(EcoshellError):
    """The input is invalid; `fix` names valid input."""

    exit_status = 2


class DependencyMissing(EcoshellError):
    """A package that a plugin needs is not installed; the message names it and the command that installs it."""


class SettingsError(EcoshellError):
    """The configuration is invalid; the message names the file, the line and the key."""

    exit_status = 2


class StoreError(EcoshellError):
    """A database is locked, full, read-only or damaged."""


class Unanswered(EcoshellError):
    """A turn ended without an answer."""


class GaveUp(Unanswered):
    """The agent gave up; the message is its own reason."""

    exit_status = 4


class StepsSpent(Unanswered):
    """The turn reached its step limit or every path failed; a partial answer may exist."""

    exit_status = 3


class TurnStopped(Unanswered):
    """The user stopped the turn before it was answered."""

    exit_status = 130


class ModelError(EcoshellError):
    """A model could not be loaded or used.

    `billed` is False only if nothing can have been charged: no connection, or a rejected call. `model` names the
    model once its call has failed for good; `shown` says whether a part of its reply was shown.
    """

    model: str = ""
    shown: bool = False

    def __init__(self, message: str, *, kept: str = "", fix: str = "", billed: bool = True) -> None:
        super().__init__(message, kept=kept, fix=fix)
        self.billed = billed


class ModelMissing(ModelError):
    """A model, a file, an installed extra or an API key is missing; usually detected before anything is sent.

    `key` is True if the API key is missing or was rejected.
    """

    def __init__(
        self,
        message: str,
        *,
        kept: str = "",
        fix: str = "",
        billed: bool = False,
        key: bool = False,
    ) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed)
        self.key = key


class ModelUnavailable(ModelError):
    """The network or the provider failed.

    `transient` says whether a retry may succeed; `retry_after` is the wait in seconds that the provider asks for.
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
    """The model's address cannot be reached; an immediate retry would not help."""

    def __init__(self, message: str, *, kept: str = "", fix: str = "", billed: bool = True) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed, transient=False)


class ModelBroken(ModelError):
    """The model's reply cannot be used."""


class CallBroken(ModelBroken):
    """A model made an invalid call, also after a retry.

    `tool` and `arguments` hold what could be read of the call; otherwise they are empty.
    """

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
        kept: str = "",
        fix: str = "",
    ) -> None:
        super().__init__(message, kept=kept, fix=fix)
        self.tool = tool
        self.arguments: Mapping[str, Any] = arguments or {}


class ContextExceeded(ModelBroken):
    """The prompt is longer than the model's context; `limit` is that context in tokens if the provider reported it."""

    def __init__(
        self,
        message: str,
        *,
        limit: int | None = None,
        kept: str = "",
        fix: str = "",
        billed: bool = False,
    ) -> None:
        super().__init__(message, kept=kept, fix=fix, billed=billed)
        self.limit = limit


class BudgetError(EcoshellError):
    """A call was refused because of a cap."""


class LimitReached(BudgetError):
    """The next call could exceed a cap.

    `scope` is the cap's scope (turn, session, day, month, task); `need` and `left` are in nano-dollars, tokens or
    milliseconds (`unit`). `text` is what a model had written when a cap in time stopped its call.
    """

    exit_status = 3

    def __init__(
        self, message: str, *, scope: str, need: int, left: int, unit: str, fix: str = ""
    ) -> None:
        super().__init__(message, fix=fix)
        self.scope = scope
        self.need = need
        self.left = left
        self.unit = unit
        self.text = ""


class PriceUnknown(BudgetError):
    """A dollar cap is set, and this model's price is unknown."""


class ModelDisabled(BudgetError):
    """The model once billed more than its prompt and `max_tokens` allow; it is disabled under a cap."""


class ToolError(EcoshellError):
    """A tool refused or failed; the model reads the message as an observation."""


def closest_words(word: str, words: Iterable[str]) -> list[str]:
    """Return up to three similar words, first those with the same letters, because letters are often swapped."""
    from difflib import get_close_matches  # only needed after a mistake

    return sorted(
        get_close_matches(word, list(words), n=3), key=lambda match: sorted(match) != sorted(word)
    )


def closest_word(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar word."""
    return next(iter(closest_words(word, words)), None)


def is_typo(word: str, other: str) -> bool:
    """Whether the words differ by one letter more, one letter less, one other letter, or two swapped neighbours."""
    if len(word) != len(other):
        short, long = sorted((word, other), key=len)
        return any(short == long[:at] + long[at + 1 :] for at in range(len(long)))
    wrong = [at for at in range(len(word)) if word[at] != other[at]]
    if len(wrong) == 2:
        first, second = wrong
        return second == first + 1 and word[first : second + 1] == other[first : second + 1][::-1]
    return len(wrong) == 1


def suggestion(word: str, words: Sequence[str]) -> str:
    """Suggest the most similar word, or list all of them."""
    match = closest_word(word, words)
    return f"Did you mean {match}?" if match else f"Available: {', '.join(words) or 'none'}."
