"""`ecoshell cost`: what was spent, what is held, the caps, and calls that count in full until somebody knows better."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from ecoshell.agent.apprentice import Agreement, agreements
from ecoshell.agent.commands import dollars, spent_text
from ecoshell.assembly import load_settings, open_ledger, open_store
from ecoshell.budget import CapState, about, amount_text, counted, nano_to_usd_text, parse_spent
from ecoshell.budget.ledger import CostRow, Entry, Ledger
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import GraphPlanned
from ecoshell.messages import Usage, visible_line
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import ExperienceStore
from ecoshell.planning.catp.costs import worth
from ecoshell.sessions import SessionStore
from ecoshell.sessions.tool_graphs import PlannedTurns

_BY_TEAM = ("person", "team", "project")
_QUESTION = 40
"""Characters of the question that a table shows."""


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
    paths, plans = user_paths(), list[tuple[CostRow | None, dict[str, Any]]]()
    rows: Sequence[CostRow] = ()
    with closing(open_ledger(paths, load_settings(paths))) as ledger:
        if args.take_over:
            print(f"{counted(ledger.import_calls(), 'call')} brought into the team's ledger.", file=sys.stderr)
        if args.reconcile == "":
            print(f"{counted(ledger.end_dead_leases(), 'lease')} of dead shells ended.", file=sys.stderr)
        elif args.reconcile is not None:
            entry, equals, actual = args.reconcile.partition("=")
            if not equals or not (entry.isascii() and entry.isdecimal()):
                raise UsageError(
                    f"--reconcile {args.reconcile!r} cannot be read.",
                    fix="Give the entry's number and what the call cost, such as --reconcile 12=0.0031 or 12=0.",
                )
            ledger.reconcile(int(entry[:18]), parse_spent(actual))
        with closing(open_store(paths)) as store:
            if args.by == "plan":
                plans = [*_plan_costs(ledger, store)]
            elif args.by in _BY_TEAM:
                rows = ledger.shared_costs(args.by)
            else:
                rows = ledger.rows(args.by)
            # the caps over a session's last turn; those of day and month stand without one
            last_used = next((one.id for one in store.list(1)), "")
            session = last_used if args.session is None else store.find(args.session)
        unknown, last = ledger.unreconciled(), ledger.last(session)
        caps = ledger.caps(session, last.turn if last else 0)
        if (away := ledger.away) is not None:
            print(f"The team's caps are not known. {away}", file=sys.stderr)
    learned: list[Agreement] = []
    if paths.experience_file.is_file():
        try:
            with closing(ExperienceStore(paths.experience_file)) as records:
                learned = agreements(records.predictions())
        except StoreError as error:  # what was spent is told all the same
            print(f"What the apprentice would have saved is not known. {error}", file=sys.stderr)
    if args.json:
        found = [*map(_row_record, rows), *(record for _, record in plans)]
        print_json({"rows": found, **_records(caps, unknown, learned)})
        return 0
    if args.by == "plan":
        _print_plans(plans)
    else:
        _print_rows(args.by, rows)
    if not caps and away is None:
        print("\nNo cap is set.")
    _print_rest(caps, unknown, learned)
    return 0


def _row_record(row: CostRow) -> dict[str, object]:
    """A row; `estimate` is the same with calls that reported no usage as they are estimated."""
    shown = {"spent_usd": _usd(row.shown_nano), "input": row.shown_usage.input, "output": row.shown_usage.output}
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
        "estimate": None if row.estimate is None and row.estimate_nano is None else shown,
    }


def _records(
    caps: Sequence[CapState], unknown: Sequence[Entry], learned: Sequence[Agreement]
) -> dict[str, list[dict[str, object]]]:
    """Caps, calls of which nobody knows what they took, and what an apprentice would have saved.

    A cap in dollars ends its keys in `_usd`, one in tokens in `_tokens`; the other three are null.
    """
    every_cap: list[dict[str, object]] = []
    for cap in caps:
        amounts, in_usd = {"limit": cap.limit, "spent": cap.spent, "held": cap.held}, cap.unit == "usd"
        usd = {f"{name}_usd": _usd(value if in_usd else None) for name, value in amounts.items()}
        tokens = {f"{name}_tokens": None if in_usd else value for name, value in amounts.items()}
        every_cap.append({"scope": cap.scope, **usd, **tokens})
    entries: list[dict[str, object]] = [
        {
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
        for entry in unknown
    ]
    saved: list[dict[str, object]] = [
        {
            "model": one.model,
            "tool": one.tool,
            "uses": one.uses,
            "alike": one.alike,
            "lower": round(one.lower, 4),
            "good": one.good,
            "would_save_usd": _usd(one.saved_nano),
        }
        for one in learned
    ]
    return {"caps": every_cap, "unreconciled": entries, **({"apprentice": saved} if saved else {})}


def _print_rows(by: str, rows: Sequence[CostRow]) -> None:
    if not rows:
        print("Nothing was spent yet.")
        return
    reasoned = any(row.usage.reasoning for row in rows)
    right = ("spent", "held", "input", "cached", "output", *(("reasoning",) if reasoned else ()), "calls", "seconds")
    cells: list[tuple[str, ...]] = []
    for row in rows:
        seconds = "unknown" if row.seconds is None else f"{row.seconds:,.1f}"
        if row.untimed and row.seconds is not None:
            seconds += f" + {row.untimed} unknown"
        shown = (f"{count:,}" for count in (row.shown_usage.input, row.shown_usage.output))
        read, written = (about(text, estimated=row.estimate is not None) for text in shown)
        money = (spent_text(row), dollars(row.held_nano))
        reasoning = (f"{row.usage.reasoning:,}",) if reasoned else ()
        tokens = (read, f"{row.usage.cached:,}", written, *reasoning)
        cells.append((row.key or "-", *money, *tokens, f"{row.calls:,}", seconds))
    print_table((by, *right), cells, right=right)


def _print_rest(caps: Sequence[CapState], unknown: Sequence[Entry], learned: Sequence[Agreement]) -> None:
    """The caps, calls of which nobody knows what they took, and what an apprentice would have saved."""
    if caps:
        print()
        right = ("limit", "spent", "held", "left")
        cells: list[tuple[str, ...]] = []
        for cap in caps:
            amounts = (cap.limit, cap.spent, cap.held, cap.left)
            cells.append((cap.scope, *(amount_text(value, cap.unit) for value in amounts)))
        print_table(("cap", *right), cells, right=right)
    if unknown:
        print("\nNobody knows what these calls took, so under the caps their whole reservation counts:")
        cells = []
        for entry in unknown:
            likely = "unknown"
            if entry.estimate is not None:  # by a tokenizer; its tokens where the price is no other than what counts
                nano = entry.estimate_nano
                took = dollars(nano) if nano is not None else counted(entry.estimate.total, "token")
                likely = about(took, estimated=True)
            known = (str(entry.id), _time(entry), entry.session, entry.model, entry.state)
            cells.append((*known, dollars(_counted(entry)), likely))
        head = ("entry", "at", "session", "model", "state", "counted", "likely")
        print_table(head, cells, right=("entry", "counted", "likely"))
        print(f"If the provider's bill says otherwise: ecoshell cost --reconcile {unknown[0].id}=0.0031")
    if learned:
        saved = dollars(sum(one.saved_nano for one in learned if one.good))
        print(f"\nThe apprentice makes calls as paid models do; where it is good enough, it would have saved {saved}:")
        cells = []
        for one in learned:
            good, alike = "yes" if one.good else "no", f"{one.alike} of {one.uses}"
            cells.append((one.model, one.tool, alike, f"{one.lower:.0%}", good, dollars(one.saved_nano)))
        head = ("model", "tool", "alike", "at least", "good", "would save")
        print_table(head, cells, right=("alike", "at least", "would save"))


def _counted(entry: Entry) -> int | None:
    return entry.held_nano if entry.usage is None else entry.spent_nano


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd_text(nano)


def _time(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M")


# Tool graphs


def _plan_costs(ledger: Ledger, store: SessionStore) -> Iterator[tuple[CostRow | None, dict[str, Any]]]:
    """Every tool graph that is kept, the first one first: what its turn has cost, and all as JSON has it.

    That are the columns of every row, null where the ledger has nothing of the turn, and its own. Raises StoreError.
    """
    for session in store.sessions_with(GraphPlanned):
        costs = ledger.turn_rows(session)
        for number, turn in PlannedTurns(store.history(session)).by_number.items():
            cost, scored = costs.get(number), turn.scored
            key, quality, nano = f"{session}/{number}", None, None
            if scored is not None:  # by the ledger as it stands: a call may have been reconciled since
                if cost and not cost.unpriced and cost.spent_nano is not None and scored.resources_nano is not None:
                    nano = cost.spent_nano + scored.resources_nano
                quality = worth(scored.performance, nano, alpha=scored.alpha, most_nano=scored.most_nano)
            columns = _row_record(cost or CostRow(key, None, 0, Usage(), 0, 0))
            record = {
                **(columns if cost else dict.fromkeys(columns)),
                "key": key,
                "session": session,
                "turn": number,
                "question": turn.question,
                "nodes": len(turn.tool_graph.plan.nodes) if turn.tool_graph else 0,
                "seconds": turn.seconds,
                "performance": scored.performance if scored else None,
                "judged_by": scored.judged_by if scored else "",
                "cost_usd": _usd(nano),
                "most_usd": nano_to_usd_text(scored.most_nano) if scored else None,
                "alpha": scored.alpha if scored else None,
                "qop": quality,
            }
            yield cost, record


def _print_plans(plans: Sequence[tuple[CostRow | None, Mapping[str, Any]]]) -> None:
    if not plans:
        print("No tool graph was made yet: --strategy graph makes them.")
        return
    right = ("nodes", "spent", "seconds", "P", "QoP")
    cells: list[tuple[str, ...]] = []
    for cost, plan in plans:
        spent = "-" if cost is None else spent_text(cost)
        figures = ((plan[name], digits) for name, digits in (("seconds", 1), ("performance", 2), ("qop", 2)))
        known = ("-" if value is None else f"{value:.{digits}f}" for value, digits in figures)
        cells.append((plan["key"], visible_line(plan["question"], _QUESTION), f"{plan['nodes']:,}", spent, *known))
    print_table(("plan", "question", *right), cells, right=right)
