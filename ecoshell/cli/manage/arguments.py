"""The arguments of the management commands; what carries them out is imported when one is named."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Any]  # pyright: ignore[reportPrivateUsage] - argparse gives it no other name


def add_management(commands: "Commands") -> None:
    """Add `tools`, `sessions`, `experience`, `cost`, `config` and `models`."""
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    _add_tools(commands, as_json)
    _add_sessions(commands, as_json)
    _add_experience(commands, as_json)
    _add_cost(commands, as_json)
    _add_config(commands, as_json)
    _add_models(commands, as_json)


def _add_tools(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "tools", parents=[as_json], allow_abbrev=False, help="the tools, their effects and what their documents cost"
    )
    parser.add_argument("name", nargs="?", help="print this tool's document")
    parser.set_defaults(run=_tools, json=False)


def _add_sessions(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("sessions", parents=[as_json], allow_abbrev=False, help="list, show, export sessions")
    parser.set_defaults(run=_sessions, json=False, action="list", limit=50)
    actions = parser.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, parents=[as_json], allow_abbrev=False, help=what)
        action.set_defaults(action=name)
        return action

    add("list", "the last used first").add_argument("--limit", type=int, default=50, metavar="N", help="how many")
    add("show", "print a session").add_argument("id", help="the session's id, or its beginning")
    export = add("export", "write a session as a document")
    export.add_argument("id", help="the session's id, or its beginning")
    export.add_argument("file", nargs="?", help="a new file (default: standard output)")
    export.add_argument("--format", choices=("md", "json"), help="default: as the file's name says, else md")
    rename = add("rename", "give a session another title")
    rename.add_argument("id", help="the session's id, or its beginning")
    rename.add_argument("title", nargs="+", help="the new title")
    add("delete", "remove a session and all its events").add_argument("id", help="the session's whole id")


def _add_experience(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "experience", parents=[as_json], allow_abbrev=False, help="what was learned from uses of tools"
    )
    parser.set_defaults(run=_experience, json=False, action="list", limit=50, tool="", query="")
    actions = parser.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, parents=[as_json], allow_abbrev=False, help=what)
        action.set_defaults(action=name)
        return action

    listed = add("list", "the latest uses first (default)")
    listed.add_argument("--tool", default="", metavar="NAME", help="uses of this tool")
    listed.add_argument("--query", default="", metavar="TEXT", help="uses for questions with this in them")
    listed.add_argument("--limit", type=int, default=50, metavar="N", help="how many (default: 50)")
    add("show", "all that is kept of one use").add_argument("id", type=int, metavar="USE", help="its number")
    export = add("export", "every use as a line of JSON")
    export.add_argument("file", nargs="?", help="a new file (default: standard output)")
    add("import", "add the uses of a file, all or none").add_argument(
        "file", help="JSON Lines, or - for standard input"
    )
    forget = add("forget", "remove uses for good")
    forget.add_argument("ids", nargs="*", type=int, metavar="USE", help="their numbers")
    forget.add_argument("--tool", default="", metavar="NAME", help="all uses of this tool")
    forget.add_argument("--before", default="", metavar="DATE", help="all uses before this day, such as 2026-11-01")
    forget.add_argument("--all", action="store_true", help="everything; asks for --yes")
    forget.add_argument("--yes", action="store_true", help="really everything")
    train = add("train", "make the classifier of results from those you marked")
    train.add_argument("--all-judged", action="store_true", help="learn from what rules and models judged, too")


def _add_cost(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("cost", parents=[as_json], allow_abbrev=False, help="what was spent, and the caps")
    by = ("day", "session", "model", "role", "tool")
    parser.add_argument("--by", choices=by, default="day", help="what to add up by (default: day)")
    parser.add_argument("--session", metavar="ID", help="whose caps to show (default: the session last used)")
    parser.add_argument(
        "--reconcile", metavar="ENTRY=USD", help="say what a call really cost that counts in full because nobody knows"
    )
    parser.set_defaults(run=_cost, json=False)


def _add_config(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("config", parents=[as_json], allow_abbrev=False, help="show, check, change settings")
    parser.set_defaults(run=_config, json=False, action="show")
    actions = parser.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, parents=[as_json], allow_abbrev=False, help=what)
        action.set_defaults(action=name)
        return action

    add("show", "every setting and where it comes from (default)")
    add("path", "where the file is")
    add("check", "everything that is wrong with the settings")
    change = add("set", "write settings into the file, whose comments stay")
    change.add_argument("pairs", nargs="+", metavar="KEY VALUE", help="such as budget.session 0.50")
    add("unset", "take settings out of the file").add_argument(
        "keys", nargs="+", metavar="KEY", help="such as tui.theme"
    )


def _add_models(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "models", parents=[as_json], allow_abbrev=False, help="what can be talked with, and prices"
    )
    parser.add_argument("filter", nargs="?", default="", help="a part of the name; searches all known models")
    parser.add_argument("--unbar", metavar="NAME", help="allow a model again that billed more than it may")
    parser.set_defaults(run=_models, json=False)


def _tools(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.tools import run

    return run(args.name, as_json=args.json)


def _sessions(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.sessions import run

    return run(args)


def _experience(args: argparse.Namespace) -> int:
    if args.action == "train":
        from ecoshell.cli.manage.experience_train import run as train

        return train(args)
    from ecoshell.cli.manage.experience import run

    return run(args)


def _cost(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.cost import run

    return run(args)


def _config(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.config import run

    return run(args)


def _models(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.models import run

    return run(args)
