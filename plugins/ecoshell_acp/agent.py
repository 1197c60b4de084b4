"""The agent as an editor sees it: opening, listing, resuming and closing sessions (Agent Client Protocol v1)."""

import asyncio
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import acp
from acp import PROTOCOL_VERSION, RequestError, schema

from ecoshell import __version__
from ecoshell.assembly import load_settings, open_store
from ecoshell.assembly.shell import assemble
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore
from ecoshell.settings.convert import InvalidTable, to_settings
from ecoshell.settings.schema import McpServerSettings, Settings
from ecoshell.tools.workspace import Workspace, workspace_folder
from ecoshell_acp.failures import BAD_PARAMETERS, NOT_FOUND, protocol_errors
from ecoshell_acp.permissions import EditorUser
from ecoshell_acp.prompts import Block
from ecoshell_acp.session import EditorSession
from ecoshell_acp.transport import StdioTransport

T = TypeVar("T")
McpServer = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio

_MAX_LISTED_SESSIONS = 1000
_PAGE_SIZE = 50


async def serve(options: Options) -> None:
    """Serve one editor until its input ends, then end all its sessions."""
    agent = EditorAgent(options)
    input_fd, output_fd = (
        os.dup(0),
        os.dup(1),
    )  # reserved for the protocol; other reads find nothing, prints go to stderr
    with open(os.devnull, "rb") as empty:  # noqa: PTH123, ASYNC230 - not a file
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    try:
        transport = StdioTransport(input_fd, output_fd)
        # the SDK calls `session/close` and `session/resume` unstable, although the schema has them as stable
        await acp.run_agent(cast("acp.Agent", agent), transport, use_unstable_protocol=True)
        if (
            task := asyncio.current_task()
        ) and task.cancelling():  # the SDK treats it as the end of the input
            raise asyncio.CancelledError
    finally:
        await agent.aclose()


class EditorAgent:
    """Handles an editor's requests; each open session has its own shell.

    Errors of the shell become protocol errors with the same message.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sessions: dict[str, EditorSession] = {}
        self._greetings: set[asyncio.Task[None]] = set()
        self._load_lock = asyncio.Lock()

    def on_connect(self, client: acp.Client) -> None:
        self._client = client

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(
                name="ecoshell", title="ecoshell", version=__version__
            ),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> schema.NewSessionResponse:
        session = await self._open(cwd, mcp_servers or ())
        self._greet_soon(session)
        return schema.NewSessionResponse(session_id=session.id, modes=session.modes)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        session = await self._reopen(cwd, mcp_servers or (), session_id)
        return schema.LoadSessionResponse(modes=session.modes)

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        session = await self._reopen(cwd, mcp_servers or (), session_id, is_brief=True)
        return schema.ResumeSessionResponse(modes=session.modes)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        if cursor is not None and not re.fullmatch(r"\d{1,9}", cursor):
            raise RequestError(BAD_PARAMETERS, f"Unknown page {cursor!r}.")
        with protocol_errors():
            folder = None if cwd is None else str(_folder(cwd))
            stored = await asyncio.to_thread(
                _read_store, lambda store: store.list(_MAX_LISTED_SESSIONS)
            )
        rows = [row for row in stored if row.workspace and folder in (None, row.workspace)]
        start = int(cursor or 0)
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=row.id,
                    cwd=row.workspace,
                    title=row.title,
                    updated_at=datetime.fromtimestamp(row.updated, UTC).isoformat(
                        timespec="seconds"
                    ),
                )
                for row in rows[start : start + _PAGE_SIZE]
            ],
            next_cursor=str(start + _PAGE_SIZE) if len(rows) > start + _PAGE_SIZE else None,
        )

    async def set_session_mode(
        self, mode_id: str, session_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        await self._session(session_id).set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def prompt(
        self, prompt: Sequence[Block], session_id: str, **_: Any
    ) -> schema.PromptResponse:
        return schema.PromptResponse(stop_reason=await self._session(session_id).prompt(prompt))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            await session.cancel()

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        with protocol_errors():
            await session.aclose()
        return schema.CloseSessionResponse()

    async def aclose(self) -> None:
        """Close every session; log those whose last events cannot be written."""
        for task in self._greetings:
            task.cancel()
        for session in tuple(self._sessions.values()):
            try:
                await session.aclose()
            except EcoshellError as error:
                logging.error("%s", error)
        self._sessions.clear()

    def _session(self, name: str) -> "EditorSession":
        if name not in self._sessions:
            raise RequestError(NOT_FOUND, f"The session {name!r} is not open.")
        return self._sessions[name]

    async def _reopen(
        self, cwd: str, servers: Iterable[McpServer], name: str, *, is_brief: bool = False
    ) -> "EditorSession":
        """Open a stored session and replay its events; a session that is open already is closed first."""
        with protocol_errors():
            try:
                await asyncio.to_thread(
                    _read_store, lambda store: store.info(name)
                )  # `find` would accept a prefix
            except UsageError as error:
                raise RequestError(NOT_FOUND, str(error)) from error
        async with self._load_lock:
            session = await self._open(cwd, servers, resume=name)
        await session.replay(is_brief=is_brief)
        self._greet_soon(session)
        return session

    async def _open(
        self, cwd: str, servers: Iterable[McpServer], resume: str | None = None
    ) -> "EditorSession":
        user = EditorUser()
        with protocol_errors():
            folder = _folder(cwd)
            options = replace(self._options, workspace=folder, resume=resume)
            settings = _with_servers(await asyncio.to_thread(load_settings, user_paths()), servers)
            if (open_session := self._sessions.get(resume or "")) is not None:
                open_session.require_free()
                Workspace(folder)  # raises before the open session is closed
                await self.close_session(open_session.id)
            shell = await assemble(options, user, settings=settings)
            try:
                await shell.warm()
            except BaseException:
                await shell.aclose()
                raise
        session = self._sessions[shell.session] = EditorSession(shell, user, self._client)
        return session

    def _greet_soon(self, session: "EditorSession") -> None:
        """Announce the slash commands after the response with the session's ID."""
        task = asyncio.create_task(session.greet())
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)


def _with_servers(settings: Settings, servers: Iterable[McpServer]) -> Settings:
    """Add the editor's MCP servers to the settings, replacing those of the same name; raises UsageError."""
    added: dict[str, McpServerSettings] = {}
    for server in servers:
        base = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-")[:36] or "server"
        numbered = (f"{base}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([base], numbered) if name not in added)
        match server:
            case schema.HttpMcpServer():
                headers = {header.name: header.value for header in server.headers}
                entry = {"url": server.url, "headers": headers}
            case schema.McpServerStdio():
                env = {variable.name: variable.value for variable in server.env}
                entry = {"command": server.command, "args": server.args, "env": env}
            case _:
                raise UsageError(f"The server {server.name} uses an unsupported transport.")
        try:
            added[name] = to_settings(McpServerSettings, entry)
        except InvalidTable as error:
            raise UsageError(f"The server {server.name} cannot be used: {error}.") from error
    servers_by_name = {**settings.mcp.servers, **added}
    return replace(settings, mcp=replace(settings.mcp, servers=servers_by_name))


def _folder(cwd: str) -> Path:
    if not os.path.isabs(cwd) or "\0" in cwd:  # noqa: PTH117 - a path of any length
        raise UsageError(f"The folder {cwd!r} is not an absolute path.")
    return workspace_folder(Path(cwd))


def _read_store(query: Callable[[SessionStore], T]) -> T:
    with closing(open_store(user_paths())) as store:
        return query(store)
