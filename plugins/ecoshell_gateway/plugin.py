"""The plugin's hook: the commands `gateway`, `run` and `budget raise`."""

from ecoshell.plugins import Command, command_in, hookimpl


@hookimpl
def cli_commands() -> list[Command]:
    """Return the commands."""
    return [
        command_in(
            "ecoshell_gateway.command",
            "gateway",
            "serve programs that take a base URL, under one cap",
        ),
        command_in("ecoshell_gateway.run", "run", "run another agent under a cap"),
        command_in(
            "ecoshell_gateway.raising", "budget raise", "raise the cap of a running gateway"
        ),
    ]
