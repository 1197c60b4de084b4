"""The plugin: the command `bench`."""

from ecoshell.plugins import Command, hookimpl
from ecoshell_bench.commands import add_arguments, run


@hookimpl
def cli_commands() -> list[Command]:
    """Return the command `bench`."""
    return [Command("bench", "measure savings, task success and speed", add_arguments, run)]
