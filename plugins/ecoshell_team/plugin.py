"""The plugin's hooks: the ledger of `[budget] ledger`, and the command `ecoshell budget`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.plugins import Command, command_in, hookimpl

if TYPE_CHECKING:
    from ecoshell.budget.ledger import Ledger


@hookimpl
def ledger() -> "dict[str, Callable[[str, Path, str], Ledger]]":
    """Open `postgresql://` and `postgres://` addresses."""
    return dict.fromkeys(("postgresql", "postgres"), _open)


@hookimpl
def cli_commands() -> list[Command]:
    """Return `ecoshell budget`."""
    about = "manage a team's ledger and its caps"
    return [command_in("ecoshell_team.command", "budget", about)]


def _open(address: str, file: Path, project: str) -> "Ledger":
    from ecoshell_team.ledger import TeamLedger
    from ecoshell_team.server import TeamServer

    return TeamLedger(file, TeamServer(address), project=project)
