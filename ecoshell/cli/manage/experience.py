"""`ecoshell experience`: list and delete recorded uses of tools."""

import argparse
import sys
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime

from ecoshell.budget import counted, nano_to_usd_text
from ecoshell.cli.manage.show import print_json, print_table, require_positive
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError
from ecoshell.messages import visible, visible_line
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import Choice, ExperienceStore, Stored

_EMPTY = "No experience is recorded yet. Ask something that needs a tool."
_NOT_ERASED = "Another shell uses the file: the deleted text is erased when that shell ends, or at the next forget."
_SIGNS = {True: "√ helpful", False: "× unhelpful", None: "? not judged"}
_HEAD = ("use", "when", "tool", "result", "by", "price", "seconds", "question")
_QUESTION_CHARACTERS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    add = add_actions(parser, default="list")
    parser.set_defaults(limit=50, tool="", query="")
    listing = add("list", "list records, latest first (default)")
    listing.add_argument("--tool", default="", metavar="NAME", help="only uses of this tool")
    listing.add_argument(
        "--query", default="", metavar="TEXT", help="only questions that contain this text"
    )
    listing.add_argument(
        "--limit", type=int, default=50, metavar="N", help="number of records (default: 50)"
    )
    add("show", "print one record").add_argument("id", type=int, metavar="N")
    forget = add("forget", "delete records permanently")
    forget.add_argument("ids", nargs="*", type=int, metavar="N")
    forget.add_argument("--tool", default="", metavar="NAME", help="all uses of this tool")
    forget.add_argument(
        "--before", default="", metavar="DATE", help="all before this day, such as 2026-11-01"
    )
    forget.add_argument("--all", action="store_true", help="everything; needs --yes")
    forget.add_argument("--yes", action="store_true", help="confirm --all")


def run(args: argparse.Namespace) -> int:
    """Run one action; raises UsageError and StoreError."""
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        match args.action:
            case "list":
                _list(store, args)
            case "show":
                _show(_record(store.get(args.id)), as_json=args.json)
            case _:
                _forget(store, args)
    return 0


def _list(store: ExperienceStore, args: argparse.Namespace) -> None:
    require_positive(args.limit)
    choice = Choice(tool=args.tool, text=args.query)
    rows = store.find(choice, args.limit)
    if args.json:
        print_json({"rows": [_record(row) for row in rows]})
    elif rows:
        print_table(_HEAD, [_cells(row) for row in rows])
    elif choice == Choice():
        print(_EMPTY)
    else:
        print("No use matches.")


def _cells(row: Stored) -> tuple[str, ...]:
    use = row.use
    try:
        when = datetime.fromisoformat(use.at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):  # unknown, or not a time
        when = visible_line(use.at)
    price = "unknown"
    if use.step_nano is not None:
        price = f"${nano_to_usd_text(use.price_nano + use.step_nano)}"
    question = visible_line(use.query, _QUESTION_CHARACTERS)
    result = (_SIGNS[use.helpful], use.judged_by)
    return (str(row.id), when, use.tool, *result, price, f"{use.seconds:.2f}", question)


def _show(record: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    for name, value in record.items():
        print(f"{name:<14} {'unknown' if value is None else visible(str(value))}")


def _forget(store: ExperienceStore, args: argparse.Namespace) -> None:
    before = _utc_time(args.before) if args.before else ""
    choice = Choice(ids=tuple(args.ids), tool=args.tool, before=before)
    is_empty = choice == Choice()
    if is_empty and not args.all:
        fix = "Give numbers, --tool, --before or --all."
        raise UsageError("Nothing was selected to forget.", fix=fix)
    if args.all and not (is_empty and args.yes):
        reason = "This would forget everything." if is_empty else "--all excludes other selections."
        fix = "Use ecoshell experience forget --all --yes."
        raise UsageError(reason, kept="Nothing was forgotten.", fix=fix)
    for number in args.ids:
        store.get(number)
    forgotten = store.forget(choice)
    if args.json:
        print_json({"forgotten": forgotten.uses, "erased": forgotten.erased})
    else:
        print(f"{counted(forgotten.uses, 'use')} forgotten.")
    if not forgotten.erased:
        print(_NOT_ERASED, file=sys.stderr)


def _utc_time(text: str) -> str:
    """Convert a local date to the form the store compares."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--before {text!r} is not a date.", fix="Give one such as 2026-11-21."
        ) from error


def _record(row: Stored) -> dict[str, object]:
    return {"id": row.id, **asdict(row.use)}
