"""The agent as an editor sees it: sessions, prompts, modes and commands (Agent Client Protocol v1)."""

import asyncio
import itertools
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import acp
from acp import PROTOCOL_VERSION, RequestError, schema
from pydantic import ValidationError

from ecoshell import __version__
from ecoshell.agent.model_set import MODES
from ecoshell.agent.shell import Shell
from ecoshell.agent.workspace import FILE_BYTES
from ecoshell.assembly import load_settings, open_store
from ecoshell.assembly.shell import assemble
from ecoshell.budget import nano_to_usd_text
from ecoshell.cli.editor.person import EditorPerson, NobodyThere
from ecoshell.cli.editor.updates import Question, Updates
from ecoshell.errors import EcoshellError, ModelMissing, SettingsError, UsageError
from ecoshell.events import (
    ApprovalWanted,
    BudgetChanged,
    BudgetSettled,
    CostChosen,
    CostWanted,
    ErrorHappened,
    LimitChosen,
    LimitHit,
    TrustWanted,
    TurnFinished,
)
from ecoshell.messages import Attachment, visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.secrecy import mask_secrets
from ecoshell.sessions import SessionStore
from ecoshell.sessions.markdown import fenced
from ecoshell.settings.schema import McpServerSettings, Settings
from ecoshell.tools.running import in_thread
from ecoshell.tools.workspace import Workspace, workspace_folder

T = TypeVar("T")
Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
McpServer = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio

_NOT_THERE = -32002
_NEEDS_KEY = -32000
"""Codes of the protocol: what is named is not there; the person has to sign in, here to give a key."""
_BAD_PARAMETERS, _BAD_REQUEST, _FAILED = -32602, -32600, -32603
_LISTED = 1000
_PAGE = 50
"""Sessions that are known to a list, and those of one page."""
_ELSEWHERE = frozenset({"clear", "copy", "new", "quit", "resume"})
"""Commands of chats for which an editor has its own ways."""
_COMMAND = re.compile(r"/([\w-]+(?::\S+)?)(?:\s|$)")
"""A command, or a question that a server has ready: `/server:prompt`."""
_HALF = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)
"""What may be half of a surrogate pair in JSON."""
_WORD = re.compile(r"[\w@]")


async def serve(options: Options) -> None:
    """Serve one editor until its input ends, then end everything that was begun for it."""
    agent = EditorAgent(options)
    given, told = os.dup(0), os.dup(1)  # for the protocol alone: what else reads finds nothing, what prints is an error
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123, ASYNC230 - no file
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    try:
        transport = _Lines(given, told)
        # `session/close` and `session/resume`, stable in the schema, are among what the SDK calls unstable
        await acp.run_agent(cast("acp.Agent", agent), transport, use_unstable_protocol=True)
        if (task := asyncio.current_task()) and task.cancelling():  # which the SDK takes for an end of the input
            raise asyncio.CancelledError
    finally:
        await agent.aclose()


