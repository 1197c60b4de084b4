"""The options of a run, shared by the chat, the line shell and `ask`."""

import argparse
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import get_args

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

    def add(*names: str, **settings: object) -> None:
        parser.add_argument(*names, default=argparse.SUPPRESS, **settings)  # pyright: ignore[reportArgumentType]

    _add_model_options(add)
    _add_session_options(add)
    _add_mode_options(add)


def _add_model_options(add: Callable[..., None]) -> None:
    add(
        "--model",
        metavar="NAME",
        type=_model,
        help="embedded, local:PATH.gguf, script:FILE.jsonl or any litellm name",
    )
    add(
        "--budget",
        metavar="AMOUNT",
        type=_amount,
        help="cap of the session, such as 0.50 (dollars), 20000tok or 2min",
    )
    add(
        "--registration", choices=get_args(Registration), help="which tools the model sees at first"
    )
    add(
        "--presentation",
        choices=get_args(Presentation),
        help="how registered tools reach the model",
    )
    add("--max-steps", metavar="N", type=_steps, help="steps of a turn before it must answer")


def _add_session_options(add: Callable[..., None]) -> None:
    add(
        "--workspace",
        metavar="DIR",
        type=Path,
        help="folder that tools work in (default: the current folder)",
    )
    add("--yes", action="store_true", help="skip approval prompts (deny rules still apply)")
    add(
        "--trust-project",
        action="store_true",
        help="trust the workspace's AGENTS.md, commands, skills and hooks",
    )
    add("--read-only", action="store_true", help="refuse every tool that writes or executes")
    add("--resume", metavar="ID", help="resume a session by ID or unique prefix")
    add(
        "--continue",
        dest="resume",
        action="store_const",
        const=LATEST_SESSION,
        help="resume the latest session of this folder",
    )


def _add_mode_options(add: Callable[..., None]) -> None:
    add(
        "--price",
        metavar="IN,OUT",
        type=_price,
        help="price of the model in dollars per million tokens",
    )
    add("--mode", choices=get_args(ModeName), help="one model (single) or three roles (umi)")
    add(
        "--role",
        metavar="ROLE=MODEL",
        action=_RoleAction,
        help="model of a role in the mode umi, or advisor=MODEL; repeatable",
    )
    add("--effort", choices=tuple(EFFORTS), help="how much the model reasons before it answers")
    plan = "plan only: run tools that read, and end with a written plan"
    add("--plan", dest="approval_mode", action="store_const", const="plan", help=plan)
    strategies = "react (one path), dfsdt or tot (backtracking), graph (a tool graph), or a plugin's strategy"
    add("--strategy", metavar="NAME", help=strategies)


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
            raise UsageError(
                f"--role {text!r} does not name a role.",
                fix=f"Available: {', '.join((*ROLES, ADVISOR))}, as in caller=embedded.",
            )
        if not model:
            raise UsageError(
                f"--role {text!r} does not name a model.", fix=f"Try --role {role}=embedded."
            )
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
        raise UsageError(
            f"--max-steps {text!r} is not a number of steps.",
            fix="Give a whole number, such as 24.",
        )
    return int(text)


def _price(text: str) -> tuple[Decimal, Decimal]:
    parts = text.replace("$", "").split(",")
    try:
        rates = [Decimal(part.strip()) for part in parts]
    except InvalidOperation:
        rates = []
    if len(rates) != 2 or not all(rate.is_finite() and 0 <= rate <= _MAX_RATE for rate in rates):
        raise UsageError(
            f"--price {text!r} is not two prices.",
            fix="Give dollars per million input and output tokens: --price 0.25,2",
        )
    return rates[0], rates[1]
