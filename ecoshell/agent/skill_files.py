"""The skills in folders of the user, of plugins and of the workspace, which are read before each turn."""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from ecoshell.agent.definition_files import Definition, DefinitionFolder
from ecoshell.agent.project_trust import ProjectTrust
from ecoshell.agent.user_interface import UserInterface
from ecoshell.catalog import Catalog
from ecoshell.catalog.catalog import Skill, Skills
from ecoshell.errors import StoreError
from ecoshell.events import Emit, Event, Notice
from ecoshell.messages import META_TOOLS, visible_line
from ecoshell.paths import SKILL_FOLDERS
from ecoshell.tools.workspace import Workspace

FILE = "SKILL.md"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MAX_FILES = 20
"""Further files that a skill's text names."""
_MAX_WALKED = 2_000
_SHOWN_CHARACTERS = 20_000
"""Characters of skills up to which the question for trust shows them whole."""


def skill_folders(
    user_folder: Path, plugin_folders: Iterable[Path], workspace: Workspace
) -> list[DefinitionFolder]:
    """Return the folders of skills, which may be missing, in the order of precedence."""
    return [
        DefinitionFolder(user_folder, inner=FILE),
        *(DefinitionFolder(Path(place), workspace, inner=FILE) for place in SKILL_FOLDERS),
        *(DefinitionFolder(folder, inner=FILE) for folder in plugin_folders),
    ]


class SkillFiles:
    """Keeps the catalog's skills up to date."""

    def __init__(
        self,
        folders: Sequence[DefinitionFolder],
        catalog: Catalog,
        workspace: Workspace,
        trust: ProjectTrust,
    ):
        self._folders = folders
        self._catalog = catalog
        self._workspace = workspace
        self._trust = trust
        self._used: Sequence[Definition] = ()
        self._reported: set[str] = set()
        self._early: list[Event] = []
        """Reports from before the first turn."""

    def load(self) -> None:
        """Add the skills that need no question for trust; may block."""
        definitions: list[Definition] = []
        for folder in self._folders:
            of_folder = _usable(folder.definitions())
            with suppress(StoreError):  # reported by the next turn
                text = trust_text(of_folder)
                if not folder.place or self._trust.decision(folder.place, text)[0]:
                    definitions += of_folder
        self._use(definitions, self._early.append)

    async def follow(self, user: UserInterface, emit: Emit) -> None:
        """Read changed files, ask the user whether to trust those of the project, and report faulty ones once."""
        for event in self._early:
            emit(event)
        self._early.clear()
        definitions: list[Definition] = []
        for folder in self._folders:
            all_files = await asyncio.to_thread(folder.definitions)
            for definition in all_files:
                if definition.fault:
                    self._report(definition, definition.fault, emit)
            of_folder = _usable(all_files)
            if of_folder and folder.place:
                text = trust_text(of_folder)
                if not await self._trust.allows(folder.place, text, user, emit, once=True):
                    continue
            definitions += of_folder
        await asyncio.to_thread(self._use, definitions, emit)

    def _use(self, definitions: Sequence[Definition], emit: Emit) -> None:
        """Replace the catalog's skills if any file has changed."""
        if [*map(id, definitions)] == [*map(id, self._used)]:
            return
        self._used = definitions
        report = partial(self._report, emit=emit)
        skills = skills_of(definitions, self._workspace, self._catalog, report)
        self._catalog.skills = Skills(skills)
        places = (Path(skill.place) for skill in skills)
        self._workspace.also_readable = tuple(place for place in places if place.is_absolute())

    def _report(self, definition: Definition, reason: str, emit: Emit) -> None:
        if definition.text + reason not in self._reported:
            self._reported.add(definition.text + reason)
            emit(Notice(unused_text(definition, reason)))


def skills_of(
    definitions: Iterable[Definition],
    workspace: Workspace,
    tools: Container[str],
    report: Callable[[Definition, str], None],
) -> Sequence[Skill]:
    """The skills of files without fault, the first of each name; reports those with a name that cannot be used."""
    skills: dict[str, Skill] = {}
    for definition in definitions:
        skill = _skill_of(definition, workspace)
        if not _NAME.fullmatch(skill.name):
            report(definition, f"{skill.name!r:.60} is not a name of letters, digits, - and _.")
        elif skill.name in tools or skill.name in META_TOOLS:
            report(definition, f"a tool is called {skill.name}. Give the skill another name.")
        else:
            skills.setdefault(skill.name, skill)
    return [*skills.values()]


def unused_text(definition: Definition, reason: str) -> str:
    """That a file is not used as a skill."""
    return f"{definition.file} is not used as a skill: {reason}"


def _skill_of(definition: Definition, workspace: Workspace) -> Skill:
    """The skill of a file."""
    content, folder = definition.content, Path(definition.file).parent
    if folder.is_absolute():  # The sandbox hides links in the user's folder.
        folder = Path(os.path.realpath(folder))
    about = content.text("description") or content.body.partition("\n")[0].lstrip("# ")
    return Skill(
        name=content.text("name") or definition.name,
        description=visible_line(about),
        body=content.body,
        place=str(folder),
        source=definition.file,
        files=partial(_further_files, workspace.root / folder),
    )


def trust_text(definitions: Sequence[Definition]) -> str:
    """The skills of a project as the user decides about them: the whole files or, if they are long, their hashes."""
    texts = [f"{definition.file}:\n{definition.text}" for definition in definitions]
    if sum(map(len, texts)) <= _SHOWN_CHARACTERS:
        return "\n\n".join(texts)
    lines: list[str] = []
    for definition in definitions:
        digest = hashlib.sha256(definition.text.encode()).hexdigest()
        about = visible_line(definition.content.text("description"), 200)
        size = f"{len(definition.text):,} characters"
        lines.append(f"{definition.file} ({size}, SHA-256 {digest}): {about}")
    return "\n".join(lines)


def _usable(definitions: Sequence[Definition]) -> list[Definition]:
    return [definition for definition in definitions if not definition.fault]


def _further_files(folder: Path) -> list[str]:
    """The paths of the other files of a skill, relative to its folder; ends with an ellipsis if there are too many."""

    def walk() -> Iterator[str]:
        for base, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.relpath(os.path.join(base, name), folder)  # noqa: PTH118 - as os.walk gives them
                if path != FILE and not name.startswith("."):
                    yield path

    files = [*islice(islice(walk(), _MAX_WALKED), _MAX_FILES + 1)]
    return [*map(visible_line, files[:_MAX_FILES]), *(["…"] if len(files) > _MAX_FILES else [])]
