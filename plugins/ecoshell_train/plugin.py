"""The hooks of the package: `ecoshell train`, `ecoshell experience train` and the judge `classifier`."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from ecoshell.messages import Call, Observation
from ecoshell.planning.judging import Verdict
from ecoshell.plugins import Command, hookimpl

_COMMANDS: Mapping[str, tuple[str, str]] = {
    "train": ("ecoshell_train.command", "train local models for the requests of this shell"),
    "experience train": (
        "ecoshell_train.classifier_command",
        "train a classifier on the results you marked",
    ),
}
"""The module of each command, imported on use, and its line of `--help`."""


@hookimpl
def cli_commands() -> list[Command]:
    """Return the commands `train` and `experience train`."""
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


def _add_arguments(module: str, parser: argparse.ArgumentParser) -> None:
    import_module(module).add_arguments(parser)


def _run(module: str, args: argparse.Namespace) -> int:
    status: int = import_module(module).run(args)
    return status
