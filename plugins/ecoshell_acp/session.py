"""One session that an editor has open: prompts, slash commands, modes and permissions."""

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import acp
from acp import RequestError, schema
from pydantic import ValidationError

from ecoshell.agent.model_set import MODES
from ecoshell.agent.shell import Shell
from ecoshell.budget import nano_to_usd_text
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.events import (
    ApprovalWanted,
    BudgetChanged,
    BudgetSettled,
    CostChosen,
    CostWanted,
    ErrorHappened,
    LimitChosen,
    LimitHit,
    Quote,
    QuoteChosen,
    TrustWanted,
    TurnFinished,
)
from ecoshell.messages import Attachment, visible_line
from ecoshell.secrecy import mask_secrets
from ecoshell.sessions.markdown import fenced
from ecoshell_acp.failures import BAD_REQUEST, protocol_error, protocol_errors
from ecoshell_acp.permissions import CannotAsk, EditorUser
from ecoshell_acp.prompts import Block, read_prompt
from ecoshell_acp.updates import Question, Updates

_CHAT_COMMANDS = frozenset({"clear", "copy", "new", "quit", "resume"})
"""Commands of the chats that an editor replaces with its own."""
_COMMAND = re.compile(r"/([\w-]+(?::\S+)?)(?:\s|$)")
"""A slash command, or a prompt of an MCP server: `/server:prompt`."""


