"""The options of a run, shared by the chat, the line shell and `ask`."""

import argparse
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, get_args

from ecoshell.errors import UsageError
from ecoshell.options import (
    ADVISOR,
    EFFORTS,
    LATEST_SESSION,
    ROLES,
    ModeName,
    Options,
    Presentation,
    Registration,
    RoleModels,
    role_named,
)

_ROLE_PREFIX = "role_"
"""Begins the namespace attribute that holds a role's model."""
_MAX_RATE = 1_000_000
"""Dollars per million tokens; larger values are mistakes."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run; an absent option sets no attribute, so that it cannot hide one before the command."""

    def add(name: str, text: str, **settings: Any) -> None:
        parser.add_argument(name, default=argparse.SUPPRESS, help=text, **settings)

    def value(name: str, metavar: str, text: str, parse: Callable[[str], Any] = str) -> None:
        add(name, text, metavar=metavar, type=parse)

    def constant(name: str, attribute: str, const: str, text: str) -> None:
        add(name, text, dest=attribute, action="store_const", const=const)

    model = "embedded, local:PATH.gguf, script:FILE.jsonl or any litellm name"
    value("--model", "NAME", model, _model)
    budget = "cap of the session, such as 0.50 (dollars), 20000tok or 2min"
    value("--budget", "AMOUNT", budget, _amount)
    registration = "which tools the model sees at first"
    add("--registration", registration, choices=get_args(Registration))
    presentation = "how registered tools reach the model"
    add("--presentation", presentation, choices=get_args(Presentation))
    value("--max-steps", "N", "steps of a turn before it must answer", _steps)
    workspace = "folder that tools work in (default: the current folder)"
    value("--workspace", "DIR", workspace, Path)
    add("--yes", "skip approval prompts (deny rules still apply)", action="store_true")
    project = "trust the workspace's AGENTS.md, commands, skills and hooks"
    add("--trust-project", project, action="store_true")
    add("--read-only", "refuse every tool that writes or executes", action="store_true")
    value("--resume", "ID", "resume a session by ID or unique prefix")
    constant("--continue", "resume", LATEST_SESSION, "resume the latest session of this folder")
    value("--price", "IN,OUT", "price of the model in dollars per million tokens", _price)
    add("--mode", "one model (single) or three roles (umi)", choices=get_args(ModeName))
    role = "model of a role in the mode umi, or advisor=MODEL; repeatable"
    add("--role", role, metavar="ROLE=MODEL", action=_RoleAction)
    add("--effort", "how much the model reasons before it answers", choices=tuple(EFFORTS))
    plan = "plan only: run tools that read, and end with a written plan"
    constant("--plan", "approval_mode", "plan", plan)
    strategy = "react (one path), dfsdt or tot (backtracking), graph (a tool graph), or a plugin's strategy"
    value("--strategy", "NAME", strategy)


def options_from(args: argparse.Namespace) -> Options:
    """Return the options of a parsed command line."""
    values = {
        name: value for name, value in vars(args).items() if name in Options.__dataclass_fields__
    }
    roles = RoleModels(**{role: getattr(args, f"{_ROLE_PREFIX}{role}", None) for role in ROLES})
    return Options(**values, roles=roles)


def prepared_options(args: argparse.Namespace) -> Options:
    """Return the options after offering to pull missing Hugging Face models they name."""
    options = options_from(args)
    models = (options.model, options.advisor, *map(options.roles.of, ROLES))
    if hub_models := [name for name in models if name and name.startswith("hf:")]:
        from ecoshell.cli.manage.models import offer_pull

        offer_pull(hub_models)
    return options


class _RoleAction(argparse.Action):
    """Stores each role in its own attribute, so that roles before and after a command add up."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        text = str(values)
        name, _, model = (part.strip() for part in text.partition("="))
        if name == ADVISOR and model:
            namespace.advisor = model
            return
        role = role_named(name)
        if role is None:
            fix = f"Available: {', '.join((*ROLES, ADVISOR))}, as in caller=embedded."
            raise UsageError(f"--role {text!r} does not name a role.", fix=fix)
        if not model:
            fix = f"Try --role {role}=embedded."
            raise UsageError(f"--role {text!r} does not name a model.", fix=fix)
        setattr(namespace, f"{_ROLE_PREFIX}{role}", model)


def _model(text: str) -> str:
    if not text.strip():
        raise UsageError("--model is empty.", fix="Try --model embedded.")
    return text.strip()


def _amount(text: str) -> str:
    from ecoshell.budget import parse_amount

    parse_amount(text)
    return text


def _steps(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,7}", text):
        fix = "Give a whole number, such as 24."
        raise UsageError(f"--max-steps {text!r} is not a number of steps.", fix=fix)
    return int(text)


def _price(text: str) -> tuple[Decimal, Decimal]:
    parts = text.replace("$", "").split(",")
    try:
        rates = [Decimal(part.strip()) for part in parts]
    except InvalidOperation:
        rates = []
    if len(rates) != 2 or not all(rate.is_finite() and 0 <= rate <= _MAX_RATE for rate in rates):
        fix = "Give dollars per million input and output tokens: --price 0.25,2"
        raise UsageError(f"--price {text!r} is not two prices.", fix=fix)
    return rates[0], rates[1]
