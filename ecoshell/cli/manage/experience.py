"""`ecoshell experience`: list, export, import and delete recorded uses of tools and attempts of modes."""

import argparse
import os
import sys
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime

from ecoshell.budget import counted, nano_to_usd_text
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError
from ecoshell.messages import visible, visible_line
from ecoshell.paths import expanded, user_paths
from ecoshell.planning.btp.experience import (
    ATTEMPTS,
    USES,
    Attempt,
    Choice,
    ExperienceRecord,
    ExperienceStore,
    Stored,
    Use,
)
from ecoshell.planning.btp.interchange import from_lines, to_line
from ecoshell.planning.btp.redaction import ARGUMENTS, QUERY, RESULT, beginning, secret_variables
from ecoshell.sessions.export import write_new

_EMPTY = "No experience is recorded yet. Ask something that needs a tool, or import a file."
_NOT_ERASED = "Another shell uses the file: the deleted text is erased when that shell ends, or at the next forget."
_SIGNS = {True: "√ helpful", False: "× unhelpful", None: "? not judged"}
_OUTCOMES = {"answered": "√ answered", "gave_up": "× gave up", "limit": "? at a limit"}
_USE_HEAD = ("use", "when", "tool", "result", "by", "price", "seconds", "question")
_ATTEMPT_HEAD = ("attempt", "when", "mode", "outcome", "models", "price", "tokens", "seconds", "question")
_QUESTION_CHARACTERS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    add = add_actions(parser, default="list")
    parser.set_defaults(limit=50, tool="", query="", attempts=False)
    listing = add("list", "list records, latest first (default)")
    kind = listing.add_mutually_exclusive_group()
    kind.add_argument("--tool", default="", metavar="NAME", help="only uses of this tool")
    kind.add_argument("--attempts", action="store_true", help="list the outcome of each question and mode, not uses")
    listing.add_argument("--query", default="", metavar="TEXT", help="only questions that contain this text")
    listing.add_argument("--limit", type=int, default=50, metavar="N", help="number of records (default: 50)")
    record_help = "12 for a use, a3 for an attempt"
    add("show", "print one record").add_argument("id", type=_record_id, metavar="N", help=record_help)
    export = add("export", "write every record as a line of JSON")
    export.add_argument("file", nargs="?", help="a new file (default, or -: standard output)")
    add("import", "add the records of a file, all or none").add_argument(
        "file", help="JSON Lines, or - for standard input"
    )
    forget = add("forget", "delete records permanently")
    forget.add_argument("ids", nargs="*", type=_record_id, metavar="N", help=record_help)
    forget.add_argument("--tool", default="", metavar="NAME", help="all uses of this tool")
    forget.add_argument("--before", default="", metavar="DATE", help="all before this day, such as 2026-11-01")
    forget.add_argument("--all", action="store_true", help="everything; needs --yes")
    forget.add_argument("--yes", action="store_true", help="confirm --all")


def run(args: argparse.Namespace) -> int:
    """Run one action; raises UsageError and StoreError."""
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        match args.action:
            case "list":
                _list(store, args)
            case "show":
                _show(_record(_find(store, *args.id)), as_json=args.json)
            case "export":
                _export(store, args.file, as_json=args.json)
            case "import":
                _import(store, args.file, as_json=args.json)
            case _:
                _forget(store, args)
    return 0


