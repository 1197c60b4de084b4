"""Plugins: what another package can add to ecoshell, on one page.

A plugin is a module with functions that are marked `@hookimpl`, and a package that names it in its pyproject.toml:

    [project.entry-points.ecoshell]
    greet = "ecoshell_greet"

    # ecoshell_greet.py
    from ecoshell.plugins import Command, hookimpl

    @hookimpl
    def cli_commands():
        return [Command("greet", "say hello", add_arguments, run)]

`Hooks` has every hook there is. The benchmarks, plugins/ecoshell_bench, are such a package. Plugins are looked for when
the command line names a command that is not ecoshell's own, and for `ecoshell --help`: nothing else waits for them.
"""

import argparse
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

import pluggy

from ecoshell.untrusted import visible_line

GROUP = "ecoshell"
"""Of the entry points, and the name of the project to pluggy."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line: `ecoshell NAME …`."""

    name: str
    about: str
    """What it does, in a line of `ecoshell --help`."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Called with the command's own parser, once the command line names the command."""
    run: Callable[[argparse.Namespace], int]
    """Carries it out and gives the exit status. An EcoshellError is shown, and ends with its status, as everywhere."""


class Hooks(Protocol):
    """The hooks a plugin may implement, each a function of this name in its module."""

    @hookspec
    def cli_commands(self) -> Iterable[Command]:
        """Commands to add to the command line; names that are there already are refused."""
        ...


class Plugins:
    """The plugins that are installed. One that fails, to load or in a hook, is named to `warn` and left out."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(Hooks)
        found = {
            (entry.name, entry.value): entry for entry in entry_points(group=GROUP)
        }  # a package may lie there twice
        for name, value in sorted(found):
            with self._fence(name):
                self._manager.register(found[name, value].load(), name)

    def commands(self, taken: Collection[str]) -> dict[str, tuple[str, Command]]:
        """The commands of all plugins by their names, each with its plugin's; none of them has a name that is taken."""
        commands: dict[str, tuple[str, Command]] = {}
        for name, plugin in self._manager.list_name_plugin():
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            with self._fence(name):
                told = self._manager.subset_hook_caller("cli_commands", others)()
                own = {command.name: (name, command) for added in told for command in added}
                for again in own.keys() & {*taken, *commands}:
                    raise ValueError(f"there is a command {again} already")
                commands |= own
        return commands

    @contextmanager
    def _fence(self, name: str) -> Generator[None]:
        try:
            yield
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - whatever a stranger's code does, the shell goes on
            self._warn(f"The plugin {name} is left out: {visible_line(f'{type(failure).__name__}: {failure}')}")
