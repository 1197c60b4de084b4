"""`ecoshell cost`: spending, reservations, caps, and calls whose cost is unknown."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, cast, get_args

from ecoshell.agent.command_table import dollars, spent_text
from ecoshell.agent.plan_text import bill_record, quote_table
from ecoshell.agent.reconciling import (
    UNRECONCILED,
    UNRECONCILED_HEAD,
    counted_ms,
    counted_nano,
    entry_time,
    reconcile,
    unreconciled_rows,
)
from ecoshell.assembly import load_settings, open_ledger, open_store
from ecoshell.budget import (
    CapState,
    about,
    amount_text,
    counted,
    nano_to_usd_text,
)
from ecoshell.budget.costs import By, CostRow
from ecoshell.budget.entries import Entry
from ecoshell.budget.ledger import Ledger
from ecoshell.cli.manage.live import show_live
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json
from ecoshell.events import Bill, GraphPlanned, PlanScored
from ecoshell.messages import Usage, visible_line
from ecoshell.paths import user_paths
from ecoshell.planning.catp.costs import worth
from ecoshell.sessions import SessionStore
from ecoshell.sessions.tool_graphs import PlannedTurns

_TEAM_GROUPS = ("person", "team", "project")
_GROUPS = (*get_args(By), "plan", *_TEAM_GROUPS)
_QUESTION_CHARACTERS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    by = "how to group costs (default: day)"
    parser.add_argument("--by", choices=_GROUPS, default="day", help=by)
    session = "session whose caps are shown (default: the latest)"
    parser.add_argument("--session", metavar="ID", help=session)
    live = "show the costs of the running session until Ctrl-C"
    parser.add_argument("--live", action="store_true", help=live)
    entry = "set the cost of a call whose cost is unknown; without a value, list them and end the leases of dead shells"
    parser.add_argument("--reconcile", metavar="ENTRY=AMOUNT", nargs="?", const="", help=entry)
    imported = "copy this ledger into the team's ledger, once"
    parser.add_argument("--import", dest="import_calls", action="store_true", help=imported)


def run(args: argparse.Namespace) -> int:
    """Print the costs, after importing or reconciling if requested; raises UsageError and StoreError."""
    paths = user_paths()
    with closing(open_ledger(paths, load_settings(paths))) as ledger:
        if args.live:
            show_live(ledger, args.session)
            return 0
        if args.import_calls:
            imported = counted(ledger.import_calls(), "call")
            print(f"{imported} imported into the team's ledger.", file=sys.stderr)
        if args.reconcile is not None:
            _reconcile(ledger, args.reconcile)
        with closing(open_store(paths)) as store:
            plans = [*_plan_costs(ledger, store)] if args.by == "plan" else []
            rows = _rows(ledger, args.by)
            caps = _caps(ledger, store, args.session)
            bills = store.events_of(Bill)
        unreconciled = ledger.unreconciled()
        if ledger.away is not None:
            print(f"The team's caps are unknown. {ledger.away}", file=sys.stderr)
    if args.json:
        quotes = [bill_record(session, bill) for session, bill in bills]
        print_json(
            {
                "rows": [*map(_row_record, rows), *(record for _, record in plans)],
                "caps": [*map(_cap_record, caps)],
                "unreconciled": [*map(_entry_record, unreconciled)],
                **({"quotes": quotes} if quotes else {}),
            }
        )
        return 0
    _print_plans(plans) if args.by == "plan" else _print_rows(args.by, rows)
    if caps:
        _print_caps(caps)
    elif ledger.away is None:
        print("\nNo cap is set.")
    if unreconciled:
        _print_unreconciled(unreconciled)
    if bills:
        print(f"\n{quote_table([bill for _, bill in bills])}")
    return 0


def _reconcile(ledger: Ledger, typed: str) -> None:
    """Set the cost of one entry, or end the leases of dead shells."""
    if typed:
        reconcile(ledger, typed, "--reconcile")
    elif ended := ledger.end_dead_leases():
        print(f"{counted(ended, 'lease')} of dead shells ended.", file=sys.stderr)


def _rows(ledger: Ledger, group: str) -> Sequence[CostRow]:
    if group == "plan":
        return ()
    return ledger.shared_costs(group) if group in _TEAM_GROUPS else ledger.rows(cast("By", group))


def _caps(ledger: Ledger, store: SessionStore, prefix: str | None) -> Sequence[CapState]:
    """Return the caps of the session with this prefix, or of the latest one."""
    latest = next((info.id for info in store.list(1)), "")
    session = latest if prefix is None else store.find(prefix)
    last_entry = ledger.last(session)
    return ledger.caps(session, last_entry.turn if last_entry else 0)


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


def _cap_record(cap: CapState) -> dict[str, object]:
    """Return a cap as JSON; only the keys of its unit are not null."""
    record: dict[str, object] = {"scope": cap.scope}
    for name, value in (("limit", cap.limit), ("spent", cap.spent), ("held", cap.held)):
        record[f"{name}_usd"] = _usd(value if cap.unit == "usd" else None)
        record[f"{name}_tokens"] = value if cap.unit == "tokens" else None
        record[f"{name}_seconds"] = value / 1_000 if cap.unit == "ms" else None
    return record


def _entry_record(entry: Entry) -> dict[str, object]:
    """Return a call of unknown cost as JSON."""
    return {
        "entry": entry.id,
        "at": entry_time(entry),
        "session": entry.session,
        "model": entry.model,
        "state": entry.state,
        "counted_usd": _usd(counted_nano(entry)),
        "counted_tokens": entry.held_usage.total,
        "counted_seconds": counted_ms(entry) / 1_000,
        "estimate_usd": _usd(entry.estimate_nano),
        "estimate_tokens": None if entry.estimate is None else entry.estimate.total,
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
    print(f"\n{UNRECONCILED}")
    cells = unreconciled_rows(entries)
    print_table(UNRECONCILED_HEAD, cells, right=("entry", "counted", "time", "estimate"))
    print(f"If the provider's bill differs: ecoshell cost --reconcile {entries[0].id}=0.0031")


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd_text(nano)


def _plan_costs(
    ledger: Ledger, store: SessionStore
) -> Iterator[tuple[CostRow | None, dict[str, Any]]]:
    """Yield the ledger's row, if any, and the record of every stored tool graph, oldest first; raises StoreError.

    The record has the columns of other rows, null if the ledger has no row of the turn, and those of tool graphs.
    """
    for session in store.sessions_with(GraphPlanned):
        costs = ledger.turn_rows(session)
        for number, turn in PlannedTurns(store.history(session)).by_number.items():
            cost, scored = costs.get(number), turn.scored
            key, nano = f"{session}/{number}", None
            # computed from the ledger, because a call may have been reconciled since
            if cost and not cost.unpriced and scored and scored.resources_nano is not None:
                nano = None if cost.spent_nano is None else cost.spent_nano + scored.resources_nano
            columns = _row_record(cost or CostRow(key, None, 0, Usage(), 0, 0))
            record = {
                **(columns if cost else dict.fromkeys(columns)),
                "key": key,
                "session": session,
                "turn": number,
                "question": turn.question,
                "nodes": len(turn.tool_graph.plan.nodes) if turn.tool_graph else 0,
                "seconds": turn.seconds,
                "cost_usd": _usd(nano),
                **_score_record(scored, nano),
            }
            yield cost, record


def _score_record(scored: PlanScored | None, nano: int | None) -> dict[str, object]:
    if scored is None:
        unknown = dict.fromkeys(("performance", "judged_by", "most_usd", "alpha", "qop"))
        return {**unknown, "judged_by": ""}
    quality = worth(scored.performance, nano, alpha=scored.alpha, most_nano=scored.most_nano)
    return {
        "performance": scored.performance,
        "judged_by": scored.judged_by,
        "most_usd": nano_to_usd_text(scored.most_nano),
        "alpha": scored.alpha,
        "qop": quality,
    }


def _print_plans(plans: Sequence[tuple[CostRow | None, dict[str, Any]]]) -> None:
    if not plans:
        print("No tool graphs yet: --strategy graph makes them.")
        return
    right = ("nodes", "spent", "seconds", "P", "QoP")
    cells: list[tuple[str, ...]] = []
    for cost, record in plans:
        spent = "-" if cost is None else spent_text(cost)
        figures = (
            (record[name], digits)
            for name, digits in (("seconds", 1), ("performance", 2), ("qop", 2))
        )
        texts = ("-" if value is None else f"{value:.{digits}f}" for value, digits in figures)
        question = visible_line(record["question"], _QUESTION_CHARACTERS)
        cells.append((record["key"], question, f"{record['nodes']:,}", spent, *texts))
    print_table(("plan", "question", *right), cells, right=right)
