"""Plain text that commands and interfaces print: tables with aligned columns, money, and who thinks, what is told."""

from collections.abc import Iterable, Sequence

from ecoshell.budget.caps import CapState
from ecoshell.budget.costs import CostRow
from ecoshell.budget.money import about, amount_text
from ecoshell.events import BudgetSettled, ContextPart, ContextTold, ModeChosen, Reasoned, TrustGiven
from ecoshell.untrusted import visible_line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest cell."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def dollars(nano: int | None) -> str:
    """An amount for people; what is not known says so."""
    return "unknown" if nano is None else amount_text(nano, "usd")


def amount(value: int, unit: str) -> str:
    """Nano-dollars or tokens for people."""
    return amount_text(value, "usd" if unit == "usd" else "tokens")


def spent_text(row: CostRow) -> str:
    """What was spent, marked where calls reported no usage, and of how many calls nobody knows the price."""
    spent = about(dollars(row.shown_nano), estimated=row.estimate_nano is not None)
    return spent if not row.unpriced or row.shown_nano is None else f"{spent} + {row.unpriced} unknown"


def unreported_line(event: BudgetSettled) -> str:
    """Why nobody knows what a call took, what it likely took, and what counts until somebody does."""
    whole = amount(event.spent_nano, "usd") if event.spent_nano else amount(event.usage.total, "tokens")
    why = event.why or "no usage was reported"
    likely = ""
    if event.estimate is not None:
        price = "" if event.estimate_nano is None else f", ≈ {dollars(event.estimate_nano)}"
        likely = f": ≈ {event.estimate.input:,} tokens in and {event.estimate.output:,} out by a tokenizer{price}"
    return (
        f"{why[:1].upper()}{why[1:]}, so nobody knows what it took{likely}. Under a cap the whole reservation "
        f"({whole}) counts until `ecoshell cost --reconcile {event.entry}=AMOUNT` says what it was."
    )


def mode_line(chosen: ModeChosen) -> str:
    """Who thinks from now on, and why: `umi thinks: single gave up: there is no such file`."""
    return f"{chosen.mode} thinks: {visible_line(chosen.why)}"


def refusal(refused: str) -> str:
    """Why a call was not run, by the guard that kept it from running: `denied`, `not run: the turn was stopped`."""
    told = {"unapproved": "denied", "stopped": "not run: the turn was stopped"}
    return told.get(refused) or f"refused: {visible_line(refused)}"


_PARTS = {"user": "your AGENTS.md", "project": "AGENTS.md of this project", "facts": "facts of the workspace"}
_STATES = {"untrusted": "not trusted", "unreadable": "cannot be read"}
_TRUSTS = {"yes": "is trusted until it changes", "no": "is not read until it changes", "later": "is not read now"}


def context_line(told: ContextTold) -> str:
    """What the model is told of where it works: `your AGENTS.md (120 tokens), facts of the workspace (92 tokens)`."""
    return ", ".join(f"{_PARTS[part.name]} ({part_size(part, told, ' tokens')})" for part in told.parts)


def part_size(part: ContextPart, told: ContextTold, unit: str) -> str:
    """What a part takes of the context, or why it takes nothing."""
    if part.state != "told":
        return _STATES[part.state]
    return f"{'' if told.exact else '≈ '}{part.tokens:,}{unit}{', cut' if part.cut else ''}"


def reasoned_line(event: Reasoned) -> str:
    """How long a model thought before its reply: `thought for 240 tokens`; in words where nobody counted tokens."""
    if event.tokens is not None:
        return f"thought for {event.tokens:,} token{'' if event.tokens == 1 else 's'}"
    return f"thought for {words_text(event.text)}"


def words_text(text: str) -> str:
    """How many words a text has."""
    count = len(text.split())
    return f"{count:,} word{'' if count == 1 else 's'}"


def trust_line(given: TrustGiven) -> str:
    """What became of a project's instructions."""
    return f"{_PARTS['project']} {_TRUSTS[given.decision]}"


def roles_table(rows: Iterable[CostRow]) -> str:
    """What each role has cost; tools that are paid for are nobody's."""
    cells = [
        (
            row.key or "-",
            f"{row.calls:,}",
            about(f"{row.shown_usage.input:,}", estimated=row.estimate is not None),
            f"{row.usage.cached:,}",
            about(f"{row.shown_usage.output:,}", estimated=row.estimate is not None),
            spent_text(row) if not row.unpriced else "unknown",
            "unknown" if row.seconds is None or row.untimed else f"{row.seconds:,.1f}",
        )
        for row in rows
    ]
    return table(("role", "calls", "in", "cached", "out", "spent", "seconds"), cells)


def caps_table(caps: Iterable[CapState]) -> str:
    """The caps with what is used of them; says how to set one when there is none."""
    rows = [
        (cap.scope, *(amount(value, cap.unit) for value in (cap.limit, cap.spent, cap.held, cap.left))) for cap in caps
    ]
    if not rows:
        return "No cap is set. /budget 0.50 caps this session at 50 cents, /budget 20000tok at 20,000 tokens."
    return table(("cap", "limit", "spent", "held", "left"), rows)
