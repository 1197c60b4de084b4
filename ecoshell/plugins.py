"""Plugins: what other code can add to ecoshell, on one page.

A plugin is a module with functions that are marked `@hookimpl`, each named like one of `Hooks`:

    # ecoshell_greet.py
    from ecoshell import tool
    from ecoshell.plugins import hookimpl

    @tool
    def greet(name: str) -> str:
        \"\"\"Greet somebody by name.\"\"\"
        return f"Hello, {name}!"

    @hookimpl
    def tools():
        return [greet]

It is found as a file or a package in the folder `plugins` beside the user's settings, or by what an installed package
says in its pyproject.toml:

    [project.entry-points.ecoshell]
    greet = "ecoshell_greet"

It is imported when a session begins; for its commands, when the command line names one that is not ecoshell's own, and
for `ecoshell --help`. What fails in it is told with its name, and it is left out. plugins/README.md is a tutorial,
`ecoshell plugins new NAME` writes a plugin to begin with, and the packages in plugins/ are examples to copy.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:  # a plugin imports what it uses
    from ecoshell.agent.commands import Command as SlashCommand
    from ecoshell.agent.shell import Shell
    from ecoshell.budget import Price
    from ecoshell.messages import Call, Observation
    from ecoshell.models import Model
    from ecoshell.strategies import StrategySpec
    from ecoshell.tools import Tool, ToolOptions, ToolProvider
    from ecoshell.tools.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])
MARK = "ecoshell_impl"


def hookimpl(function: F) -> F:
    """Mark a function of a plugin's module as one of `Hooks`."""
    setattr(function, MARK, True)
    return function


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
    """The hooks a plugin may implement: each a function of this name, with as many of these arguments as it needs.

    What has a name needs one that is not taken.
    """

    def tools(
        self, workspace: "Workspace", options: "ToolOptions", settings: Mapping[str, Any]
    ) -> "Iterable[Tool | ToolProvider]":
        """Tools for a session in this workspace: functions with `@ecoshell.tool`, other objects with the interface of
        `tools.Tool`, and providers (`tools.ToolProvider`), whose tools come and go. `settings` is the table
        `[plugins.NAME]` of the plugin's name; whatever is wrong in it is said by raising `errors.UsageError`."""
        ...

    def strategies(self) -> "Iterable[StrategySpec]":
        """Strategies (`strategies.StrategySpec`), chosen by `/strategy`, `--strategy` and `[agent] strategy`."""
        ...

    def models(self) -> "Mapping[str, Callable[[str, Price | None], Model]]":
        """For a beginning of names, such as `echo:`, what makes the model (`models.Model`) of a whole name; it is given
        the price that is set for the name, too."""
        ...

    def prices(self) -> "Mapping[str, Price]":
        """Prices by the names of models (`budget.Price`); those of the settings win."""
        ...

    def judges(self) -> "Mapping[str, Callable[[str, Call, Observation], bool | None]]":
        """What says by a question, a call and its observation (`messages`) whether the result helped, by the name that
        `[plan] judge` chooses; None is that it cannot tell. It is called in a thread."""
        ...

    def slash_commands(self) -> "Iterable[SlashCommand[Shell]]":
        """Commands of the chats (`agent.commands`)."""
        ...

    def cli_commands(self) -> Iterable[Command]:
        """Commands of the command line."""
        ...

    def themes(self) -> Path:
        """A folder of themes, TOML files as in docs/configuration.md; the user's own win."""
        ...
