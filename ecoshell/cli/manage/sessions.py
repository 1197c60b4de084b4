"""`ecoshell sessions`: list, show, export, rename and delete sessions."""

import argparse
import shutil
import sys
from contextlib import closing

from ecoshell.assembly import open_store, undo_log
from ecoshell.cli.manage.show import print_json, print_table, require_positive
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError
from ecoshell.paths import expanded, user_paths
from ecoshell.sessions import SessionInfo, SessionStore
from ecoshell.sessions.export import as_json, as_markdown, iso_time, write_new

_ID_HELP = "the session's ID or a unique prefix"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    add = add_actions(parser, default="list")
    parser.set_defaults(limit=50, file=None, format=None)
    listing = add("list", "list sessions, latest first (default)")
    listing.add_argument(
        "--limit", type=int, default=50, metavar="N", help="number of sessions (default: 50)"
    )
    add("show", "print a session").add_argument("id", help=_ID_HELP)
    export = add("export", "write a session as a document")
    export.add_argument("id", help=_ID_HELP)
    export.add_argument("file", nargs="?", help="a new file (default, or -: standard output)")
    export.add_argument(
        "--format", choices=("md", "json"), help="default: by the file's suffix, else md"
    )
    rename = add("rename", "change a session's title")
    rename.add_argument("id", help=_ID_HELP)
    rename.add_argument("title", nargs="+", help="the new title")
    add("delete", "delete a session and all its events").add_argument(
        "id", help="the session's full ID"
    )


def run(args: argparse.Namespace) -> int:
    """Run one action; raises UsageError for an unknown session, and StoreError."""
    with closing(open_store(user_paths())) as store:
        if args.action == "list":
            _list(store, args.limit, as_json=args.json)
            return 0
        session = store.find(args.id)
        match args.action:
            case "show" | "export":
                _export(store, session, args)
            case "rename":
                store.rename(session, " ".join(args.title))
                if args.json:
                    print_json(_record(store.info(session)))
                else:
                    print(f"Session {session} is now called {store.title(session)!r}.")
            case _:
                _delete(store, session, args)
    return 0


def _list(store: SessionStore, limit: int, *, as_json: bool) -> None:
    require_positive(limit)
    sessions = store.list(limit)
    if as_json:
        print_json({"rows": [_record(session) for session in sessions]})
    elif not sessions:
        print("No sessions yet. `ecoshell` starts one.")
    else:
        rows = [
            (info.id, info.updated_text, info.title or "(no question yet)", info.model)
            for info in sessions
        ]
        print_table(("session", "last used", "title", "model"), rows)


def _export(store: SessionStore, session: str, args: argparse.Namespace) -> None:
    default_format = "json" if args.json or str(args.file).endswith(".json") else "md"
    write = as_json if (args.format or default_format) == "json" else as_markdown
    text = write(store.events(session), store.info(session))
    if args.file in (None, "-"):
        sys.stdout.write(text)
    else:
        file = expanded(args.file)
        write_new(file, text)
        print(f"Session {session} was exported to {file}.", file=sys.stderr)


def _delete(store: SessionStore, session: str, args: argparse.Namespace) -> None:
    if session != args.id:
        command = f"ecoshell sessions delete {session}"
        raise UsageError(f"Deleting needs the full ID of the session: {session}.", fix=command)
    title = store.title(session)
    store.delete(session)
    undo_log(user_paths()).forget(session)
    shutil.rmtree(user_paths().files_folder / session, ignore_errors=True)
    if args.json:
        print_json({"deleted": session})
    else:
        print(f"Session {session} ({title or 'no question yet'}) was deleted.")


def _record(session: SessionInfo) -> dict[str, str]:
    return {
        "id": session.id,
        "title": session.title,
        "created": iso_time(session.created),
        "updated": iso_time(session.updated),
        "workspace": session.workspace,
        "model": session.model,
    }