def _record_id(text: str) -> tuple[str, int]:
    """Parse the kind and the number of a record: `12` is a use, `a3` an attempt."""
    try:
        return ("attempt", int(text[1:])) if text.startswith("a") else ("use", int(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 12, or a3 for an attempt") from error


def _list(store: ExperienceStore, args: argparse.Namespace) -> None:
    if args.limit < 1:
        raise UsageError(f"--limit {args.limit} is not positive.", fix="Give a whole number, such as 20.")
    choice = Choice(tool=args.tool, text=args.query)
    rows = store.find(ATTEMPTS, choice, args.limit) if args.attempts else store.find(USES, choice, args.limit)
    if args.json:
        print_json({"rows": [_record(row) for row in rows]})
    elif rows:
        print_table(_ATTEMPT_HEAD if args.attempts else _USE_HEAD, [_cells(row) for row in rows])
    elif choice == Choice():
        print(_EMPTY)
    else:
        print(f"No {ATTEMPTS.noun if args.attempts else USES.noun} matches.")


def _cells(row: Stored[Use] | Stored[Attempt]) -> tuple[str, ...]:
    item = row.item
    try:
        when = datetime.fromisoformat(item.at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):  # unknown, or not a time
        when = visible_line(item.at)
    if isinstance(item, Attempt):
        outcome = _OUTCOMES.get(item.outcome, visible_line(item.outcome))
        middle, nano = (visible_line(item.mode), outcome, visible_line(item.models)), item.price_nano
    else:
        middle = (item.tool, _SIGNS[item.helpful], item.judged_by)
        nano = None if item.step_nano is None else item.price_nano + item.step_nano
    price = "unknown" if nano is None else f"${nano_to_usd_text(nano)}"
    tokens = (f"{item.tokens:,}",) if isinstance(item, Attempt) else ()
    question = visible_line(item.query, _QUESTION_CHARACTERS)
    return (str(_record(row)["id"]), when, *middle, price, *tokens, f"{item.seconds:.2f}", question)


def _show(record: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    for name, value in record.items():
        print(f"{name:<14} {'unknown' if value is None else visible(str(value))}")


def _export(store: ExperienceStore, name: str | None, *, as_json: bool) -> None:
    items = [*store.uses(), *store.attempts()]
    text = "".join(f"{to_line(item)}\n" for item in items)
    if name in (None, "-"):
        sys.stdout.write(text)
        return
    file = expanded(name)
    write_new(file, text, kept="The experience is unchanged.", mode=0o600)
    uses = sum(isinstance(item, Use) for item in items)
    if as_json:
        print_json({"exported": uses, "attempts": len(items) - uses, "file": str(file)})
    else:
        print(f"{_totals(uses, len(items) - uses)} exported to {file}.", file=sys.stderr)


def _import(store: ExperienceStore, name: str, *, as_json: bool) -> None:
    items = _read(name)
    added = store.add_new(items)
    duplicates = len(items) - added
    if as_json:
        print_json({"imported": added, "known": duplicates})
        return
    uses = sum(isinstance(item, Use) for item in items)
    share = f"{added} of " if duplicates else ""
    skipped = f"; {duplicates} already existed" if duplicates else ""
    print(f"{share}{_totals(uses, len(items) - uses)} imported{skipped}.")


def _find(store: ExperienceStore, kind: str, number: int) -> Stored[Use] | Stored[Attempt]:
    """Return one record; raises UsageError."""
    return store.get(ATTEMPTS, number) if kind == "attempt" else store.get(USES, number)


def _read(name: str) -> list[ExperienceRecord]:
    """Read records from a file or, for a dash, standard input; secrets are redacted as when recording."""
    try:
        if name == "-":
            items = [*from_lines(sys.stdin.buffer, "standard input")]
        else:
            with expanded(name).open("rb") as lines:
                items = [*from_lines(lines, name)]
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}.", kept="Nothing was imported.", fix="Give a JSON Lines file."
        ) from error
    secrets = secret_variables(os.environ)
    redacted: list[ExperienceRecord] = []
    for item in items:
        query = beginning(item.query, secrets, QUERY)
        if isinstance(item, Attempt):
            redacted.append(replace(item, query=query))
        else:
            arguments, result = beginning(item.arguments, secrets, ARGUMENTS), beginning(item.result, secrets, RESULT)
            redacted.append(replace(item, query=query, arguments=arguments, result=result))
    return redacted


def _forget(store: ExperienceStore, args: argparse.Namespace) -> None:
    choice = Choice(
        ids=tuple(number for kind, number in args.ids if kind == "use"),
        attempts=tuple(number for kind, number in args.ids if kind == "attempt"),
        tool=args.tool,
        before=_utc_time(args.before) if args.before else "",
    )
    if choice == Choice() and not args.all:
        raise UsageError("Nothing was selected to forget.", fix="Give numbers, --tool, --before or --all.")
    if args.all and (choice != Choice() or not args.yes):
        reason = "--all excludes other selections." if choice != Choice() else "This would forget everything."
        raise UsageError(reason, kept="Nothing was forgotten.", fix="Use ecoshell experience forget --all --yes.")
    for record_id in args.ids:
        _find(store, *record_id)
    forgotten = store.forget(choice)
    if args.json:
        print_json({"forgotten": forgotten.uses, "attempts": forgotten.attempts, "erased": forgotten.erased})
    else:
        print(f"{_totals(forgotten.uses, forgotten.attempts)} forgotten.")
    if not forgotten.erased:
        print(_NOT_ERASED, file=sys.stderr)


def _utc_time(text: str) -> str:
    """Convert a local date to the form the store compares."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--before {text!r} is not a date.", fix="Give one such as 2026-11-21.") from error


def _record(row: Stored[Use] | Stored[Attempt]) -> dict[str, object]:
    return {"id": row.id if isinstance(row.item, Use) else f"{ATTEMPTS.sign}{row.id}", **asdict(row.item)}


def _totals(uses: int, attempts: int) -> str:
    """Return both numbers as text; zero attempts are omitted."""
    texts = [counted(uses, "use")] if uses or not attempts else []
    texts += [counted(attempts, "attempt")] if attempts else []
    return " and ".join(texts)
