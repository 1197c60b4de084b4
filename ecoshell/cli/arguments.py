"""A parser that refuses with a message and the nearest right word, and the options that the chats and `ask` share."""

import argparse
import difflib
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn, cast

from ecoshell.errors import UsageError
from ecoshell.options import LATEST, ROLES, Options, RoleModels, RoleName, role_named

_OPTION = re.compile(r"--[\w-]+")
_UNKNOWN = "unrecognized arguments: "
_CHOICES = re.compile(
    r"argument (?P<what>\S+): invalid choice: '?(?P<typed>.*?)'? \(choose from (?P<choices>.*)\)", re.DOTALL
)
COMMAND = "COMMAND"
"""Stands for the name of a command in the help."""
_ROLE = "role_"
"""Begins the name under which a role's model is kept while the command line is read."""
_DEAREST = 1_000_000
"""Dollars per million tokens that no model costs."""


class UnknownCommand(UsageError):
    """There is no such command."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, with the nearest right word, instead of printing and exiting."""

    _typed: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        wrong = _CHOICES.fullmatch(message)
        stranger = message.removeprefix(_UNKNOWN).partition(" ")[0] if message.startswith(_UNKNOWN) else None
        if wrong:
            stranger = self._unknown_option_before(wrong["typed"])
        if stranger:
            named = stranger.partition("=")[0]
            raise UsageError(f"There is no option {named}.", fix=_nearest(named, self._options()))
        if wrong:
            what, typed = wrong["what"], wrong["typed"]
            told = f"{what} cannot be {typed!r}." if what.startswith("-") else f"There is no {what.lower()} {typed!r}."
            kind = UnknownCommand if what == COMMAND else UsageError
            raise kind(told, fix=_nearest(typed, re.findall(r"[\w-]+", wrong["choices"])))
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", fix=f"`{self.prog} --help` shows what there is.")

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - a namespace of another class is never given
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown arguments here, where the right ones are known, and not in the parser above."""
        self._typed = tuple(args or ())
        found, unknown = super().parse_known_args(args, namespace or argparse.Namespace())
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return found, unknown

    def _options(self) -> list[str]:
        return _OPTION.findall(self.format_usage())

    def _unknown_option_before(self, word: str) -> str | None:
        """The mistyped option that a word was meant for, when that made the word look like a command."""
        before = self._typed[: self._typed.index(word)] if word in self._typed else ()
        known = self._options()
        return next(
            (typed for typed in before if typed.startswith("--") and typed.partition("=")[0] not in known), None
        )


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    near = min(close, key=lambda one: sorted(one) != sorted(word), default=None)  # letters are swapped easily
    return f"Did you mean {near}?" if near else f"There are {', '.join(known)}."


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
    choices = ("react", "dfsdt", "tot", "graph")
    add("--role", metavar="ROLE=MODEL", action=_GiveRole, type=_role, help="a role's model in the mode umi; repeatable")
    add("--strategy", choices=choices, help="one path, a search that backtracks, or a parallel plan")


def options_from(args: argparse.Namespace) -> Options:
    """What the command line says about the run."""
    given = {name: value for name, value in vars(args).items() if name in Options.__dataclass_fields__}
    roles = RoleModels(**{role: getattr(args, f"{_ROLE}{role}", None) for role in ROLES})
    return Options(**given, roles=roles)


class _GiveRole(argparse.Action):
    """Keeps each role apart, so that those given before and after a command add up."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        role, model = cast("tuple[RoleName, str]", values)
        setattr(namespace, f"{_ROLE}{role}", model)


def _role(text: str) -> tuple[RoleName, str]:
    name, _, model = (part.strip() for part in text.partition("="))
    role = role_named(name)
    if role is None:
        raise UsageError(f"--role {text!r} names no role.", fix=f"There are {', '.join(ROLES)}: --role caller=embedded")
    if not model:
        raise UsageError(f"--role {text!r} names no model.", fix=f"Try --role {role}=embedded.")
    return role, model


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
