"""`ecoshell sessions`: list, show, export, rename and delete what was talked about."""

import argparse
import shutil
import sys
from contextlib import closing

from ecoshell.assembly import open_store, undo_log
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError
from ecoshell.paths import expanded, user_paths
from ecoshell.sessions import SessionInfo, SessionStore
from ecoshell.sessions.export import as_json, as_markdown, iso_time, write_new


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and what they take."""
    add = add_actions(parser, default="list")
    parser.set_defaults(limit=50, file=None, format=None)
    add("list", "the last used first").add_argument("--limit", type=int, default=50, metavar="N", help="how many")
    add("show", "print a session").add_argument("id", help="the session's id, or its beginning")
    export = add("export", "write a session as a document")
    export.add_argument("id", help="the session's id, or its beginning")
    export.add_argument("file", nargs="?", help="a new file (default, or -: standard output)")
    export.add_argument("--format", choices=("md", "json"), help="default: as the file's name says, else md")
    rename = add("rename", "give a session another title")
    rename.add_argument("id", help="the session's id, or its beginning")
    rename.add_argument("title", nargs="+", help="the new title")
    add("delete", "remove a session and all its events").add_argument("id", help="the session's whole id")


def run(args: argparse.Namespace) -> int:
    """Carry out one action; raises UsageError for an unknown session and StoreError."""
    with closing(open_store(user_paths())) as store:
        if args.action == "list":
            _list(store, args.limit, as_json=args.json)
            return 0
        session = store.find(args.id)
        match args.action:
            case "show" | "export":
                as_said = "json" if args.json or str(args.file).endswith(".json") else "md"
                write = as_json if (args.format or as_said) == "json" else as_markdown
                text = write(store.events(session), store.info(session))
                if args.file in (None, "-"):
                    sys.stdout.write(text)
                else:
                    file = expanded(args.file)
                    write_new(file, text)
                    print(f"Session {session} was exported to {file}.", file=sys.stderr)
            case "rename":
                store.rename(session, " ".join(args.title))
                if args.json:
                    print_json(_record(store.info(session)))
                else:
                    print(f"Session {session} is now called {store.title(session)!r}.")
            case _:
                if session != args.id:
                    whole = f"ecoshell sessions delete {session}"
                    raise UsageError(f"Deleting needs the whole id of the session: {session}.", fix=whole)
                title = store.title(session)
                store.delete(session)
                undo_log(user_paths()).forget(session)
                shutil.rmtree(user_paths().files_folder / session, ignore_errors=True)
                if args.json:
                    print_json({"deleted": session})
                else:
                    print(f"Session {session} ({title or 'no question yet'}) was deleted.")
    return 0


def _list(store: SessionStore, limit: int, *, as_json: bool) -> None:
    if limit < 1:
        raise UsageError(f"--limit {limit} lists nothing.", fix="Give a whole number, such as 20.")
    sessions = store.list(limit)
    if as_json:
        print_json({"rows": [_record(session) for session in sessions]})
    elif not sessions:
        print("There are no sessions yet. `ecoshell` begins one.")
    else:
        rows = [(one.id, one.updated_text, one.title or "(no question yet)", one.model) for one in sessions]
        print_table(("session", "last used", "title", "model"), rows)


def _record(session: SessionInfo) -> dict[str, str]:
    return {
        "id": session.id,
        "title": session.title,
        "created": iso_time(session.created),
        "updated": iso_time(session.updated),
        "workspace": session.workspace,
        "model": session.model,
    }
