"""Definitions of agents for the tool `task`: Markdown files with a front matter, of the project and of the user."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ecoshell.agent.definition_files import Definition, DefinitionFolder
from ecoshell.agent.project_trust import ProjectTrust
from ecoshell.agent.user_interface import UserInterface
from ecoshell.budget import Amount, parse_amount
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import Emit
from ecoshell.messages import visible_line
from ecoshell.tools.builtin.task import PROJECT_FOLDERS
from ecoshell.tools.workspace import Workspace

_MAX_ABOUT = 200
"""Characters of a description in a list of agents."""
_TOOL_NAMES: Mapping[str, str] = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Bash": "run_command",
    "Grep": "search_text",
    "Glob": "list_files",
    "LS": "list_files",
    "WebFetch": "fetch_url",
    "Task": "task",
}
"""Our names of the tools that other agents' files name."""
_OTHER_MODELS = frozenset({"inherit", "sonnet", "opus", "haiku"})
"""Models by names that only the other agent knows; the default applies instead."""


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """An agent that a task can be delegated to; empty fields leave the choice to the task."""

    name: str
    file: str = ""
    about: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    """Names of its tools as they are written; empty for all."""
    model: str = ""
    budget: Amount | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether the file is written for another agent, so that unknown tools are ignored."""
        return self.file.startswith(".claude/")


class AgentFiles:
    """The agents that the workspace and the user define."""

    def __init__(self, workspace: Workspace, user_folder: Path, trust: ProjectTrust) -> None:
        self._trust = trust
        self._folders = [
            DefinitionFolder(user_folder),
            *(DefinitionFolder(Path(folder), workspace) for folder in PROJECT_FOLDERS),
        ]

    async def definition(self, name: str, user: UserInterface, emit: Emit) -> AgentDefinition:
        """The agent with this name; asks the user to trust a file of the project. Raises UsageError."""
        file = self._file(name)
        definition, allows = _parsed(file), self._trust.allows
        if file.of_project and not await allows(file.file, file.text, user, emit, once=True):
            fix = "Delegate without an agent, or do it yourself."
            raise UsageError(f"{file.file} is not trusted.", fix=fix)
        return definition

    def untrusted(self, name: str) -> AgentDefinition:
        """The agent with this name, trusted or not, for estimates. May block; raises UsageError."""
        return _parsed(self._file(name))

    def trusted(self) -> list[AgentDefinition]:
        """The agents that need no decision of the user; faulty files are ignored. May block."""
        definitions: list[AgentDefinition] = []
        for file in self._files().values():
            try:
                if not file.of_project or self._trust.decision(file.file, file.text)[0]:
                    definitions.append(_parsed(file))
            except EcoshellError:
                continue  # a task that names the agent reports it
        return definitions

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, description or problem, and file of every agent, for the user. May block."""
        rows: list[tuple[str, str, str]] = []
        for file in self._files().values():
            try:
                about = _parsed(file).about
                if file.of_project and not self._trust.decision(file.file, file.text)[0]:
                    about = f"not trusted yet: {about}"
            except EcoshellError as error:
                about = " ".join(filter(None, (error.message, error.fix)))
            rows.append((file.name, about, file.file))
        return rows

    def _file(self, name: str) -> Definition:
        """The file that defines the agent; raises UsageError."""
        files = self._files()
        if (file := files.get(name)) is not None:
            return file
        fix = f"Define it in {PROJECT_FOLDERS[0]}/{name}.md, or name none."
        if files:
            fix = f"Available: {', '.join(files)}."
        raise UsageError(f"Unknown agent {name!r}.", fix=fix)

    def _files(self) -> dict[str, Definition]:
        """The files by the name of their agent; the user's take precedence over those of the project."""
        ignores_project = self._trust.policy == "off"
        files: dict[str, Definition] = {}
        for folder in self._folders:
            for file in folder.definitions():
                if not (file.of_project and ignores_project):
                    files.setdefault(file.name, file)
        return files


def _parsed(file: Definition) -> AgentDefinition:
    """The agent that a file defines; raises UsageError that names the file."""
    if file.fault:
        raise UsageError(f"The agent {file.name} cannot be used: {file.fault}")
    if ":" in file.name or len(file.name.split()) != 1:
        fix = f"Rename {file.file}."
        raise UsageError(f"{file.name!r} cannot be used: an agent's name is one word.", fix=fix)
    fields = file.content
    model, tools, budget = fields.text("model"), fields.words("tools"), fields.text("budget")
    about = visible_line(fields.text("description"), _MAX_ABOUT)
    definition = AgentDefinition(file.name, file.file, about, fields.body, tools, model)
    if definition.is_foreign:
        names = tuple(dict.fromkeys(_TOOL_NAMES.get(name, name) for name in tools))
        definition = replace(definition, tools=names, model="" if model in _OTHER_MODELS else model)
    if not budget:
        return definition
    try:
        return replace(definition, budget=parse_amount(budget))
    except UsageError as error:
        reason = f"The budget of the agent {file.name} in {file.file} cannot be used."
        error.message = f"{reason} {error.message}"
        raise
