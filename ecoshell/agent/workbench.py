"""The workspace as the person uses it beside the agent: files that are mentioned, commands, and what can be undone."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from ecoshell.agent.mentions import Mentioned, attach
from ecoshell.messages import Attachment, Observation
from ecoshell.tools.builtin.commands import CommandTools
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.listing import files_of
from ecoshell.tools.undo import UndoLog
from ecoshell.tools.workspace import Workspace

_FRESH = 5.0
"""Seconds for which a list of files is given again."""


class Workbench:
    """One workspace; the tools of the agent write to it through the same undo log."""

    def __init__(self, workspace: Workspace, *, undo: UndoLog, options: ToolOptions) -> None:
        self.undo = undo
        self._workspace = workspace
        self._commands = CommandTools(workspace, options)
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

    async def files(self) -> list[str]:
        """Files and folders (these end in a slash) that a question could mention, at most some 20,000."""
        async with self._listing:
            if time.monotonic() - self._listed_at > _FRESH:
                self._files = await files_of(self._workspace.root)
                self._listed_at = time.monotonic()
            return self._files
