"""The plugin's hooks: the ledger of `[budget] ledger`, and the command `ecoshell budget`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.plugins import Command, hookimpl

if TYPE_CHECKING:
    from ecoshell.budget.ledger import Ledger


@hookimpl
def ledger() -> "dict[str, Callable[[str, Path, str], Ledger]]":
    """Open `postgresql://` and `postgres://` addresses."""
    return dict.fromkeys(("postgresql", "postgres"), _open)


@hookimpl
def cli_commands() -> list[Command]:
    """Return `ecoshell budget`."""
    return [Command("budget", "manage a team's ledger and its caps", _add_arguments, _run)]


def _open(address: str, file: Path, project: str) -> "Ledger":
    from ecoshell_team.ledger import TeamLedger
    from ecoshell_team.server import TeamServer

    return TeamLedger(file, TeamServer(address), project=project)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from ecoshell_team.command import add_arguments

    add_arguments(parser)


def _run(args: argparse.Namespace) -> int:
    from ecoshell_team.command import run

    return run(args)
