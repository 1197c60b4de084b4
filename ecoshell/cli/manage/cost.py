"""`ecoshell cost`: what was spent, what is held, the caps, and calls that count in full until somebody knows better."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ecoshell.agent.apprentice import Agreement, agreements
from ecoshell.agent.commands import spent_text
from ecoshell.assembly.parts import load_settings, open_ledger, open_store
from ecoshell.budget.costs import CostRow
from ecoshell.budget.holds import CapState
from ecoshell.budget.ledger import Entry, Ledger
from ecoshell.budget.money import Amount, about, amount_text, counted, nano_to_usd_text, parse_amount
from ecoshell.cli.arguments import add_json
from ecoshell.cli.manage.cost_plans import PlanCost, plan_costs, print_plans
from ecoshell.cli.manage.show import print_json, print_table, seconds_text
from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Usage
from ecoshell.paths import Paths, user_paths
from ecoshell.planning.btp.experience import ExperienceStore

if TYPE_CHECKING:
    from ecoshell.budget.leases import TeamLedger

_BY_TEAM = ("person", "team", "project")
_ZERO = frozenset({"0", "$0", "0.0", "0.00", "$0.00"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_json(parser)
    by = ("day", "session", "model", "role", "tool", "plan", *_BY_TEAM)
    parser.add_argument("--by", choices=by, default="day", help="what to add up by (default: day)")
    parser.add_argument("--session", metavar="ID", help="whose caps to show (default: the session last used)")
    parser.add_argument(
        "--reconcile",
        metavar="ENTRY=USD",
        nargs="?",
        const="",
        help="say what a call really cost that counts in full because nobody knows; alone: end leases of dead shells",
    )
    parser.add_argument(
        "--import", dest="take_over", action="store_true", help="bring what this ledger has into the team's, once"
    )


def run(args: argparse.Namespace) -> int:
    """Print the costs, or reconcile one entry first; raises UsageError and StoreError."""
    paths = user_paths()
    with closing(open_ledger(paths, load_settings(paths))) as ledger:
        if args.take_over:
            _told(f"{counted(_team(ledger).take_over(), 'call')} brought into the team's ledger.")
        if args.reconcile == "":
            _told(f"{counted(_team(ledger).reconcile_leases(), 'lease')} of dead shells ended.")
        elif args.reconcile is not None:
            entry, actual = _reconciliation(args.reconcile)
            ledger.reconcile(entry, actual)
        plans = _plans(ledger, paths) if args.by == "plan" else []
        rows = () if args.by == "plan" else _rows(ledger, args.by)
        unknown, caps = ledger.unreconciled(), _caps(ledger, paths, args.session)
    learned = _learned(paths)
    if args.json:
        print_json(
            {
                "rows": [*map(_row_record, rows), *map(_plan_record, plans)],
                "caps": [_cap_record(cap) for cap in caps],
                "unreconciled": [_entry_record(entry) for entry in unknown],
                **({"apprentice": [*map(_agreement_record, learned)]} if learned else {}),
            }
        )
    else:
        if args.by == "plan":
            print_plans(plans)
        else:
            _print_rows(args.by, rows)
        _print_caps(caps)
        _print_unknown(unknown)
        _print_learned(learned)
    return 0


def _learned(paths: Paths) -> list[Agreement]:
    """What an apprentice has come to; what was spent is told also where that cannot be read."""
    if not paths.experience_file.is_file():
        return []
    try:
        with closing(ExperienceStore(paths.experience_file)) as records:
            return agreements(records.predictions())
    except StoreError as error:
        _told(f"What the apprentice would have saved is not known. {error}")
        return []


def _team(ledger: Ledger) -> "TeamLedger":
    """The same, of a team; raises UsageError where it is of one user alone."""
    from ecoshell.budget.leases import TeamLedger

    if isinstance(ledger, TeamLedger):
        return ledger
    fix = "Set [budget] ledger, or ECOSHELL_LEDGER, to its address: postgresql://PERSON@HOST/DATABASE."
    raise UsageError("This needs a team's ledger, and there is none.", fix=fix)


def _rows(ledger: Ledger, by: Any) -> Sequence[CostRow]:
    return _team(ledger).server.costs(by) if by in _BY_TEAM else ledger.rows(by)


def _told(text: str) -> None:
    print(text, file=sys.stderr)


def _plans(ledger: Ledger, paths: Paths) -> list[PlanCost]:
    with closing(open_store(paths)) as store:
        return [*plan_costs(store, ledger)]


def _caps(ledger: Ledger, paths: Paths, wanted: str | None) -> tuple[CapState, ...]:
    """The caps over a session's last turn: the session named, or the one last used; day and month stand without one."""
    with closing(open_store(paths)) as store:
        session = store.find(wanted) if wanted is not None else next((one.id for one in store.list(1)), "")
    last = ledger.last(session)
    return ledger.caps(session, last.turn if last else 0)


def _reconciliation(text: str) -> tuple[int, Amount]:
    entry, equals, actual = text.partition("=")
    if not equals or not (entry.isascii() and entry.isdecimal()):
        raise UsageError(
            f"--reconcile {text!r} cannot be read.",
            fix="Give the entry's number and what the call cost, such as --reconcile 12=0.0031 or 12=0.",
        )
    return int(entry[:18]), Amount(0, "usd") if actual.strip() in _ZERO else parse_amount(actual)


