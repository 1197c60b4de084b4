"""The plugin's hook: the command `acp`."""

from ecoshell.plugins import Command, hookimpl
from ecoshell_acp.command import add_arguments, run


@hookimpl
def cli_commands() -> list[Command]:
    """Provide `ecoshell acp`."""
    return [
        Command("acp", "run the agent in an editor (Agent Client Protocol)", add_arguments, run)
    ]
