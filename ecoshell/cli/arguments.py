"""The options that the chats, `ask` and `plan` share, and what the other commands share of theirs."""

import argparse
import re
import sys
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path

from ecoshell.errors import UsageError
from ecoshell.options import LATEST, ROLES, Options, RoleModels, role_named

_ROLE = "role_"
"""Begins the name under which a role's model is kept while the command line is read."""
_DEAREST = 1_000_000
"""Dollars per million tokens that no model costs."""


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run; one that is not given leaves no trace, so that it cannot hide one given before."""

    def add(*names: str, **settings: object) -> None:
        parser.add_argument(*names, default=argparse.SUPPRESS, **settings)  # pyright: ignore[reportArgumentType]

    add("--model", metavar="NAME", type=_named, help="embedded, local:PATH.gguf, script:FILE.jsonl or any litellm name")
    add("--budget", metavar="AMOUNT", type=_amount, help="the session's cap, such as 0.50 (dollars) or 20000tok")
    add("--registration", choices=("auto", "names", "all", "all_text"), help="which tools are registered at first")
    add("--presentation", choices=("auto", "grow", "stable"), help="how registered tools are shown to the model")
    add("--max-steps", metavar="N", type=_steps, help="model calls that a turn may take")
    add("--workspace", metavar="DIR", type=Path, help="the folder that tools work in (default: this one)")
    add("--yes", action="store_true", help="allow without asking what no rule forbids")
    add("--trust-project", action="store_true", help="follow the workspace's AGENTS.md without asking first")
    add("--read-only", action="store_true", help="refuse every tool that writes or runs something")
    add("--resume", metavar="ID", help="go on with a session; the beginning of its id is enough")
    add("--continue", dest="resume", action="store_const", const=LATEST, help="go on with this folder's last session")
    add("--price", metavar="IN,OUT", type=_price, help="the model's price in dollars per million tokens")
    modes = ("single", "umi", "auto")
    add("--mode", choices=modes, help="agent mode: one model; planner, caller and summarizer; or as experience says")
    add("--role", metavar="ROLE=MODEL", action=_GiveRole, help="a role's model in the mode umi; repeatable")
    how = "react (one path), dfsdt, tot (they backtrack), graph (a parallel plan), or a plugin's"
    add("--strategy", metavar="NAME", help=how)


def options_from(args: argparse.Namespace) -> Options:
    """What the command line says about the run."""
    given = {name: value for name, value in vars(args).items() if name in Options.__dataclass_fields__}
    roles = RoleModels(**{role: getattr(args, f"{_ROLE}{role}", None) for role in ROLES})
    return Options(**given, roles=roles)


def options_to_run(args: argparse.Namespace) -> Options:
    """The same, once the models of a hub that it names are here, or nobody wants to pull them."""
    options = options_from(args)
    of_hub = [name for name in (options.model, *map(options.roles.of, ROLES)) if name and name.startswith("hf:")]
    if of_hub and sys.stdin.isatty() and sys.stderr.isatty():  # else the run says how to pull them
        from ecoshell.cli.manage.models import pull_wanted

        pull_wanted(of_hub)
    return options


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json` to a command, or to an action of one."""
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(json=False)


def add_actions(
    parser: argparse.ArgumentParser, default: str, kind: type[argparse.ArgumentParser] | None = None
) -> Callable[[str, str], argparse.ArgumentParser]:
    """Let a command take actions, such as `list`; gives what adds one, by its name and what it does.

    Each is parsed by a parser of that kind, or of the command's.
    """
    add_json(parser)
    parser.set_defaults(action=default)
    actions = parser.add_subparsers(metavar="ACTION", title="actions", parser_class=kind or type(parser))

    def add(name: str, about: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, allow_abbrev=False, help=about)
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        action.set_defaults(action=name)
        return action

    return add


class _GiveRole(argparse.Action):
    """Keeps each role apart, so that those given before and after a command add up."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        text = str(values)
        name, _, model = (part.strip() for part in text.partition("="))
        if (role := role_named(name)) is None:
            there = f"There are {', '.join(ROLES)}: --role caller=embedded"
            raise UsageError(f"--role {text!r} names no role.", fix=there)
        if not model:
            raise UsageError(f"--role {text!r} names no model.", fix=f"Try --role {role}=embedded.")
        setattr(namespace, f"{_ROLE}{role}", model)


def _named(text: str) -> str:
    if not text.strip():
        raise UsageError("--model is empty.", fix="Try --model embedded.")
    return text.strip()


def _amount(text: str) -> str:
    from ecoshell.budget.money import parse_amount

    parse_amount(text)
    return text


def _steps(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,7}", text):
        raise UsageError(f"--max-steps {text!r} is not a number of steps.", fix="Give a whole number, such as 24.")
    return int(text)


def _price(text: str) -> tuple[Decimal, Decimal]:
    parts = text.replace("$", "").split(",")
    try:
        rates = [Decimal(part.strip()) for part in parts]
    except InvalidOperation:
        rates = []
    if len(rates) != 2 or not all(rate.is_finite() and 0 <= rate <= _DEAREST for rate in rates):
        raise UsageError(
            f"--price {text!r} is not two prices.",
            fix="Give dollars per million input and output tokens: --price 0.25,2",
        )
    return rates[0], rates[1]
