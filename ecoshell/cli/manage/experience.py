"""`ecoshell experience`: what was learned from uses of tools and of modes."""

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

_NONE_YET = "Nothing was experienced yet. Ask something that needs a tool, or import a file."
_STILL_THERE = "Another shell uses the file: what is left of the text goes when that one ends, or at the next forget."
_SIGNS = {True: "√ helpful", False: "× unhelpful", None: "? not judged"}
_OUTCOMES = {"answered": "√ answered", "gave_up": "× gave up", "limit": "? at a limit"}
_USE_HEAD = ("use", "when", "tool", "result", "by", "price", "seconds", "question")
_ATTEMPT_HEAD = ("attempt", "when", "mode", "outcome", "models", "price", "tokens", "seconds", "question")
_QUERY_SHOWN = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and what they take."""
    add = add_actions(parser, default="list")
    parser.set_defaults(limit=50, tool="", query="", attempts=False)
    listed = add("list", "the latest uses first (default)")
    what = listed.add_mutually_exclusive_group()
    what.add_argument("--tool", default="", metavar="NAME", help="uses of this tool")
    what.add_argument("--attempts", action="store_true", help="what came of each question in each mode, not the uses")
    listed.add_argument("--query", default="", metavar="TEXT", help="those for questions with this in them")
    listed.add_argument("--limit", type=int, default=50, metavar="N", help="how many (default: 50)")
    add("show", "all that is kept of one").add_argument("id", type=_kept, metavar="N", help="12, or a3 of an attempt")
    export = add("export", "every use and attempt as a line of JSON")
    export.add_argument("file", nargs="?", help="a new file (default, or -: standard output)")
    add("import", "add what is in a file, all or none").add_argument("file", help="JSON Lines, or - for standard input")
    forget = add("forget", "remove uses and attempts for good")
    forget.add_argument("ids", nargs="*", type=_kept, metavar="N", help="their numbers: 12, or a3 of an attempt")
    forget.add_argument("--tool", default="", metavar="NAME", help="all uses of this tool")
    forget.add_argument("--before", default="", metavar="DATE", help="all before this day, such as 2026-11-01")
    forget.add_argument("--all", action="store_true", help="everything; asks for --yes")
    forget.add_argument("--yes", action="store_true", help="really everything")


def _kept(text: str) -> tuple[str, int]:
    """The kind and the number of what was experienced: `12` is a use, `a3` an attempt."""
    try:
        return ("attempt", int(text[1:])) if text.startswith("a") else ("use", int(text))
    except ValueError as failure:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 12, or a3 of an attempt") from failure


def run(args: argparse.Namespace) -> int:
    """Carry out one action; raises UsageError and StoreError."""
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        match args.action:
            case "list":
                _list(store, args)
            case "show":
                record = _record(_numbered(store, *args.id))
                if args.json:
                    print_json(record)
                    return 0
                for name, value in record.items():
                    print(f"{name:<14} {visible(str(value))}" if value is not None else f"{name:<14} unknown")
            case "export":
                items = [*store.uses(), *store.attempts()]
                text = "".join(f"{to_line(item)}\n" for item in items)
                if args.file in (None, "-"):
                    sys.stdout.write(text)
                else:
                    file = expanded(args.file)
                    write_new(file, text, kept="The experience is kept.", mode=0o600)
                    uses = sum(isinstance(item, Use) for item in items)
                    if args.json:
                        print_json({"exported": uses, "attempts": len(items) - uses, "file": str(file)})
                    else:
                        print(f"{_counted(uses, len(items) - uses)} exported to {file}.", file=sys.stderr)
            case "import":
                items = _read(args.file)
                added = store.add_new(items)
                known = len(items) - added
                if args.json:
                    print_json({"imported": added, "known": known})
                else:
                    uses, share = sum(isinstance(item, Use) for item in items), f"{added} of " if known else ""
                    there = f"; {known} {'was' if known == 1 else 'were'} there already" if known else ""
                    print(f"{share}{_counted(uses, len(items) - uses)} imported{there}.")
            case _:
                _forget(store, args)
    return 0


def _list(store: ExperienceStore, args: argparse.Namespace) -> None:
    if args.limit < 1:
        raise UsageError(f"--limit {args.limit} lists nothing.", fix="Give a whole number, such as 20.")
    choice = Choice(tool=args.tool, text=args.query)
    kept = store.find(ATTEMPTS, choice, args.limit) if args.attempts else store.find(USES, choice, args.limit)
    if args.json:
        print_json({"rows": [_record(one) for one in kept]})
        return
    if not kept:
        noun = ATTEMPTS.noun if args.attempts else USES.noun
        print(_NONE_YET if choice == Choice() else f"No {noun} is like that.")
        return
    cells: list[tuple[str, ...]] = []
    for one in kept:
        item = one.item
        try:
            when = datetime.fromisoformat(item.at).astimezone().strftime("%Y-%m-%d %H:%M")
        except (ValueError, OverflowError):  # it is no time, or not known
            when = visible_line(item.at)
        if isinstance(item, Attempt):
            outcome = _OUTCOMES.get(item.outcome, visible_line(item.outcome))
            middle, nano = (visible_line(item.mode), outcome, visible_line(item.models)), item.price_nano
        else:
            middle = (item.tool, _SIGNS[item.helpful], item.judged_by)
            nano = None if item.step_nano is None else item.price_nano + item.step_nano
        price = "unknown" if nano is None else f"${nano_to_usd_text(nano)}"
        tokens = (f"{item.tokens:,}",) if isinstance(item, Attempt) else ()
        end = (price, *tokens, f"{item.seconds:.2f}", visible_line(item.query, _QUERY_SHOWN))
        cells.append((str(_record(one)["id"]), when, *middle, *end))
    print_table(_ATTEMPT_HEAD if args.attempts else _USE_HEAD, cells)


def _numbered(store: ExperienceStore, kind: str, number: int) -> Stored[Use] | Stored[Attempt]:
    """The use or the attempt of this number; raises UsageError when there is none."""
    return store.get(ATTEMPTS, number) if kind == "attempt" else store.get(USES, number)


def _read(name: str) -> list[ExperienceRecord]:
    """What a file holds, or standard input for a dash, without what is not kept of what was experienced elsewhere."""
    try:
        if name == "-":
            items = [*from_lines(sys.stdin.buffer, "standard input")]
        else:
            with expanded(name).open("rb") as lines:
                items = [*from_lines(lines, name)]
    except OSError as failure:
        raise UsageError(
            f"{name} cannot be read: {failure.strerror}.", kept="Nothing was imported.", fix="Give a JSON Lines file."
        ) from failure
    environ = secret_variables(os.environ)
    clean: list[ExperienceRecord] = []
    for item in items:
        query = beginning(item.query, environ, QUERY)
        if isinstance(item, Attempt):
            clean.append(replace(item, query=query))
        else:
            arguments, result = beginning(item.arguments, environ, ARGUMENTS), beginning(item.result, environ, RESULT)
            clean.append(replace(item, query=query, arguments=arguments, result=result))
    return clean


def _forget(store: ExperienceStore, args: argparse.Namespace) -> None:
    before = args.before
    if before:  # as the store compares it
        try:
            before = datetime.fromisoformat(before).astimezone(UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError) as failure:
            raise UsageError(f"--before {before!r} is no date.", fix="Give one such as 2026-11-21.") from failure
    choice = Choice(
        ids=tuple(number for kind, number in args.ids if kind == "use"),
        attempts=tuple(number for kind, number in args.ids if kind == "attempt"),
        tool=args.tool,
        before=before,
    )
    if choice == Choice() and not args.all:
        raise UsageError("Nothing is named that is to be forgotten.", fix="Give numbers, --tool, --before or --all.")
    if args.all and (choice != Choice() or not args.yes):
        why = "--all stands alone." if choice != Choice() else "This would forget everything."
        raise UsageError(why, kept="Nothing was forgotten.", fix="Say ecoshell experience forget --all --yes.")
    for named in args.ids:
        _numbered(store, *named)
    forgotten = store.forget(choice)
    if args.json:
        print_json({"forgotten": forgotten.uses, "attempts": forgotten.attempts, "erased": forgotten.erased})
    else:
        print(f"{_counted(forgotten.uses, forgotten.attempts)} forgotten.")
    if not forgotten.erased:
        print(_STILL_THERE, file=sys.stderr)


def _record(kept: Stored[Use] | Stored[Attempt]) -> dict[str, object]:
    return {"id": kept.id if isinstance(kept.item, Use) else f"{ATTEMPTS.sign}{kept.id}", **asdict(kept.item)}


def _counted(uses: int, attempts: int) -> str:
    """How many of both; attempts are named where there are any."""
    both = [counted(uses, "use")] if uses or not attempts else []
    both += [counted(attempts, "attempt")] if attempts else []
    return " and ".join(both)
