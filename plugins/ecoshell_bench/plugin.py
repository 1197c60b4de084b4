"""What the package adds to ecoshell: the command `bench`."""

from ecoshell.plugins import Command, hookimpl
from ecoshell_bench.commands import add_arguments, run


@hookimpl
def cli_commands() -> list[Command]:
    """`ecoshell bench ecoact|tasks|btp|umi|catp|search|speed`."""
    return [Command("bench", "measure savings, a model's skill, and the shell's speed", add_arguments, run)]