def _row_record(row: CostRow) -> dict[str, object]:
    return {
        "key": row.key,
        "spent_usd": _usd(row.spent_nano),
        "held_usd": _usd(row.held_nano),
        "input": row.usage.input,
        "cached": row.usage.cached,
        "cache_write": row.usage.cache_write,
        "output": row.usage.output,
        "reasoning": row.usage.reasoning,
        "calls": row.calls,
        "unpriced": row.unpriced,
        "seconds": None if row.seconds is None else round(row.seconds, 3),
        "untimed": row.untimed,
        "estimate": None if row.estimate is None and row.estimate_nano is None else _shown_record(row),
    }


def _shown_record(row: CostRow) -> dict[str, object]:
    """The row with calls that reported no usage as they are estimated."""
    return {"spent_usd": _usd(row.shown_nano), "input": row.shown_usage.input, "output": row.shown_usage.output}


def _plan_record(plan: PlanCost) -> dict[str, object]:
    """A plan with the columns of every row, which are null where the ledger has nothing of it."""
    names = _row_record(CostRow(plan.key, None, 0, Usage(), 0, 0))
    columns = dict.fromkeys(names) if plan.cost is None else _row_record(plan.cost)
    return {**columns, "key": plan.key, **plan.record()}


def _cap_record(cap: CapState) -> dict[str, object]:
    """A cap in dollars ends its keys in `_usd`, one in tokens in `_tokens`; the other three are null."""
    amounts = {"limit": cap.limit, "spent": cap.spent, "held": cap.held}
    in_usd = cap.unit == "usd"
    dollars = {f"{name}_usd": _usd(value if in_usd else None) for name, value in amounts.items()}
    tokens = {f"{name}_tokens": None if in_usd else value for name, value in amounts.items()}
    return {"scope": cap.scope, **dollars, **tokens}


def _entry_record(entry: Entry) -> dict[str, object]:
    return {
        "entry": entry.id,
        "at": _time(entry),
        "session": entry.session,
        "model": entry.model,
        "state": entry.state,
        "counted_usd": _usd(_counted(entry)),
        "counted_tokens": entry.held_usage.total,
        "estimate_usd": _usd(entry.estimate_nano),
        "estimate_tokens": None if entry.estimate is None else entry.estimate.total,
    }


def _print_rows(by: str, rows: Sequence[CostRow]) -> None:
    if not rows:
        print("Nothing was spent yet.")
        return
    right = ("spent", "held", "input", "cached", "output", "calls", "seconds")
    cells = [
        (
            row.key or "-",
            spent_text(row),
            _shown(row.held_nano),
            about(f"{row.shown_usage.input:,}", estimated=row.estimate is not None),
            f"{row.usage.cached:,}",
            about(f"{row.shown_usage.output:,}", estimated=row.estimate is not None),
            f"{row.calls:,}",
            seconds_text(row),
        )
        for row in rows
    ]
    print_table((by, *right), cells, right=right)


def _print_caps(caps: Sequence[CapState]) -> None:
    if not caps:
        print("\nNo cap is set.")
        return
    right = ("limit", "spent", "held", "left")
    cells = [
        (cap.scope, *(amount_text(value, cap.unit) for value in (cap.limit, cap.spent, cap.held, cap.left)))
        for cap in caps
    ]
    print()
    print_table(("cap", *right), cells, right=right)


def _print_unknown(unknown: Sequence[Entry]) -> None:
    if not unknown:
        return
    print("\nNobody knows what these calls took, so under the caps their whole reservation counts:")
    cells = [
        (str(entry.id), _time(entry), entry.session, entry.model, entry.state, _shown(_counted(entry)), _likely(entry))
        for entry in unknown
    ]
    head = ("entry", "at", "session", "model", "state", "counted", "likely")
    print_table(head, cells, right=("entry", "counted", "likely"))
    print(f"If the provider's bill says otherwise: ecoshell cost --reconcile {unknown[0].id}=0.0031")


def _agreement_record(one: Agreement) -> dict[str, object]:
    """What an apprentice would have saved, by the tool."""
    shares = {"uses": one.uses, "alike": one.alike, "lower": round(one.lower, 4), "good": one.good}
    return {"model": one.model, "tool": one.tool, **shares, "would_save_usd": _usd(one.saved_nano)}


def _print_learned(learned: Sequence[Agreement]) -> None:
    if not learned:
        return
    saved = _shown(sum(one.saved_nano for one in learned if one.good))
    print(f"\nThe apprentice makes calls as paid models do; where it is good enough, it would have saved {saved}:")
    cells = [
        (
            one.model,
            one.tool,
            f"{one.alike} of {one.uses}",
            f"{one.lower:.0%}",
            "yes" if one.good else "no",
            _shown(one.saved_nano),
        )
        for one in learned
    ]
    print_table(
        ("model", "tool", "alike", "at least", "good", "would save"), cells, right=("alike", "at least", "would save")
    )


def _counted(entry: Entry) -> int | None:
    return entry.held_nano if entry.usage is None else entry.spent_nano


def _likely(entry: Entry) -> str:
    """What a call took by a tokenizer: its price, or its tokens where that is no other than what is counted."""
    if entry.estimate is None:
        return "unknown"
    nano = entry.estimate_nano
    return about(_shown(nano) if nano is not None else counted(entry.estimate.total, "token"), estimated=True)


def _shown(nano: int | None) -> str:
    return "unknown" if nano is None else amount_text(nano, "usd")


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd_text(nano)


def _time(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M")
