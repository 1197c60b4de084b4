"""The workspace as the user works in it: mentions, commands and the list of files."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from ecoshell.agent.file_listing import files_of
from ecoshell.agent.mentions import Mentioned, attach, named_paths
from ecoshell.errors import ToolError
from ecoshell.messages import Attachment, Observation
from ecoshell.tools import ResultSize, ToolOptions
from ecoshell.tools.background import BackgroundCommands
from ecoshell.tools.builtin.commands import CommandTools, passes
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace

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
        """The background commands of the session."""
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
