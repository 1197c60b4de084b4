"""`ecoshell cost`: spending, reservations, caps, and calls whose cost is unknown."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast, get_args

from ecoshell.agent.command_table import dollars, spent_text
from ecoshell.agent.plan_text import bill_record, quote_table
from ecoshell.assembly import load_settings, open_ledger, open_store
from ecoshell.budget import (
    CapState,
    about,
    amount_text,
    counted,
    duration_text,
    nano_to_usd_text,
    parse_spent,
)
from ecoshell.budget.costs import By, CostRow
from ecoshell.budget.entries import Entry
from ecoshell.budget.ledger import Ledger
from ecoshell.cli.manage.live import show_live
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import Bill, GraphPlanned
from ecoshell.messages import Usage, visible_line
from ecoshell.paths import user_paths
from ecoshell.planning.catp.costs import worth
from ecoshell.sessions import SessionStore
from ecoshell.sessions.tool_graphs import PlannedTurns

_TEAM_GROUPS = ("person", "team", "project")
_GROUPS = (*get_args(By), "plan", *_TEAM_GROUPS)
_QUESTION_CHARACTERS = 40
_MAX_ENTRY_DIGITS = 18
"""More digits do not fit SQLite's integers."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """A tool graph: the ledger's row of its turn, if any, and its JSON record."""

    cost: CostRow | None
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the command prints; `plans` replaces `rows` with `--by plan`."""

    rows: Sequence[CostRow]
    plans: Sequence[PlanCost]
    caps: Sequence[CapState]
    unreconciled: Sequence[Entry]
    bills: Sequence[tuple[str, Bill]]
    """Bills of quoted work with their sessions."""
    ledger_problem: StoreError | None
    """Why the team's caps are unknown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    parser.add_argument(
        "--by", choices=_GROUPS, default="day", help="how to group costs (default: day)"
    )
    parser.add_argument(
        "--session", metavar="ID", help="session whose caps are shown (default: the latest)"
    )
    parser.add_argument(
        "--live", action="store_true", help="show the costs of the running session until Ctrl-C"
    )
    parser.add_argument(
        "--reconcile",
        metavar="ENTRY=AMOUNT",
        nargs="?",
        const="",
        help="set the cost of a call whose cost is unknown; without a value, end the leases of dead shells",
    )
    parser.add_argument(
        "--import",
        dest="import_calls",
        action="store_true",
        help="copy this ledger into the team's ledger, once",
    )


def run(args: argparse.Namespace) -> int:
    """Print the costs, after importing or reconciling if requested; raises UsageError and StoreError."""
    paths = user_paths()
    with closing(open_ledger(paths, load_settings(paths))) as ledger:
        if args.live:
            show_live(ledger, args.session)
            return 0
        if args.import_calls:
            print(
                f"{counted(ledger.import_calls(), 'call')} imported into the team's ledger.",
                file=sys.stderr,
            )
        if args.reconcile is not None:
            _reconcile(ledger, args.reconcile)
        with closing(open_store(paths)) as store:
            report = _report(ledger, store, args.by, args.session)
    if args.json:
        records = [*map(_row_record, report.rows), *(plan.record for plan in report.plans)]
        print_json({"rows": records, **_records(report)})
        return 0
    if args.by == "plan":
        _print_plans(report.plans)
    else:
        _print_rows(args.by, report.rows)
    if report.caps:
        _print_caps(report.caps)
    elif report.ledger_problem is None:
        print("\nNo cap is set.")
    if report.unreconciled:
        _print_unreconciled(report.unreconciled)
    if report.bills:
        print(f"\n{quote_table([bill for _, bill in report.bills])}")
    return 0


def _reconcile(ledger: Ledger, typed: str) -> None:
    """Set the cost of one entry, or end the leases of dead shells."""
    if not typed:
        print(
            f"{counted(ledger.end_dead_leases(), 'lease')} of dead shells ended.", file=sys.stderr
        )
        return
    entry, equals, cost = typed.partition("=")
    if not equals or not (entry.isascii() and entry.isdecimal()):
        raise UsageError(
            f"--reconcile {typed!r} is not ENTRY=AMOUNT.",
            fix="Give the entry's number and the call's cost or time, such as --reconcile 12=0.0031, 12=0 or 12=3s.",
        )
    ledger.reconcile(int(entry[:_MAX_ENTRY_DIGITS]), parse_spent(cost))


def _report(
    ledger: Ledger,
    store: SessionStore,
    group: str,
    session_prefix: str | None,
) -> Report:
    rows: Sequence[CostRow] = ()
    plans: Sequence[PlanCost] = ()
    if group == "plan":
        plans = [*_plan_costs(ledger, store)]
    elif group in _TEAM_GROUPS:
        rows = ledger.shared_costs(group)
    else:
        rows = ledger.rows(cast("By", group))
    latest = next((info.id for info in store.list(1)), "")
    session = latest if session_prefix is None else store.find(session_prefix)
    last_entry = ledger.last(session)
    caps = ledger.caps(session, last_entry.turn if last_entry else 0)
    unreconciled = ledger.unreconciled()
    problem = ledger.away
    if problem is not None:
        print(f"The team's caps are unknown. {problem}", file=sys.stderr)
    return Report(rows, plans, caps, unreconciled, store.events_of(Bill), problem)


def _row_record(row: CostRow) -> dict[str, object]:
    """Return a row as JSON; `estimate` includes estimates of calls that reported no usage."""
    estimate = {
        "spent_usd": _usd(row.shown_nano),
        "input": row.shown_usage.input,
        "output": row.shown_usage.output,
    }
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
        "estimate": None if row.estimate is None and row.estimate_nano is None else estimate,
    }


def _records(report: Report) -> dict[str, list[dict[str, object]]]:
    """Return caps, calls of unknown cost and quotes as JSON.

    A cap in dollars sets the keys in `_usd`, one in tokens those in `_tokens`, one in time those in `_seconds`; the
    others are null.
    """
    caps: list[dict[str, object]] = []
    for cap in report.caps:
        record: dict[str, object] = {"scope": cap.scope}
        for name, value in (("limit", cap.limit), ("spent", cap.spent), ("held", cap.held)):
            record[f"{name}_usd"] = _usd(value if cap.unit == "usd" else None)
            record[f"{name}_tokens"] = value if cap.unit == "tokens" else None
            record[f"{name}_seconds"] = value / 1_000 if cap.unit == "ms" else None
        caps.append(record)
    entries: list[dict[str, object]] = [
        {
            "entry": entry.id,
            "at": _time(entry),
            "session": entry.session,
            "model": entry.model,
            "state": entry.state,
            "counted_usd": _usd(_counted_nano(entry)),
            "counted_tokens": entry.held_usage.total,
            "counted_seconds": _counted_ms(entry) / 1_000,
            "estimate_usd": _usd(entry.estimate_nano),
            "estimate_tokens": None if entry.estimate is None else entry.estimate.total,
        }
        for entry in report.unreconciled
    ]
    quotes = [bill_record(session, bill) for session, bill in report.bills]
    more = {"quotes": quotes}
    return {
        "caps": caps,
        "unreconciled": entries,
        **{name: records for name, records in more.items() if records},
    }


def _print_rows(group: str, rows: Sequence[CostRow]) -> None:
    if not rows:
        print("Nothing was spent yet.")
        return
    has_reasoning = any(row.usage.reasoning for row in rows)
    reasoning_head = ("reasoning",) if has_reasoning else ()
    right = ("spent", "held", "input", "cached", "output", *reasoning_head, "calls", "seconds")
    cells: list[tuple[str, ...]] = []
    for row in rows:
        seconds = "unknown" if row.seconds is None else f"{row.seconds:,.1f}"
        if row.untimed and row.seconds is not None:
            seconds += f" + {row.untimed} unknown"
        is_estimated = row.estimate is not None
        tokens_in = about(f"{row.shown_usage.input:,}", estimated=is_estimated)
        tokens_out = about(f"{row.shown_usage.output:,}", estimated=is_estimated)
        reasoning = (f"{row.usage.reasoning:,}",) if has_reasoning else ()
        tokens = (tokens_in, f"{row.usage.cached:,}", tokens_out, *reasoning)
        key = row.key or ("tools" if group in ("role", "model") else "-")
        cells.append(
            (key, spent_text(row), dollars(row.held_nano), *tokens, f"{row.calls:,}", seconds)
        )
    print_table((group, *right), cells, right=right)


def _print_caps(caps: Sequence[CapState]) -> None:
    right = ("limit", "spent", "held", "left")
    cells: list[tuple[str, ...]] = []
    for cap in caps:
        amounts = (cap.limit, cap.spent, cap.held, cap.left)
        cells.append((cap.scope, *(amount_text(value, cap.unit) for value in amounts)))
    print()
    print_table(("cap", *right), cells, right=right)


def _print_unreconciled(entries: Sequence[Entry]) -> None:
    print(
        "\nThe cost of these calls is unknown, so their whole reservation counts against the caps:"
    )
    cells: list[tuple[str, ...]] = []
    for entry in entries:
        estimate = "unknown"
        if (
            entry.estimate is not None
        ):  # counted by a tokenizer; shown in tokens if the price is unknown
            nano = entry.estimate_nano
            text = dollars(nano) if nano is not None else counted(entry.estimate.total, "token")
            estimate = about(text, estimated=True)
        is_tool = entry.purpose == "tool"
        state, subject = (
            "stopped" if is_tool else entry.state,
            entry.tool if is_tool else entry.model,
        )
        identity = (str(entry.id), _time(entry), entry.session, subject, state)
        cells.append(
            (*identity, dollars(_counted_nano(entry)), duration_text(_counted_ms(entry)), estimate)
        )
    head = ("entry", "at", "session", "model or tool", "state", "counted", "time", "estimate")
    print_table(head, cells, right=("entry", "counted", "time", "estimate"))
    print(f"If the provider's bill differs: ecoshell cost --reconcile {entries[0].id}=0.0031")


def _counted_nano(entry: Entry) -> int | None:
    """Return what counts against the caps."""
    return entry.held_nano if entry.usage is None else entry.spent_nano


def _counted_ms(entry: Entry) -> int:
    """Return the working time that counts against the caps."""
    return (entry.spent_ms or 0) + entry.held_ms


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd_text(nano)


def _time(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M")


def _plan_costs(ledger: Ledger, store: SessionStore) -> Iterator[PlanCost]:
    """Yield every stored tool graph, oldest first; raises StoreError.

    The record has the columns of other rows, null if the ledger has no row of the turn, and those of tool graphs.
    """
    for session in store.sessions_with(GraphPlanned):
        costs = ledger.turn_rows(session)
        for number, turn in PlannedTurns(store.history(session)).by_number.items():
            cost, scored = costs.get(number), turn.scored
            key, quality, nano = f"{session}/{number}", None, None
            if (
                scored is not None
            ):  # computed from the ledger, because a call may have been reconciled since
                if (
                    cost
                    and not cost.unpriced
                    and cost.spent_nano is not None
                    and scored.resources_nano is not None
                ):
                    nano = cost.spent_nano + scored.resources_nano
                quality = worth(
                    scored.performance, nano, alpha=scored.alpha, most_nano=scored.most_nano
                )
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
            yield PlanCost(cost, record)


def _print_plans(plans: Sequence[PlanCost]) -> None:
    if not plans:
        print("No tool graphs yet: --strategy graph makes them.")
        return
    right = ("nodes", "spent", "seconds", "P", "QoP")
    cells: list[tuple[str, ...]] = []
    for plan in plans:
        record = plan.record
        spent = "-" if plan.cost is None else spent_text(plan.cost)
        figures = (
            (record[name], digits)
            for name, digits in (("seconds", 1), ("performance", 2), ("qop", 2))
        )
        texts = ("-" if value is None else f"{value:.{digits}f}" for value, digits in figures)
        question = visible_line(record["question"], _QUESTION_CHARACTERS)
        cells.append((record["key"], question, f"{record['nodes']:,}", spent, *texts))
    print_table(("plan", "question", *right), cells, right=right)
