"""The workspace as the person uses it beside the agent: files that are mentioned, commands, and what can be undone."""

import asyncio
import itertools
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from ecoshell.agent.mentions import Mentioned, attach
from ecoshell.errors import ToolError
from ecoshell.messages import Attachment, Observation
from ecoshell.tools.base import ToolOptions
from ecoshell.tools.builtin.commands import CommandTools, passes
from ecoshell.tools.project import files_of
from ecoshell.tools.undo import UndoLog
from ecoshell.tools.workspace import Workspace

_NAME = re.compile(r"[/.]")
"""What a word has in it that may name a file."""
_AROUND_NAMES = "\"'`()[]{}<>,;:!?."
_NAMED = 20
"""Words that are looked at."""
_FRESH = 5.0
"""Seconds for which a list of files is given again."""


class Workbench:
    """One workspace; the tools of the agent write to it through the same undo log."""

    def __init__(self, workspace: Workspace, *, undo: UndoLog, options: ToolOptions) -> None:
        self.undo = undo
        self._workspace = workspace
        self._commands = CommandTools(workspace, options)
        self._options = options
        self._files: list[str] = []
        self._listed_at = -_FRESH
        self._listing = asyncio.Lock()

    async def mentioned(self, question: str, given: Sequence[Attachment] = ()) -> Mentioned:
        """What the question mentions, read; what is `given` already is not read again."""
        return await asyncio.to_thread(attach, self._workspace, question, given) if "@" in question else Mentioned()

    async def run(self, command: str) -> Observation:
        """Run a shell command within the limits of the tool run_command; raises ToolError when it cannot be started."""
        started = time.monotonic()
        seen = await self._commands.run_command(command)
        return replace(seen, seconds=time.monotonic() - started)

    async def check(self, command: str, text: str) -> bool:
        """Whether a command that is given this text finds it right; raises ToolError where it cannot tell."""
        return await passes(command, text, folder=self._workspace.root, options=self._options)

    def size_of_named(self, question: str) -> int | None:
        """Bytes of the largest file that the question names; None when it names none. May block."""
        words = dict.fromkeys(word.strip(_AROUND_NAMES) for word in question.split())
        sizes = [self._size(word) for word in itertools.islice((word for word in words if _NAME.search(word)), _NAMED)]
        return max((size for size in sizes if size is not None), default=None)

    def _size(self, path: str) -> int | None:
        try:
            with self._workspace.reading(path) as (file, _):
                return os.fstat(file.fileno()).st_size
        except ToolError:
            return None

    async def files(self) -> list[str]:
        """Files and folders (these end in a slash) that a question could mention, at most some 20,000."""
        async with self._listing:
            if time.monotonic() - self._listed_at > _FRESH:
                self._files = await files_of(self._workspace.root)
                self._listed_at = time.monotonic()
            return self._files
