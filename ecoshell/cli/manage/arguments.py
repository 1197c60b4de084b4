"""The arguments of the management commands; what carries them out is imported when one is named."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Any]  # pyright: ignore[reportPrivateUsage] - argparse gives it no other name


def add_management(commands: "Commands") -> None:
    """Add `tools`, `profile`, `sessions`, `experience`, `cost`, `config` and `models`."""
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    _add_tools(commands, as_json)
    _add_profile(commands, as_json)
    _add_sessions(commands, as_json)
    _add_experience(commands, as_json)
    _add_cost(commands, as_json)
    _add_config(commands, as_json)
    _add_models(commands, as_json)


def _add_tools(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "tools", parents=[as_json], allow_abbrev=False, help="the tools, their effects and what their schemas cost"
    )
    parser.add_argument("name", nargs="?", help="print this tool's document")
    parser.set_defaults(run=_tools, json=False)


def _add_profile(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "profile", parents=[as_json], allow_abbrev=False, help="the time and memory a tool takes on growing inputs"
    )
    parser.add_argument("tool", metavar="TOOL", help="its name, as `ecoshell tools` shows it")
    parser.add_argument(
        "--inputs", nargs="+", action="extend", required=True, metavar="FILE", help="files, or patterns in quotes"
    )
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs on each input (default: 3)")
    parser.add_argument(
        "--into", default="", metavar="NAME", help="the argument that takes the file (default: the first that can)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an argument that is the same on every run"
    )
    parser.add_argument("--yes", action="store_true", help="run it also if it may do more than read")
    parser.set_defaults(run=_profile, json=False)


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
        "experience", parents=[as_json], allow_abbrev=False, help="what was learned from uses of tools, and of modes"
    )
    parser.set_defaults(run=_experience, json=False, action="list", limit=50, tool="", query="", attempts=False)
    actions = parser.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, parents=[as_json], allow_abbrev=False, help=what)
        action.set_defaults(action=name)
        return action

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
    train = add("train", "make the classifier of results from those you marked")
    train.add_argument("--all-judged", action="store_true", help="learn from what rules and models judged, too")


def _add_cost(commands: "Commands", as_json: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("cost", parents=[as_json], allow_abbrev=False, help="what was spent, and the caps")
    by = ("day", "session", "model", "role", "tool", "plan")
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
        "models",
        parents=[as_json],
        allow_abbrev=False,
        help="what can be talked with, and prices; `models pull` brings more",
        usage="ecoshell models [--json] [FILTER]\n       ecoshell models pull [--json] OWNER/REPO[:QUANT]",
    )
    parser.add_argument("filter", nargs="?", default="", help="a part of the name; searches all known models")
    parser.add_argument(
        "repo",
        nargs="?",
        default="",
        help="after pull: a repository with GGUF files, and which of them, such as Q4_K_M",
    )
    parser.add_argument("--unbar", metavar="NAME", help="allow a model again that billed more than it may")
    parser.set_defaults(run=_models, json=False)


def _tools(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.tools import run

    return run(args.name, as_json=args.json)


def _profile(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.profile import run

    return run(args)


def _sessions(args: argparse.Namespace) -> int:
    from ecoshell.cli.manage.sessions import run

    return run(args)


def _kept(text: str) -> tuple[str, int]:
    """The kind and the number of what was experienced: `12` is a use, `a3` an attempt."""
    try:
        return ("attempt", int(text[1:])) if text.startswith("a") else ("use", int(text))
    except ValueError as failure:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 12, or a3 of an attempt") from failure


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
    if args.filter == "pull":
        from ecoshell.cli.manage.pull import run as pull

        return pull(args.repo, as_json=args.json)
    from ecoshell.cli.manage.models import run

    return run(args)