class _Lines:
    """Messages as lines of JSON over two descriptors of any kind; a line that is no message is answered by an error."""

    def __init__(self, given: int, told: int) -> None:
        self._told = told
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._sending = asyncio.Lock()
        self._owed: set[str] = set()
        """Requests without an answer, but for prompts."""
        self._paid = asyncio.Event()
        self._over = False
        reading = partial(self._read, given, asyncio.get_running_loop())
        threading.Thread(target=reading, name="editor", daemon=True).start()  # a pipe may never end

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end, once everything asked is answered but prompts, which end with it."""
        while line := await self._arrived.get():
            if not line.strip():
                continue
            try:
                message: Any = json.loads(line)
                if _HALF.search(line):  # which is no text, and cannot be kept
                    message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
            except (ValueError, RecursionError) as failure:
                wrong = RequestError.parse_error({"details": str(failure)})
            else:
                if isinstance(message, dict):
                    asked = cast("dict[str, Any]", message)
                    if "id" in asked and asked.get("method") not in (None, "session/prompt"):
                        self._owed.add(repr(asked["id"]))
                    return asked
                wrong = RequestError.invalid_request({"details": "A message is one JSON object."})
            await self.send({"jsonrpc": "2.0", "id": None, "error": wrong.to_error_obj()})
        while self._owed and not self._over:
            self._paid.clear()
            await self._paid.wait()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; when nobody reads any more, that is the end."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)
        line = text.encode("utf-8", "replace") + b"\n"  # half a surrogate pair spoils a message for strict readers
        async with self._sending:
            if self._over:
                return
            try:
                await in_thread(partial(_write, self._told, line))
            except OSError:
                self._over = True
                self._arrived.put_nowait(b"")
        if "method" not in message:
            self._owed.discard(repr(message.get("id")))
        self._paid.set()

    async def close(self) -> None:
        """Write no more."""
        self._over = True

    def _read(self, given: int, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError, OSError), open(given, "rb") as file:
            for line in file:
                loop.call_soon_threadsafe(self._arrived.put_nowait, line)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._arrived.put_nowait, b"")


def _write(told: int, data: bytes) -> None:
    while data:
        data = data[os.write(told, data) :]


class EditorAgent:
    """Carries out an editor's requests. Sessions are the user's own; each that is open has a shell to itself.

    What the shell refuses becomes an error of the protocol, in the shell's words.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sessions: dict[str, EditorSession] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._loading = asyncio.Lock()

    def on_connect(self, client: acp.Client) -> None:
        self._client = client

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="ecoshell", title="ecoshell", version=__version__),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=False, audio=False, embedded_context=True),
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
        self._soon(session)
        return schema.NewSessionResponse(session_id=session.id, modes=session.modes)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        session = await self._again(cwd, mcp_servers or (), session_id)
        return schema.LoadSessionResponse(modes=session.modes)

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        session = await self._again(cwd, mcp_servers or (), session_id, briefly=True)
        return schema.ResumeSessionResponse(modes=session.modes)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        if cursor is not None and not re.fullmatch(r"\d{1,9}", cursor):
            raise RequestError(_BAD_PARAMETERS, f"There is no page {cursor!r}.")
        with _plainly():
            folder = None if cwd is None else str(_folder(cwd))
            known = await asyncio.to_thread(_stored, lambda store: store.list(_LISTED))
        rows = [row for row in known if row.workspace and folder in (None, row.workspace)]
        at = int(cursor or 0)
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=row.id,
                    cwd=row.workspace,
                    title=row.title,
                    updated_at=datetime.fromtimestamp(row.updated, UTC).isoformat(timespec="seconds"),
                )
                for row in rows[at : at + _PAGE]
            ],
            next_cursor=str(at + _PAGE) if len(rows) > at + _PAGE else None,
        )

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> schema.SetSessionModeResponse:
        await self._session(session_id).set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def prompt(self, prompt: Sequence[Block], session_id: str, **_: Any) -> schema.PromptResponse:
        return schema.PromptResponse(stop_reason=await self._session(session_id).prompt(prompt))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            await session.cancel()

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        with _plainly():
            await session.aclose()
        return schema.CloseSessionResponse()

    async def aclose(self) -> None:
        """End every session; one that cannot write its last events says so."""
        for task in self._later:
            task.cancel()
        for session in tuple(self._sessions.values()):
            try:
                await session.aclose()
            except EcoshellError as error:
                logging.error("%s", error)
        self._sessions.clear()

    def _session(self, name: str) -> "EditorSession":
        if name not in self._sessions:
            raise RequestError(_NOT_THERE, f"There is no open session {name!r}.")
        return self._sessions[name]

    async def _again(
        self, cwd: str, servers: Iterable[McpServer], name: str, *, briefly: bool = False
    ) -> "EditorSession":
        """A session of before, and what has happened in it told; one that is open is opened anew."""
        with _plainly():
            try:
                await asyncio.to_thread(_stored, lambda store: store.info(name))  # find would take a name's beginning
            except UsageError as error:
                raise RequestError(_NOT_THERE, str(error)) from error
        async with self._loading:
            session = await self._open(cwd, servers, resume=name)
        await session.replay(briefly=briefly)
        self._soon(session)
        return session

    async def _open(self, cwd: str, servers: Iterable[McpServer], resume: str | None = None) -> "EditorSession":
        person = EditorPerson()
        with _plainly():
            folder = _folder(cwd)
            options = replace(self._options, workspace=folder, resume=resume)
            settings = _joined(await asyncio.to_thread(load_settings, user_paths()), servers)
            if (before := self._sessions.get(resume or "")) is not None:
                before.require_free()
                Workspace(folder)  # or it would be refused once the session is closed
                await self.close_session(before.id)
            shell = await assemble(options, person, settings=settings)
            try:
                await shell.warm()
            except BaseException:
                await shell.aclose()
                raise
        session = self._sessions[shell.session] = EditorSession(shell, person, self._client)
        return session

    def _soon(self, session: "EditorSession") -> None:
        """Tell of commands once the session's id is told."""
        task = asyncio.create_task(session.greet())
        self._later.add(task)
        task.add_done_callback(self._later.discard)


