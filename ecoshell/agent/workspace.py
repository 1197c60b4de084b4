"""The workspace as the user works in it: mentions, commands and the list of files."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ecoshell.agent.mentions import Mentioned, attach, named_paths
from ecoshell.errors import ToolError
from ecoshell.messages import Attachment, Observation
from ecoshell.tools import ResultSize, ToolOptions
from ecoshell.tools.background import BackgroundCommands
from ecoshell.tools.builtin.commands import CommandTools, passes
from ecoshell.tools.git_state import git
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import CLOSED, Workspace

_LISTING_SECONDS = 5.0
"""How long a list of files is reused."""


class WorkspaceService:
    """One workspace; the agent's tools write to it through the same undo log."""

    def __init__(self, workspace: Workspace, *, undo: UndoLog, options: ToolOptions) -> None:
        self.undo = undo
        self.result = options.result
        self._workspace = workspace
        self._commands = CommandTools(workspace, replace(options, sandbox=None))
        self._options = options
        self._files: list[str] = []
        self._listed_at = -_LISTING_SECONDS
        self._listing = asyncio.Lock()

    def enter(self, session: str, turn: int) -> str:
        """Start a turn, and return the name of its file copies."""
        return self.undo.enter(session, turn)

    def of_subagent(self) -> "WorkspaceService":
        """This workspace for a subagent, whose writes belong to the running turn."""
        return _SubagentWorkspace(self._workspace, undo=self.undo, options=self._options)

    async def mentioned(
        self,
        question: str,
        attachments: Sequence[Attachment] = (),
        may_read: Callable[[str], bool] | None = None,
    ) -> Mentioned:
        """Read what the question mentions; see `attach`."""
        if "@" not in question and may_read is None:
            return Mentioned()
        return await asyncio.to_thread(attach, self._workspace, question, attachments, may_read)

    @property
    def background(self) -> BackgroundCommands:
        return self._workspace.background

    async def run(self, command: str) -> Observation:
        """Run the user's shell command, without a sandbox but with the limits of run_command; raises ToolError."""
        return await self._commands.run_command(command)

    async def check(self, command: str, text: str) -> bool:
        """Whether a command accepts the text on its input; raises ToolError if it cannot tell."""
        return await passes(command, text, folder=self._workspace.root, options=self._options)

    def size_of_input(self, question: str, attachments: Iterable[Attachment]) -> int | None:
        """Bytes of the largest file that the question names or has attached; None without files. May block."""
        sizes = [len(attachment.text.encode("utf-8", "replace")) for attachment in attachments]
        for path in named_paths(question):
            with suppress(ToolError), self._workspace.reading(path) as (file, _):
                sizes.append(os.fstat(file.fileno()).st_size)
        return max(sizes, default=None)

    async def files(self) -> list[str]:
        """Files and folders that a question could mention; folders end in a slash."""
        async with self._listing:
            if time.monotonic() - self._listed_at > _LISTING_SECONDS:
                self._files = await files_of(self._workspace.root)
                self._listed_at = time.monotonic()
            return self._files


class _SubagentWorkspace(WorkspaceService):
    def __init__(self, workspace: Workspace, *, undo: UndoLog, options: ToolOptions) -> None:
        super().__init__(workspace, undo=undo, options=options)
        self.result = ResultSize()  # that of the tools follows the parent's model

    def enter(self, session: str, turn: int) -> str:
        return ""


MAX_FILES = 20_000
_CLOSED = CLOSED | {"venv", "env", "dist", "build", "target", "site-packages"}
_GIT_SECONDS = 5.0
_LS_FILES = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


async def files_of(root: Path) -> list[str]:
    """The relative paths of up to MAX_FILES files below `root`, and of their folders, which end in a slash."""
    git_output = await git(root, *_LS_FILES, seconds=_GIT_SECONDS)

    def listing() -> list[str]:
        names = _walk(root) if git_output is None else _existing(root, git_output)
        files = list(itertools.islice(names, MAX_FILES))
        folders = {
            f"{folder}/" for path in files for folder in PurePosixPath(path).parents if folder.name
        }
        return sorted({*files, *folders})

    return await asyncio.to_thread(listing)


async def top_of(root: Path, seconds: float) -> dict[str, list[str]]:
    """The names in a workspace, each with the names inside it; folders end in a slash.

    Omits hidden files, files that git ignores, and everything after MAX_FILES files or the time limit.
    """
    git_output = await git(root, *_LS_FILES, seconds=seconds)
    deadline = time.monotonic() + seconds

    def listing() -> dict[str, list[str]]:
        paths = _walk(root, depth=2) if git_output is None else _existing(root, git_output)
        in_time = itertools.takewhile(lambda _: time.monotonic() < deadline, paths)
        top: dict[str, set[str]] = {}
        for path in itertools.islice(in_time, MAX_FILES):
            name, slash, tail = path.partition("/")
            inner, inner_slash, _ = tail.partition("/")
            if not name.startswith(".") and not inner.startswith("."):
                top.setdefault(name + slash, set()).update([inner + inner_slash] if inner else [])
        return {name: sorted(top[name]) for name in sorted(top)}

    return await asyncio.to_thread(listing)


def _existing(root: Path, git_output: str) -> Iterator[str]:
    """The printable paths that git lists, without files deleted since the last commit."""
    names = dict.fromkeys(git_output.split("\0")[:-1])
    return (path for path in names if path.isprintable() and (root / path).is_file())


def _walk(root: Path, depth: int | None = None) -> Iterator[str]:
    """The printable paths of files and folders, which end in a slash, at most `depth` levels deep."""
    for base, folders, files in os.walk(root):
        place = PurePosixPath(Path(base).relative_to(root))
        folders[:] = sorted(name for name in folders if _is_listed(name))
        yield from (f"{place / name}" for name in sorted(files) if _is_listed(name))
        yield from (f"{place / name}/" for name in folders)
        if depth is not None and len(place.parts) + 1 >= depth:
            folders.clear()


def _is_listed(name: str) -> bool:
    return not name.startswith(".") and name.isprintable() and name not in _CLOSED
