"""The hooks of the package: commands, the judge `classifier` and the apprentice."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecoshell.messages import Call, Observation
from ecoshell.planning.judging import Verdict
from ecoshell.plugins import Command, hookimpl

if TYPE_CHECKING:
    from ecoshell.models.observed import ReplyObserver
    from ecoshell.paths import Paths

_COMMANDS: Mapping[str, tuple[str, str]] = {
    "train": ("ecoshell_train.command", "train local models for the requests of this shell"),
    "experience train": (
        "ecoshell_train.classifier_command",
        "train a classifier on the results you marked",
    ),
    "experience apprentice": (
        "ecoshell_train.agreement_command",
        "compare the calls of the apprentice with those of paid models",
    ),
}
"""The module of each command, imported on use, and its line of `--help`."""


@hookimpl
def cli_commands() -> list[Command]:
    """Return the commands."""
    return [
        Command(name, about, partial(_add_arguments, module), partial(_run, module))
        for name, (module, about) in _COMMANDS.items()
    ]


@hookimpl
def judges() -> dict[str, Callable[[str, Call, Observation], Verdict]]:
    """Return the judge that `ecoshell experience train` creates."""
    from ecoshell.paths import user_paths
    from ecoshell_train.classifier import TrainedJudge

    return {"classifier": TrainedJudge(user_paths().judge_file).judge}


@hookimpl
def reply_observers(paths: "Paths", settings: Mapping[str, Any]) -> "Mapping[str, ReplyObserver]":
    """Return the apprentice that `[plugins.train] apprentice` names."""
    if not settings:
        return {}
    from ecoshell_train.apprentice import apprentice_of

    apprentice = apprentice_of(settings, paths)
    return {} if apprentice is None else {"apprentice": apprentice}


def _add_arguments(module: str, parser: argparse.ArgumentParser) -> None:
    import_module(module).add_arguments(parser)


def _run(module: str, args: argparse.Namespace) -> int:
    status: int = import_module(module).run(args)
    return status
