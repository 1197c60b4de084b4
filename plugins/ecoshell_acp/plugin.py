"""The plugin's hook: the command `acp`."""

from ecoshell.plugins import Command, command_in, hookimpl


@hookimpl
def cli_commands() -> list[Command]:
    """Provide `ecoshell acp`."""
    about = "run the agent in an editor (Agent Client Protocol)"
    return [command_in("ecoshell_acp.command", "acp", about)]
