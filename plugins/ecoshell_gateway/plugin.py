"""The plugin's hook: the commands `gateway`, `run` and `budget raise`."""

import argparse
from importlib import import_module

from ecoshell.plugins import Command, hookimpl


@hookimpl
def cli_commands() -> list[Command]:
    """Return the commands."""
    return [
        _command("gateway", "serve programs that take a base URL, under one cap", "command"),
        _command("run", "run another agent under a cap", "run"),
        _command("budget raise", "raise the cap of a running gateway", "raising"),
    ]


def _command(name: str, about: str, module: str) -> Command:
    """Return a command whose module is imported when it is named."""

    def load() -> object:
        return import_module(f"ecoshell_gateway.{module}")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        vars(load())["add_arguments"](parser)

    def run(args: argparse.Namespace) -> int:
        return vars(load())["run"](args)

    return Command(name, about, add_arguments, run)
