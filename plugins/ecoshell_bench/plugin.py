"""The plugin's hook: the commands `bench` and `profile`."""

from ecoshell.plugins import Command, command_in, hookimpl


@hookimpl
def cli_commands() -> list[Command]:
    """Return the commands."""
    about = "measure a tool's time and memory on growing inputs"
    return [
        command_in("ecoshell_bench.commands", "bench", "measure savings, task success and speed"),
        command_in("ecoshell_bench.tool_profile", "profile", about),
    ]
