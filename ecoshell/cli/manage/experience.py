"""`ecoshell experience`: list, show, export, import and forget what was learned from uses of tools."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from ecoshell.budget.money import nano_to_usd_text
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.errors import UsageError
from ecoshell.paths import user_paths
from ecoshell.planning.btp.base import Use
from ecoshell.planning.btp.experience import Choice, ExperienceStore, KeptUse
from ecoshell.planning.btp.interchange import from_lines, to_line
from ecoshell.planning.btp.redaction import ARGUMENTS, QUERY, RESULT, beginning, secret_variables
from ecoshell.sessions.export import write_new
from ecoshell.untrusted import visible, visible_line

_NONE_YET = "Nothing was experienced yet. Ask something that needs a tool, or import a file."
_STILL_THERE = "Another shell uses the file: what is left of the text goes when that one ends, or at the next forget."
_NONE_SUCH = "No use is like that."
_SIGNS = {True: "✔ helpful", False: "✘ unhelpful", None: "? not judged"}
_QUERY_SHOWN = 60


def run(args: argparse.Namespace) -> int:
    """Carry out one action; raises UsageError and StoreError."""
    actions: dict[str, Callable[[ExperienceStore, argparse.Namespace], None]] = {
        "list": _list,
        "show": _show,
        "export": _export,
        "import": _import,
        "forget": _forget,
    }
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        actions[args.action](store, args)
    return 0


def _list(store: ExperienceStore, args: argparse.Namespace) -> None:
    if args.limit < 1:
        raise UsageError(f"--limit {args.limit} lists nothing.", fix="Give a whole number, such as 20.")
    choice = Choice(tool=args.tool, text=args.query)
    kept = store.find(choice, args.limit)
    if args.json:
        print_json({"rows": [_record(one) for one in kept]})
    elif not kept:
        print(_NONE_YET if choice == Choice() else _NONE_SUCH)
    else:
        print_table(("use", "when", "tool", "result", "by", "price", "seconds", "question"), map(_cells, kept))


def _show(store: ExperienceStore, args: argparse.Namespace) -> None:
    kept = store.use(args.id)
    if args.json:
        print_json(_record(kept))
        return
    for name, value in _record(kept).items():
        print(f"{name:<14} {visible(str(value))}" if value is not None else f"{name:<14} unknown")


def _export(store: ExperienceStore, args: argparse.Namespace) -> None:
    uses = [*store.uses()]
    text = "".join(f"{to_line(use)}\n" for use in uses)
    if args.file is None:
        sys.stdout.write(text)
        return
    file = Path(args.file).expanduser()
    write_new(file, text, kept="The experience is kept.")
    print(f"{_counted(len(uses))} exported to {file}.", file=sys.stderr)


def _import(store: ExperienceStore, args: argparse.Namespace) -> None:
    uses = _read(args.file)
    added = store.add_new(uses)
    known = len(uses) - added
    if args.json:
        print_json({"imported": added, "known": known})
    else:
        print(f"{_counted(added)} imported{f'; {known} were there already' if known else ''}.")


def _read(name: str) -> list[Use]:
    """The uses of a file, or of standard input for a dash."""
    try:
        if name == "-":
            return _redacted(from_lines(sys.stdin.buffer, "standard input"))
        with Path(name).expanduser().open("rb") as lines:
            return _redacted(from_lines(lines, name))
    except OSError as failure:
        raise UsageError(
            f"{name} cannot be read: {failure.strerror}.", kept="Nothing was imported.", fix="Give a JSON Lines file."
        ) from failure


def _redacted(uses: Iterable[Use]) -> list[Use]:
    """What is kept of uses that were made elsewhere."""
    environ = secret_variables(os.environ)
    return [
        replace(
            use,
            query=beginning(use.query, environ, QUERY),
            arguments=beginning(use.arguments, environ, ARGUMENTS),
            result=beginning(use.result, environ, RESULT),
        )
        for use in uses
    ]


def _forget(store: ExperienceStore, args: argparse.Namespace) -> None:
    choice = Choice(ids=tuple(args.ids), tool=args.tool, before=_time(args.before))
    if choice == Choice() and not args.all:
        raise UsageError("Nothing is named that is to be forgotten.", fix="Give numbers, --tool, --before or --all.")
    if args.all and (choice != Choice() or not args.yes):
        why = "--all stands alone." if choice != Choice() else "This would forget everything."
        raise UsageError(why, kept="Nothing was forgotten.", fix="Say ecoshell experience forget --all --yes.")
    for number in args.ids:
        store.use(number)
    forgotten = store.forget(choice)
    if args.json:
        print_json({"forgotten": forgotten.uses, "erased": forgotten.erased})
    else:
        print(f"{_counted(forgotten.uses)} forgotten.")
    if not forgotten.erased:
        print(_STILL_THERE, file=sys.stderr)


def _time(text: str) -> str:
    """A date or a time as the store compares it; raises UsageError."""
    if not text:
        return ""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as failure:
        raise UsageError(f"--before {text!r} is no date.", fix="Give one such as 2026-11-21.") from failure


def _record(kept: KeptUse) -> dict[str, object]:
    return {"id": kept.id, **asdict(kept.use)}


def _cells(kept: KeptUse) -> tuple[str, ...]:
    use = kept.use
    question = visible_line(use.query)
    shown = question if len(question) <= _QUERY_SHOWN else f"{question[: _QUERY_SHOWN - 1]}…"
    cost = None if use.step_nano is None else use.price_nano + use.step_nano
    return (
        str(kept.id),
        _when(use.at),
        use.tool,
        _SIGNS[use.helpful],
        use.judged_by,
        "unknown" if cost is None else f"${nano_to_usd_text(cost)}",
        f"{use.seconds:.2f}",
        shown,
    )


def _when(at: str) -> str:
    """In local time; as it is when it is no time, and empty when it is not known."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return visible_line(at)


def _counted(count: int) -> str:
    return f"{count:,} use{'' if count == 1 else 's'}"