class EditorSession:
    """One session that an editor has open."""

    def __init__(self, shell: Shell, person: EditorPerson, client: acp.Client) -> None:
        self.id = shell.session
        self._shell = shell
        self._person = person
        self._client = client
        self._updates = Updates(shell.deps.catalog, os.path.realpath(shell.workspace))
        self._turn = asyncio.Lock()
        self._cancelled = False
        self._command: asyncio.Future[Any] | None = None
        """The slash command that runs."""
        self._mode = shell.deps.models.mode
        """As the editor was told."""
        self._used = 0
        """Tokens of the last call that a model in one of the mode's roles has made."""
        person.ask = self._permission

    @property
    def modes(self) -> schema.SessionModeState:
        """Who may think, and who does."""
        known = [schema.SessionMode(id=name, name=name, description=about) for name, about in MODES.items()]
        return schema.SessionModeState(current_mode_id=self._mode, available_modes=known)

    def require_free(self) -> None:
        """Raise RequestError while a turn is under way."""
        if self._turn.locked():
            raise RequestError(_BAD_REQUEST, "A turn is under way in this session. Wait for it, or cancel it.")

    async def greet(self) -> None:
        """Tell which slash commands there are."""
        commands: list[schema.AvailableCommand] = []
        prompts = self._shell.deps.providers.prompt_names()
        ready = [(" ".join((name, *one.arguments)), visible_line(one.description)) for name, one in prompts]
        for typed, about in (*self._shell.overview(), *ready):
            name, _, usage = typed.removeprefix("/").partition(" ")
            hint = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=usage)) if usage else None
            if name not in _ELSEWHERE:
                commands.append(schema.AvailableCommand(name=name, description=about, input=hint))
        kind = "available_commands_update"
        await self._tell([schema.AvailableCommandsUpdate(session_update=kind, available_commands=commands)])
        self._shell.read_ahead()

    async def replay(self, *, briefly: bool = False) -> None:
        """Tell all that has happened in the session before, or `briefly` what it goes on with, which comes last."""
        for event in self._shell.past[-1 if briefly else 0 :]:
            await self._tell(self._updates.of(event, past=True))
        await self._tell(self._updates.settled())

    async def set_mode(self, mode: str) -> None:
        """Go on in another mode."""
        with _plainly():
            if mode not in MODES:
                raise UsageError(f"There is no mode called {mode!r}.", fix=f"There are {', '.join(MODES)}.")
            await self._shell.command(f"/mode {mode}")
        self._mode = self._shell.deps.models.mode

    async def prompt(self, blocks: Sequence[Block]) -> schema.StopReason:
        """One turn, or one slash command, to its end."""
        self.require_free()
        async with self._turn:
            self._cancelled = False
            text, attachments, notices = _asked(blocks, self._shell.workspace)
            await self._tell(map(self._updates.note, notices))
            try:
                with _plainly():
                    return await self._carry_out(text, attachments)
            except (asyncio.CancelledError, RequestError):
                task = asyncio.current_task()
                called_off = task is not None and task.cancelling() > 0  # the request itself, as by an editor that goes
                if not self._cancelled or called_off:
                    raise
                return "cancelled"
            finally:
                if (mode := self._shell.deps.models.mode) != self._mode:  # a command has changed it
                    self._mode = mode
                    changed = schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
                    await self._tell([changed])

    async def cancel(self) -> None:
        """Stop the turn, or the command; its request is answered when that is done."""
        self._cancelled = True
        if self._command is not None:
            self._command.cancel()
        await self._shell.stop()

    async def aclose(self) -> None:
        """Stop what runs, and let go of everything."""
        await self.cancel()
        async with self._turn:
            await self._shell.aclose()

    async def _carry_out(self, text: str, attachments: Sequence[Attachment]) -> schema.StopReason:
        named = _COMMAND.match(text)
        if named is None:
            return await self._ask(text, attachments)
        if named[1].lower() in _ELSEWHERE:
            await self._tell(
                [self._updates.say(f"`/{named[1]}` is for chats. Your editor has its own way to do that.")]
            )
            return "end_turn"
        self._command = asyncio.ensure_future(self._shell.command(text))
        try:
            printed = await self._command
        except EcoshellError as error:
            await self._tell([self._updates.say(mask_secrets(str(error)))])
            return "end_turn"
        finally:
            self._command = None
        if printed.text:
            await self._tell([self._updates.say(fenced(printed.text) if "\n" in printed.text else printed.text)])
        along = (*printed.attachments, *attachments)
        return await self._ask(printed.value, along) if printed.effect == "ask" else "end_turn"

    async def _ask(self, question: str, attachments: Sequence[Attachment]) -> schema.StopReason:
        """Ask, and follow the turn to its last event; raises RequestError for one that ended in an error."""
        choice, failure, finished, stopping = "", None, None, False
        self._person.forget()
        async with aclosing(self._shell.ask(question, attachments)) as events:
            async for event in events:
                if self._cancelled and not stopping:  # said before there was a turn to stop
                    stopping = True
                    await self._shell.stop()
                await self._tell(self._updates.of(event))
                match event:
                    case ApprovalWanted() | LimitHit() | CostWanted() | TrustWanted():
                        self._person.told(event)
                    case LimitChosen() | CostChosen():
                        choice = event.choice
                    case ErrorHappened():
                        failure = event
                    case TurnFinished():
                        finished = event
                    case BudgetSettled() | BudgetChanged():
                        await self._tell_usage(event)
                    case _:
                        pass
        if finished is None or finished.status == "interrupted" or self._cancelled:
            return "cancelled"
        if finished.status == "error":
            raise _failed(failure or ErrorHappened("", "The turn ended without an answer."))
        if finished.status == "limit":
            return "cancelled" if choice == "stop" else "end_turn" if choice == "answer" else "max_turn_requests"
        return "end_turn"

    async def _permission(self, event: Question, options: Sequence[schema.PermissionOption]) -> str:
        card = self._updates.question(event)
        try:
            answer = await self._client.request_permission(self.id, card, [*options])
        except (RequestError, ConnectionError, ValidationError) as failure:  # refused, gone, or no answer
            raise NobodyThere from failure
        return answer.outcome.option_id if isinstance(answer.outcome, schema.SelectedPermissionOutcome) else ""

    async def _tell(self, updates: Iterable[Any]) -> None:
        for update in updates:
            with suppress(ConnectionError):  # the editor is gone, and everything ends soon
                await self._client.session_update(self.id, update)

    async def _tell_usage(self, event: BudgetSettled | BudgetChanged) -> None:
        """Tell what is in the context, what the session has cost, and its caps; nothing while no context is known."""
        models = self._shell.deps.models.current
        if isinstance(event, BudgetSettled) and event.role in dict(models.seats):
            self._used = (event.estimate or event.usage).total
        if models.context is None:
            return
        row = await asyncio.to_thread(self._shell.ledger.session_row, self.id)
        spent = row.shown_nano if row else 0
        caps = event.caps if isinstance(event, BudgetChanged) else await self._shell.deps.budget.caps()
        shown_caps: list[dict[str, str]] = []
        for cap in caps:
            amounts = {"limit": cap.limit, "spent": cap.spent, "held": cap.held, "left": cap.left}
            shown = nano_to_usd_text if cap.unit == "usd" else str
            texts = {name: shown(value) for name, value in amounts.items()}
            shown_caps.append({"scope": cap.scope, "unit": cap.unit, **texts})
        told = schema.UsageUpdate(
            session_update="usage_update",
            used=self._used,
            size=models.context,
            # a number, as the protocol has it; what is reckoned with stays whole nano-dollars
            cost=None if spent is None else schema.Cost(amount=float(nano_to_usd_text(spent)), currency="USD"),
            field_meta={"ecoshell": {"caps": shown_caps}},
        )
        await self._tell([told])


