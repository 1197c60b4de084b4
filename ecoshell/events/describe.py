"""The words of events that every interface has for them: each sets them in its own type, beside its own signs."""

from collections.abc import Mapping

from ecoshell.budget.money import amount_text
from ecoshell.events.base import Event
from ecoshell.events.money import BudgetSettled
from ecoshell.events.turn import (
    BranchLeft,
    ContextPart,
    ContextTold,
    ModeChosen,
    Reasoned,
    Status,
    TrustGiven,
)
from ecoshell.untrusted import visible_line

ENDINGS: Mapping[Status, str] = {
    "answered": "answered",
    "limit": "limit reached",
    "gave_up": "gave up",
    "error": "error",
    "interrupted": "stopped",
}
"""How a turn ended."""
_PARTS = {"user": "your AGENTS.md", "project": "AGENTS.md of this project", "facts": "facts of the workspace"}
_STATES = {"untrusted": "not trusted", "unreadable": "cannot be read"}
_TRUSTS = {"yes": "is trusted until it changes", "no": "is not read until it changes", "later": "is not read now"}


def describe(event: Event) -> str:
    """An event in a line; empty for what is not worth one, or is told in a form of its own wherever it is."""
    match event:
        case ModeChosen():
            return f"{event.mode} thinks: {visible_line(event.why)}"
        case Reasoned():
            return f"thought for {_length(event)}"
        case ContextTold() if any(part.name != "facts" for part in event.parts):  # a panel counts facts alone
            return f"told: {context_line(event)}"
        case TrustGiven(by="person"):
            return f"{_PARTS['project']} {_TRUSTS[event.decision]}"
        case BudgetSettled(reported=False):
            return _unreported(event)
        case _:
            return ""


def back_to(event: BranchLeft) -> str:
    """Where a search goes on: `back to step 2`."""
    return f"back to step {len(event.path)}" if event.path else "back to the beginning"


def refusal(refused: str) -> str:
    """Why a call was not run, by the guard that kept it from running: `denied`, `not run: the turn was stopped`."""
    told = {"unapproved": "denied", "stopped": "not run: the turn was stopped"}
    return told.get(refused) or f"refused: {visible_line(refused)}"


def context_line(told: ContextTold) -> str:
    """What the model is told of where it works: `your AGENTS.md (120 tokens), facts of the workspace (92 tokens)`."""
    return ", ".join(f"{_PARTS[part.name]} ({part_size(part, told, ' tokens')})" for part in told.parts)


def part_size(part: ContextPart, told: ContextTold, unit: str) -> str:
    """What a part takes of the context, or why it takes nothing."""
    if part.state != "told":
        return _STATES[part.state]
    return f"{'' if told.exact else '≈ '}{part.tokens:,}{unit}{', cut' if part.cut else ''}"


def words_text(text: str) -> str:
    """How many words a text has."""
    count = len(text.split())
    return f"{count:,} word{'' if count == 1 else 's'}"


def _length(event: Reasoned) -> str:
    """How long a model thought before its reply; in words where nobody counted tokens."""
    if event.tokens is None:
        return words_text(event.text)
    return f"{event.tokens:,} token{'' if event.tokens == 1 else 's'}"


def _unreported(event: BudgetSettled) -> str:
    """Why nobody knows what a call took, what it likely took, and what counts until somebody does."""
    whole = amount_text(event.spent_nano, "usd") if event.spent_nano else amount_text(event.usage.total, "tokens")
    why = event.why or "no usage was reported"
    likely = ""
    if event.estimate is not None:
        price = "" if event.estimate_nano is None else f", ≈ {amount_text(event.estimate_nano, 'usd')}"
        likely = f": ≈ {event.estimate.input:,} tokens in and {event.estimate.output:,} out by a tokenizer{price}"
    return (
        f"{why[:1].upper()}{why[1:]}, so nobody knows what it took{likely}. Under a cap the whole reservation "
        f"({whole}) counts until `ecoshell cost --reconcile {event.entry}=AMOUNT` says what it was."
    )