class EditorSession:
    """One session that an editor has open."""

    def __init__(self, shell: Shell, user: EditorUser, client: acp.Client) -> None:
        self.id = shell.session
        self._shell = shell
        self._person = user
        self._client = client
        self._updates = Updates(shell.deps.catalog, os.path.realpath(shell.workspace))
        self._turn_lock = asyncio.Lock()
        self._cancelled = False
        self._command: asyncio.Future[Any] | None = None
        """The running slash command."""
        self._mode = shell.deps.models.mode
        """The mode last reported to the editor."""
        self._context_tokens = 0
        """Tokens of the last call made by a model of the mode's roles."""
        user.ask = self._permission

    @property
    def modes(self) -> schema.SessionModeState:
        """The available modes and the current one."""
        modes = [
            schema.SessionMode(id=name, name=name, description=about)
            for name, about in MODES.items()
        ]
        return schema.SessionModeState(current_mode_id=self._mode, available_modes=modes)

    def require_free(self) -> None:
        """Raise RequestError while a turn runs."""
        if self._turn_lock.locked():
            raise RequestError(
                BAD_REQUEST, "A turn is running in this session. Wait for it, or cancel it."
            )

    async def greet(self) -> None:
        """Announce the slash commands."""
        commands: list[schema.AvailableCommand] = []
        prompts = self._shell.deps.providers.prompt_names()
        server_prompts = [
            (" ".join((name, *prompt.arguments)), visible_line(prompt.description))
            for name, prompt in prompts
        ]
        for typed, about in (*self._shell.overview(), *server_prompts):
            name, _, usage = typed.removeprefix("/").partition(" ")
            hint = (
                schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=usage))
                if usage
                else None
            )
            if name not in _CHAT_COMMANDS:
                commands.append(schema.AvailableCommand(name=name, description=about, input=hint))
        kind = "available_commands_update"
        await self._send(
            [schema.AvailableCommandsUpdate(session_update=kind, available_commands=commands)]
        )
        self._shell.read_ahead()

    async def replay(self, *, is_brief: bool = False) -> None:
        """Send all past events of the session, or, if `is_brief`, only the last one, which describes the session."""
        for event in self._shell.past[-1 if is_brief else 0 :]:
            await self._send(self._updates.convert(event, past=True))
        await self._send(self._updates.settled())

    async def set_mode(self, mode: str) -> None:
        """Change the mode; raises RequestError for an unknown one."""
        with protocol_errors():
            if mode not in MODES:
                raise UsageError(f"Unknown mode {mode!r}.", fix=f"Available: {', '.join(MODES)}.")
            await self._shell.command(f"/mode {mode}")
        self._mode = self._shell.deps.models.mode

    async def prompt(self, blocks: Sequence[Block]) -> schema.StopReason:
        """Run one turn or one slash command to its end."""
        self.require_free()
        async with self._turn_lock:
            self._cancelled = False
            text, attachments, notices = read_prompt(blocks, self._shell.workspace)
            await self._send(map(self._updates.note, notices))
            try:
                with protocol_errors():
                    return await self._run(text, attachments)
            except (asyncio.CancelledError, RequestError):
                task = asyncio.current_task()
                is_request_cancelled = (
                    task is not None and task.cancelling() > 0
                )  # as by an editor that disconnects
                if not self._cancelled or is_request_cancelled:
                    raise
                return "cancelled"
            finally:
                if (mode := self._shell.deps.models.mode) != self._mode:  # changed by a command
                    self._mode = mode
                    changed = schema.CurrentModeUpdate(
                        session_update="current_mode_update", current_mode_id=mode
                    )
                    await self._send([changed])

    async def cancel(self) -> None:
        """Stop the turn or the command; its request is answered when it has stopped."""
        self._cancelled = True
        if self._command is not None:
            self._command.cancel()
        await self._shell.stop()

    async def aclose(self) -> None:
        """Stop the running turn and close the shell."""
        await self.cancel()
        async with self._turn_lock:
            await self._shell.aclose()

    async def _run(self, text: str, attachments: Sequence[Attachment]) -> schema.StopReason:
        command = _COMMAND.match(text)
        if command is None:
            return await self._ask(text, attachments)
        if command[1].lower() in _CHAT_COMMANDS:
            await self._send(
                [
                    self._updates.say(
                        f"`/{command[1]}` works in the chat only; use your editor's own command."
                    )
                ]
            )
            return "end_turn"
        self._command = asyncio.ensure_future(self._shell.command(text))
        try:
            printed = await self._command
        except EcoshellError as error:
            await self._send([self._updates.say(mask_secrets(str(error)))])
            return "end_turn"
        finally:
            self._command = None
        if printed.text:
            await self._send(
                [self._updates.say(fenced(printed.text) if "\n" in printed.text else printed.text)]
            )
        all_attachments = (*printed.attachments, *attachments)
        return (
            await self._ask(printed.value, all_attachments)
            if printed.effect == "ask"
            else "end_turn"
        )

    async def _ask(self, question: str, attachments: Sequence[Attachment]) -> schema.StopReason:
        """Ask a question and follow the turn to its last event; raises RequestError for a turn with an error."""
        choice, failure, finished = "", None, None
        is_stopping = False
        self._person.forget()
        async with aclosing(self._shell.ask(question, attachments)) as events:
            async for event in events:
                if self._cancelled and not is_stopping:  # cancelled before the turn existed
                    is_stopping = True
                    await self._shell.stop()
                await self._send(self._updates.convert(event))
                match event:
                    case ApprovalWanted() | LimitHit() | CostWanted() | TrustWanted():
                        self._person.announce(event)
                    case Quote() if event.reason:
                        self._person.announce(event)
                    case LimitChosen() | CostChosen():
                        choice = event.choice
                    case QuoteChosen(choice="refuse", by="person"):
                        choice = "answer"
                    case ErrorHappened():
                        failure = event
                    case TurnFinished():
                        finished = event
                    case BudgetSettled() | BudgetChanged():
                        await self._send_usage(event)
                    case _:
                        pass
        if finished is None or finished.status == "interrupted" or self._cancelled:
            return "cancelled"
        if finished.status == "error":
            raise protocol_error(failure or ErrorHappened("", "The turn ended without an answer."))
        if finished.status == "limit":
            return (
                "cancelled"
                if choice == "stop"
                else "end_turn"
                if choice == "answer"
                else "max_turn_requests"
            )
        return "end_turn"

    async def _permission(self, event: Question, options: Sequence[schema.PermissionOption]) -> str:
        card = self._updates.question(event)
        try:
            answer = await self._client.request_permission(self.id, card, [*options])
        except (
            RequestError,
            ConnectionError,
            ValidationError,
        ) as failure:  # rejected, disconnected or invalid
            raise CannotAsk from failure
        return (
            answer.outcome.option_id
            if isinstance(answer.outcome, schema.SelectedPermissionOutcome)
            else ""
        )

    async def _send(self, updates: Iterable[Any]) -> None:
        for update in updates:
            with suppress(ConnectionError):  # the editor has disconnected; the server ends soon
                await self._client.session_update(self.id, update)

    async def _send_usage(self, event: BudgetSettled | BudgetChanged) -> None:
        """Report context size, cost and caps, once the model's context size is available."""
        models = self._shell.deps.models.current
        if isinstance(event, BudgetSettled) and event.role in dict(models.seats):
            self._context_tokens = (event.estimate or event.usage).total
        if models.context is None:
            return
        row = await asyncio.to_thread(self._shell.ledger.session_row, self.id)
        spent = row.shown_nano if row else 0
        caps = (
            event.caps if isinstance(event, BudgetChanged) else await self._shell.deps.budget.caps()
        )
        shown_caps: list[dict[str, str]] = []
        for cap in caps:
            amounts = {"limit": cap.limit, "spent": cap.spent, "held": cap.held, "left": cap.left}
            format_amount = nano_to_usd_text if cap.unit == "usd" else str
            texts = {name: format_amount(value) for name, value in amounts.items()}
            shown_caps.append({"scope": cap.scope, "unit": cap.unit, **texts})
        usage = schema.UsageUpdate(
            session_update="usage_update",
            used=self._context_tokens,
            size=models.context,
            # the protocol requires a number; all calculations use integer nano-dollars
            cost=None
            if spent is None
            else schema.Cost(amount=float(nano_to_usd_text(spent)), currency="USD"),
            field_meta={"ecoshell": {"caps": shown_caps}},
        )
        await self._send([usage])
