"""Folders of text files with a front matter, which define commands, skills and agents."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshell.errors import EcoshellError, ToolError
from ecoshell.front_matter import FrontMatter, parse_front_matter
from ecoshell.messages import visible
from ecoshell.paths import expanded
from ecoshell.tools.workspace import Workspace

MAX_BYTES = 100_000
"""Bytes of one file."""
_MAX_FILES = 1_000
_SUFFIX = ".md"
_EMPTY = FrontMatter({}, "")


@dataclass(frozen=True, slots=True)
class Definition:
    """One file as it was read."""

    name: str
    """The file's name without suffix, or that of its folder."""
    file: str
    """Its path: relative to the workspace for a file of the project, otherwise absolute."""
    of_project: bool
    """Whether it belongs to the workspace, so that it needs the user's trust."""
    text: str = ""
    content: FrontMatter = _EMPTY
    fault: str = ""
    """Why it cannot be used; empty if it can."""


class DefinitionFolder:
    """One folder, whose files are read again when they change."""

    def __init__(
        self, folder: Path, workspace: Workspace | None = None, *, inner: str = ""
    ) -> None:
        """`workspace` confines a folder of the project, which is relative to it; links in other folders are followed.

        The files are `*.md` or, with `inner`, the files of this name in the subfolders.
        """
        self.place = "" if workspace is None else str(folder)
        """The folder if it belongs to the project, so that its files need the user's trust; otherwise empty."""
        self._folder = folder
        self._workspace = workspace
        self._inner = inner
        self._read: dict[str, tuple[tuple[int, int], Definition]] = {}
        """Files by path, with time and size."""

    def definitions(self) -> Sequence[Definition]:
        """Return the definitions by name; never fails. May block."""
        place = self._folder if self._workspace is None else self._workspace.root / self._folder
        try:
            entries = sorted(place.iterdir())[:_MAX_FILES]
        except OSError:  # missing, in most cases
            return ()
        current: dict[str, tuple[tuple[int, int], Definition]] = {}
        for entry in entries:
            path = entry / self._inner if self._inner else entry
            if entry.name.startswith(".") or path.suffix != _SUFFIX:
                continue
            try:
                status = path.stat()
            except OSError:
                continue
            file = str(self._folder / path.relative_to(place))
            version, earlier = (status.st_mtime_ns, status.st_size), self._read.get(file)
            if earlier is None or earlier[0] != version:
                earlier = version, self._load(file, entry.name)
            current[file] = earlier
        self._read = current
        return [definition for _, definition in current.values()]

    def _load(self, file: str, name: str) -> Definition:
        name, text, content, fault = name.removesuffix(_SUFFIX), "", _EMPTY, ""
        try:
            workspace, path = self._workspace, file
            if workspace is None:
                real = Path(os.path.realpath(expanded(file)))
                workspace, path = Workspace(real.parent), real.name
            text = visible(workspace.read_text(path, MAX_BYTES).text)
            content = parse_front_matter(text, file)
            if not content.body:
                raise ToolError(f"{file} has no text after its front matter.")
        except EcoshellError as error:
            fault = str(error)
        return Definition(name, file, self._workspace is not None, text, content, fault)
