"""The plugin interface: every hook that other code can implement.

A plugin is a module with functions marked `@hookimpl`, each named like a method of `Hooks`:

    # ecoshell_greet.py
    from ecoshell import tool
    from ecoshell.plugins import hookimpl

    @tool
    def greet(name: str) -> str:
        \"\"\"Greet a person by name.\"\"\"
        return f"Hello, {name}!"

    @hookimpl
    def tools():
        return [greet]

Plugins are files or packages in the folder `plugins` next to the user's settings, or entry points of installed
packages, declared in pyproject.toml:

    [project.entry-points.ecoshell]
    greet = "ecoshell_greet"

A plugin is imported when a session starts; for its commands, when the command line names an unknown command, and for
`ecoshell --help`. A plugin that fails is reported by name and disabled. plugins/README.md is a tutorial,
`ecoshell plugins new NAME` writes a first plugin, and the packages in plugins/ are examples.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from ecoshell.agent.command_table import Command as SlashCommand
    from ecoshell.agent.shell import Shell
    from ecoshell.budget import Price
    from ecoshell.budget.ledger import Ledger
    from ecoshell.messages import Call, Observation
    from ecoshell.models import Model
    from ecoshell.models.observed import ReplyObserver
    from ecoshell.paths import Paths
    from ecoshell.planning.judging import Verdict
    from ecoshell.strategies import StrategySpec
    from ecoshell.tools import Tool, ToolOptions, ToolProvider
    from ecoshell.tools.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])
MARK = "ecoshell_impl"


def hookimpl(function: F) -> F:
    """Mark a plugin's function as the implementation of a hook in `Hooks`."""
    setattr(function, MARK, True)
    return function


@dataclass(frozen=True, slots=True)
class Command:
    """A command line command: `ecoshell NAME …`."""

    name: str
    about: str
    """One line for `ecoshell --help`."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Called with the command's parser when the command line names the command."""
    run: Callable[[argparse.Namespace], int]
    """Run the command and return the exit status. An EcoshellError is shown and sets the status."""


def command_in(module: str, name: str, about: str) -> Command:
    """Return a command of a module with `add_arguments(parser)` and `run(args)`, imported when it is named."""

    def call(function: str, argument: Any) -> Any:
        return getattr(import_module(module), function)(argument)

    return Command(name, about, partial(call, "add_arguments"), partial(call, "run"))


class Hooks(Protocol):
    """The hooks of plugins. A hook function takes any subset of these arguments; names it adds must be unique."""

    def tools(
        self, workspace: "Workspace", options: "ToolOptions", settings: Mapping[str, Any]
    ) -> "Iterable[Tool | ToolProvider]":
        """Tools for a session in this workspace: functions marked `@ecoshell.tool`, objects with the interface of
        `tools.Tool`, and providers (`tools.ToolProvider`), whose tools may change. `settings` is the table
        `[plugins.NAME]`; raise `errors.UsageError` for an invalid setting."""
        ...

    def strategies(self) -> "Iterable[StrategySpec]":
        """Strategies (`strategies.StrategySpec`), selected with `/strategy`, `--strategy` and `[agent] strategy`."""
        ...

    def models(self) -> "Mapping[str, Callable[[str, Price | None], Model]]":
        """Factories by prefix of model names, such as `echo:`. A factory receives the full name and the price set
        for it, and returns a `models.Model`."""
        ...

    def prices(self) -> "Mapping[str, Price]":
        """Prices by model name (`budget.Price`); prices in the settings take precedence."""
        ...

    def judges(self) -> "Mapping[str, Callable[[str, Call, Observation], bool | Verdict | None]]":
        """Judges of results, by the name that `[plan] judge` selects. A judge takes a question, a call and its
        observation (`messages`), runs in a thread, and returns whether the result helped: True, False, None for
        undecided, or a `planning.judging.Verdict` with a reason."""
        ...

    def ledger(self) -> "Mapping[str, Callable[[str, Path, str], Ledger]]":
        """Functions that open a shared ledger (`budget.ledger.Ledger`), by the URL scheme of `[budget] ledger`. They
        take the address, the file of the user's own ledger, and the name of the project."""
        ...

    def reply_observers(
        self, paths: "Paths", settings: Mapping[str, Any]
    ) -> "Mapping[str, ReplyObserver]":
        """Observers, by name, that see each reply of a session's models and its cost after it is settled
        (`models.observed`). `paths` are the folders of settings and data."""
        ...

    def slash_commands(self) -> "Iterable[SlashCommand[Shell]]":
        """Slash commands (`agent.command_table`)."""
        ...

    def cli_commands(self) -> Iterable[Command]:
        """Commands of the command line. A name of two words, such as `experience train`, adds an action to a
        command that has actions."""
        ...

    def themes(self) -> Path:
        """A folder of TOML themes, as in docs/configuration.md; the user's themes take precedence."""
        ...

    def skills(self) -> Path:
        """A folder of skills, each a folder with a SKILL.md; skills of the user and the workspace take precedence."""
        ...
