"""Custom commands: Markdown files whose text becomes a question, with arguments, a model, an effort and a cap."""

import re
import shlex
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ecoshell.agent.command_table import split_first_word
from ecoshell.agent.definition_files import Definition, DefinitionFolder
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.session_settings import effort_named
from ecoshell.budget import Amount, parse_amount
from ecoshell.errors import UsageError
from ecoshell.messages import visible_line
from ecoshell.options import Effort
from ecoshell.tools.workspace import Workspace

PROJECT_FOLDERS = (".ecoshell/commands", ".claude/commands")
_OTHER_AGENT = ".claude/"
"""Files for another agent, whose names of models are not ours."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PLACE = re.compile(r"\$(ARGUMENTS\b|[1-9](?!\d))")
_MAX_DESCRIPTION = 80


@dataclass(frozen=True, slots=True)
class CustomCommand:
    """A command made from a file; `model`, `effort` and `cap` hold for its question only."""

    name: str
    about: str
    usage: str
    definition: Definition
    model: str = ""
    effort: Effort | None = None
    cap: Amount | None = None
    fault: str = ""
    """Why the file cannot be used; empty if it can."""

    def question(self, argument: str) -> str:
        """Return the file's text with the arguments for `$ARGUMENTS` and `$1` to `$9`, or after it."""
        try:
            words = shlex.split(argument)
        except ValueError:  # a quote without its end
            words = argument.split()
        body = self.definition.content.body
        if not _PLACE.search(body):
            return f"{body}\n\n{argument}".strip()

        def value(place: re.Match[str]) -> str:
            number = int(place[1]) if place[1].isdigit() else 0
            return argument if not number else words[number - 1] if number <= len(words) else ""

        return _PLACE.sub(value, body)


class CustomCommands:
    """The commands of the user and of the workspace; changed files count from the next use on."""

    def __init__(
        self,
        user_folder: Path,
        workspace: Workspace,
        reserved: Callable[[], Collection[str]],
        warn: Callable[[str], None],
    ) -> None:
        """`reserved` names cannot be used, which `warn` reports once for each file."""
        self._folders = [
            DefinitionFolder(user_folder),
            *(DefinitionFolder(Path(folder), workspace) for folder in PROJECT_FOLDERS),
        ]
        self._reserved = reserved
        self._warn = warn
        self._reported: set[str] = set()

    def current(self) -> Mapping[str, CustomCommand]:
        """Return all commands by name; of several files with one name, the user's own is used."""
        commands: dict[str, CustomCommand] = {}
        reserved = self._reserved()
        for folder in self._folders:
            for definition in folder.definitions():
                name = definition.name.lower()
                if not _NAME.fullmatch(name):
                    reason = f"it needs a name of small letters, digits, - and _: {name!r:.60}"
                    self._report(definition.file, reason)
                elif name in reserved:
                    reason = f"/{name} is a command of ecoshell. Rename the file"
                    self._report(definition.file, reason)
                elif name not in commands:
                    commands[name] = _command(name, definition)
        return commands

    def expand(self, line: str) -> tuple[CustomCommand, str] | None:
        """Return the command and the question of `/name arguments`; None for any other line.

        Raises UsageError for a faulty file.
        """
        first, argument = split_first_word(line)
        command = self.current().get(first[1:].lower()) if first.startswith("/") else None
        if command is None:
            return None
        if command.fault:
            raise UsageError(f"{first} cannot be used. {command.fault}", kept="Nothing was asked.")
        return command, command.question(argument)

    def _report(self, file: str, reason: str) -> None:
        if file not in self._reported:
            self._reported.add(file)
            self._warn(f"{file} is not used as a command: {reason}.")


def _command(name: str, definition: Definition) -> CustomCommand:
    """The command of a file; a fault replaces its description."""
    fields = definition.content
    about = fields.text("description") or definition.content.body.partition("\n")[0].lstrip("# ")
    command = CustomCommand(
        name,
        visible_line(about, _MAX_DESCRIPTION),
        visible_line(fields.text("argument-hint"), _MAX_DESCRIPTION)
        or ("[TEXT]" if "$" in fields.body else ""),
        definition,
        fault=definition.fault,
    )
    try:
        if not command.fault and not definition.file.startswith(_OTHER_AGENT):
            cap, effort = fields.text("cap"), fields.text("effort")
            command = replace(
                command,
                model=fields.text("model"),
                effort=effort_named(effort) if effort else None,
                cap=parse_amount(cap) if cap else None,
            )
    except UsageError as error:
        command = replace(command, fault=f"{definition.file}: {error}")
    if command.fault:
        return replace(command, about=f"cannot be used: {visible_line(command.fault)}")
    return command


@asynccontextmanager
async def applied(command: CustomCommand, deps: Dependencies) -> AsyncGenerator[None]:
    """Apply the command's model and effort until the context exits; raises EcoshellError."""
    models, settings = deps.models, deps.settings
    model, effort = models.session_model, settings.effort
    try:
        if command.model and command.model != model:
            await models.change(model=command.model)
        if command.effort is not None:
            settings.effort = command.effort
        yield
    finally:
        # unless the user changed it meanwhile
        if command.effort is not None and settings.effort == command.effort:
            settings.effort = effort
        if models.session_model != model and command.model:
            await models.change(model=model)