def _asked(blocks: Sequence[Block], workspace: str) -> tuple[str, list[Attachment], list[str]]:
    """What a prompt's blocks come to: a question, what goes along with it, and what was cut, or is not attached.

    A file of the workspace that is linked to becomes a mention, which attaches it.
    """
    root = os.path.realpath(workspace)
    text, attachments, notices = "", list[Attachment](), list[str]()
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                added = block.text
            case schema.ResourceContentBlock(uri=added):
                path = _inside(root, added)
                if path is not None:
                    added = f'@"{path}"'  # whatever follows
                elif added.startswith("file:"):
                    notices.append(f"{added} was not attached: it is not in the workspace.")
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents(uri=uri, text=content)):
                path, lines = _inside(root, uri), uri.partition("#")[2]
                added = uri if path is None else f"{path}#{lines}" if lines else path
                data = content.encode("utf-8", "replace")
                if len(data) > FILE_BYTES:
                    part = f"the first {FILE_BYTES:,} of {len(data):,} bytes"
                    notices.append(f"{added} was cut: {part} are attached.")
                    content = f"{data[:FILE_BYTES].decode('utf-8', 'ignore')}\n[cut: {part}]"
                attachments.append(Attachment(added, content))
            case _:
                notices.append(f"What is no text was not attached: {block.type}.")
                continue
        apart = text and not text[-1].isspace() and _WORD.match(added)
        text += f" {added}" if apart else added
    return text, attachments, notices


def _inside(root: str, uri: str) -> str | None:
    """The path of a file, from the workspace on; None for what is not in it."""
    try:
        parts = urlsplit(uri)
        if parts.scheme not in ("", "file") or not parts.path.startswith("/"):
            return None
        path = os.path.relpath(os.path.realpath(unquote(parts.path)), root)
    except ValueError:  # no address, or no path
        return None
    return None if path == os.pardir or path.startswith(os.pardir + os.sep) else path


def _joined(settings: Settings, servers: Iterable[McpServer]) -> Settings:
    """The settings with the editor's servers, which come before those of the same name; raises UsageError."""
    given: dict[str, McpServerSettings] = {}
    for server in servers:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-")[:36] or "server"
        others = (f"{plain}-{at}" for at in itertools.count(2))
        name = next(name for name in itertools.chain([plain], others) if name not in given)
        try:
            match server:
                case schema.HttpMcpServer():
                    headers = {header.name: header.value for header in server.headers}
                    given[name] = McpServerSettings(url=server.url, headers=headers)
                case schema.McpServerStdio():
                    env = {variable.name: variable.value for variable in server.env}
                    given[name] = McpServerSettings(command=server.command, args=tuple(server.args), env=env)
                case _:
                    raise UsageError(f"The server {server.name} is reached in a way that is not known here.")
        except ValidationError as wrong:
            raise UsageError(f"The server {server.name} cannot be used: {wrong.errors()[0]['msg']}.") from wrong
    every = {**settings.mcp.servers, **given}
    return settings.model_copy(update={"mcp": settings.mcp.model_copy(update={"servers": every})})


def _folder(cwd: str) -> Path:
    if not os.path.isabs(cwd) or "\0" in cwd:  # noqa: PTH117 - a path of any length
        raise UsageError(f"The folder {cwd!r} is not an absolute path.")
    return workspace_folder(Path(cwd))


def _stored(ask: Callable[[SessionStore], T]) -> T:
    with closing(open_store(user_paths())) as store:
        return ask(store)


@contextmanager
def _plainly() -> Generator[None]:
    """What the shell refuses, as an error of the protocol."""
    try:
        yield
    except EcoshellError as error:
        if isinstance(error, ModelMissing) and error.key:
            raise _failed(ErrorHappened.of(error), _NEEDS_KEY) from error
        bad = isinstance(error, UsageError | SettingsError)
        raise _failed(ErrorHappened.of(error), _BAD_PARAMETERS if bad else _FAILED) from error


def _failed(event: ErrorHappened, code: int = _FAILED) -> RequestError:
    """The error of the protocol that an error is."""
    told = " ".join(part for part in (event.message, event.kept, event.fix) if part)
    return RequestError(code, mask_secrets(told), {"kind": event.kind})
