"""The shell every interface holds: the conversation of the moment, and the way to others."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent.conversation import Conversation, Stopped
from ecoshell.agent.cost_bounds import of_step
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.model_set import AUTO
from ecoshell.agent.offer import names_room, names_tokens
from ecoshell.budget import Amount, CapState, Scope
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import (
    BudgetChanged,
    CallMarked,
    CommandRan,
    ContextTold,
    Event,
    Notice,
    PlanChanged,
    ToolRegistered,
    ToolUnregistered,
    TurnStarted,
)
from ecoshell.images import MAX_IMAGES
from ecoshell.messages import Attachment, Call, Effect, Image, Observation, ToolSchema, visible_line
from ecoshell.models import ModelRow
from ecoshell.paths import expanded
from ecoshell.secrecy import mask_secrets
from ecoshell.sessions import SessionInfo, SessionStore
from ecoshell.tools.running import in_thread
from ecoshell.worker import warm_worker

if TYPE_CHECKING:  # loaded with the first slash command
    from ecoshell.agent.commands import CommandTable, Completion, Printed
    from ecoshell.agent.context_report import ContextReport

READ_FILE = "read_file"
_NOT_ASKED = "Nothing was asked, nothing was spent."


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session and what it has cost, as people are shown it; `spent_nano` is None when no price of it is known."""

    info: SessionInfo
    spent_nano: int | None
    calls: int
    """Model calls."""
    current: bool
    """Whether it is the one being talked in."""
    estimated: bool = False
    """Whether a part of what it has cost is an estimate."""


@dataclass(frozen=True, slots=True)
class Archive:
    """All sessions of the user. Raises StoreError and UsageError."""

    store: SessionStore
    ledger: Ledger
    forget: Iterable[Callable[[str], None]]
    """Each removes what else is kept of a session, and may block."""
    current: Callable[[], str]
    """Gives the id of the session being talked in."""
    workspace: str = ""

    def file(self, name: str) -> Path:
        """The file that a person has named, quoted or not: in the workspace, unless the name says otherwise."""
        name = name.strip()
        if len(name) > 2 and name[0] == name[-1] and name[0] in "\"'":
            name = name[1:-1]
        return Path(self.workspace, expanded(name))

    async def rows(self, limit: int = 1000) -> list[SessionRow]:
        """The sessions in which anything happened, the last used first."""
        costs = {row.key: row for row in await asyncio.to_thread(self.ledger.rows, "session")}
        infos, current = await asyncio.to_thread(self.store.list, limit), self.current()
        return [
            SessionRow(info, cost.shown_nano, cost.calls, info.id == current, cost.estimate_nano is not None)
            if (cost := costs.get(info.id))
            else SessionRow(info, 0, 0, info.id == current)
            for info in infos
        ]

    async def rename(self, session: str, title: str) -> None:
        """Give a session another title."""
        await asyncio.to_thread(self.store.rename, session, title)

    async def delete(self, session: str) -> None:
        """Remove a session and all that happened in it; what it cost stays in the ledger."""
        if session == self.current():
            raise UsageError("This is the session you are in.", fix="Begin or resume another one, then delete it.")
        await asyncio.to_thread(self.store.delete, session)
        for forget in self.forget:
            await asyncio.to_thread(forget, session)

    async def export(self, session: str, file: Path, *, running: bool = False) -> None:
        """Write a session into a new file: as JSON where the name ends so, else as Markdown; see `as_markdown`."""
        from ecoshell.sessions.export import as_json, as_markdown, write_new

        write, store = as_json if file.suffix == ".json" else partial(as_markdown, running=running), self.store
        await asyncio.to_thread(lambda: write_new(file, write(store.events(session), store.info(session))))


@dataclass(frozen=True, slots=True)
class Since:
    """When a tool was registered: seconds since 1970, the turn (0 before the first) and the step in it."""

    at: float
    turn: int
    step: int


@dataclass(frozen=True, slots=True)
class ToolDetails:
    """A tool as a person looks it up; `why` is empty until a turn has decided on it."""

    schema: ToolSchema
    effects: tuple[Effect, ...]
    price_nano: int
    tokens: int
    exact: bool
    by: str
    """Who registered it (agent, user, upfront); empty while nobody has."""
    since: Since | None
    why: str


def registered_since(name: str, events: Iterable[tuple[float, Event]]) -> Since | None:
    """When the tool was registered, read from a session's events; None when it is not any more, or never was."""
    found: Since | None = None
    turn = 0
    for at, event in events:
        match event:
            case TurnStarted():
                turn = event.turn
            case ToolRegistered() if event.name == name and found is None:
                found = Since(at, turn, event.step)
            case ToolUnregistered() if event.name == name:
                found = None
            case _:
                pass
    return found


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One known tool; `by` says who registered it and is empty while nobody has."""

    name: str
    tokens: int
    registered: bool
    by: str
    description: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What a status line or a side panel shows."""

    session: str
    title: str
    model: str
    mode: str
    """The mode and, where that is AUTO, the one chosen last."""
    strategy: str
    caps: tuple[CapState, ...]
    """Without those of a team whose server is away."""
    spent_nano: int | None
    """Spent in this session, as people are shown it; None when a part of it is unknown."""
    used_tokens: int
    tools: tuple[ToolRow, ...]
    context_tokens: int
    """Tokens of the registered schemas, and of the names of the other tools."""
    everything_tokens: int
    """Tokens every document together would take."""
    exact: bool
    next_nano: int | None = None
    """The most that will be reserved for the next step; None when the price is unknown."""
    next_tokens: int | None = None
    """The same in tokens; None when nobody has said."""
    plan: str = "btp"
    """How turns are planned: `off`, `btp`, `prompt`, `btp+prompt`."""
    effort: str = "auto"
    """How much the model reasons."""
    players: tuple[tuple[str, str], ...] = ()
    """Who thinks now: each role, and the name of the model that plays it."""
    context: ContextTold | None = None
    """What the model was told of where it works; None before it was."""
    planned: PlanChanged | None = None
    """The plan of the turn that ran last, by the caps as they are now; None before the first, and while one runs."""
    away: bool = False
    """Whether there is a team and its caps are not known."""
    estimated: bool = False
    """Whether a part of `used_tokens` is an estimate, as of calls that reported no usage."""
    estimated_nano: bool = False
    """Whether a part of `spent_nano` is."""


class Shell:
    """Sessions, the one being talked in, and what they share. Call `open` before anything else."""

    def __init__(
        self,
        deps: Dependencies,
        *,
        store: SessionStore,
        ledger: Ledger,
        workspace: str,
        commands: "Callable[[], CommandTable[Shell]]",
    ) -> None:
        self.deps = deps
        self.store = store
        self.ledger = ledger
        self.session = ""
        """The id of the session being talked in."""
        forget = (deps.workspace.undo.forget, deps.providers.forget_session)
        self.archive = Archive(store, ledger, forget=forget, current=lambda: self.session, workspace=workspace)
        self.workspace = workspace
        self._commands = commands
        self._conversation: Conversation | None = None
        self._reading: asyncio.Task[None] | None = None
        """Of what is read before it is asked for."""
        self._in_order = asyncio.Lock()
        self.past: Sequence[Event] = ()
        """The events of the session from before it was opened here, and what it goes on with."""
        self.resumed: Notice | None = None
        """With what a session goes on that was there before."""
        self.first_caps: dict[Scope, Amount] = {}
        """Those of a turn and of the session, where one is opened that has none of this scope."""

    @property
    def conversation(self) -> Conversation:
        """The session being talked in."""
        if self._conversation is None:
            raise StoreError("No session is open yet.", fix="Call Shell.open first.")
        return self._conversation

    async def open(self, session: str | None = None) -> None:
        """Talk in a new session, or go on with the one whose id begins so; raises UsageError and StoreError."""
        if session is None:
            opened = await asyncio.to_thread(self.store.create, workspace=self.workspace, model=self.deps.models.name)
        else:
            opened = await asyncio.to_thread(self.store.find, session)
        if self.read_only is None:
            standing = {cap.scope for cap in await asyncio.to_thread(self.ledger.own_caps, opened, 0)}
            for scope, cap in self.first_caps.items():
                if scope not in standing:
                    await asyncio.to_thread(self.ledger.set_cap, opened, scope, cap)
        if self._conversation is not None:
            await self._conversation.leave()
        self.past, self.resumed = await asyncio.to_thread(self.store.past, opened), None
        self._conversation = await asyncio.to_thread(Conversation, self.deps, opened, self.past)
        self.session = opened

    async def bring_back(self) -> None:
        """Go on with the model, the mode and the roles that the session was last asked with, if they can be had."""
        deps, was = self.deps, await asyncio.to_thread(self.store.choices, self.session)
        told: list[str] = []
        if was.mode and (was.model, was.mode, was.roles) != (
            deps.models.session_model,
            deps.models.mode,
            deps.models.roles,
        ):
            try:
                await deps.models.change(model=was.model, mode=was.mode, roles=was.roles)
            except EcoshellError as error:
                told.append(f"It was asked with {was.model}, which cannot be had: {error}")
        if was.workspace not in ("", self.workspace):
            told.append(f"It was in {was.workspace}; ecoshell --resume {self.session} works there.")
        self.goes_on(" ".join(told), "/model, /mode and /role choose otherwise.")

    def goes_on(self, told: str, otherwise: str) -> None:
        """Have it said, after what was said before, with what the session goes on."""
        thinks = self.deps.models.playing(self.deps.models.current.mode.name)
        said = (
            f"Session {self.session} goes on with {thinks}, in the mode {self.deps.models.mode}, in {self.workspace}."
        )
        self.resumed = Notice(" ".join(filter(None, (said, told, otherwise))))
        self.past = (*self.past, self.resumed)

    @property
    def farewell(self) -> str:
        """How to go on with the session, for whoever leaves; empty when nothing has happened in it."""
        kept = self._conversation is not None and self.conversation.turn > 0
        return f"Session {self.session} is kept; ecoshell --resume {self.session} goes on with it." if kept else ""

    @property
    def read_only(self) -> StoreError | None:
        """Why nothing can be asked, because it could be neither paid for nor kept; None when it can."""
        try:
            self.ledger.require_writable(_NOT_ASKED)
            self.store.require_writable(_NOT_ASKED)
        except StoreError as error:
            return error
        return None

    async def warm(self) -> None:
        """Have models and worker loaded by the time it is asked, because a question is on its way; returns at once."""
        if self.read_only is None:
            await in_thread(warm_worker)
            self.deps.providers.ask_unknown()
            for model in self.deps.models.current.models:
                await model.warm()

    def read_ahead(self) -> None:
        """Begin to have models of this machine read what the next question comes after, while that is typed."""
        if self.read_only is None and not self.conversation.busy:
            self._reading = asyncio.create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        with suppress(EcoshellError):  # it will be told when it is asked
            await self.conversation.read_ahead()

    async def ask(self, question: str, attachments: Sequence[Attachment] = ()) -> AsyncGenerator[Event]:
        """One turn; see Conversation.ask. Files and resources of servers that it mentions with `@` go along with it.

        When another session is opened meanwhile, the stream ends there. Raises StoreError, and nothing is asked, while
        the shell only reads.
        """
        if (unwritable := self.read_only) is not None:
            raise unwritable
        conversation = self.conversation
        if self._reading is not None:
            self._reading.cancel()
        if not question.strip():
            raise UsageError("The question is empty.", fix="Type what you would like to know or have done.")
        conversation.require_free()
        given, notices, rest = tuple(attachments), list[str](), question
        if mentions := self.deps.providers.mentions(question):
            try:
                taken = await conversation.alone(self.deps.providers.attach(question))
            except Stopped:
                return
            given, notices = (*taken.attachments, *given), taken.notices
            for match in mentions:  # else they would be looked for among the files
                rest = f"{rest[: match.start()]}{' ' * len(match[0])}{rest[match.end() :]}"
        named: Callable[[str], bool] | None = None
        if self.deps.by_program and READ_FILE in self.deps.catalog:  # as the agent could read what is only named
            tool, rules = self.deps.catalog.tool(READ_FILE), self.deps.approvals.rules
            named = lambda path: rules.judge(Call(READ_FILE, {"path": path}), tool).verdict == "allow"  # noqa: E731
        found = await self.deps.workspace.mentioned(rest, given, named)
        if conversation is not self._conversation:
            return
        along = (*found.attachments, *given)
        self._require_vision([one.image for one in along if one.image is not None])
        turn = conversation.ask(question, along, (*found.notices, *notices))
        async with aclosing(turn) as events:
            async for event in events:
                if conversation is not self._conversation:
                    return
                yield event

    def _require_vision(self, images: Sequence[Image]) -> None:
        """Raise UsageError for images that the model cannot see, and for too many."""
        if len(images) > MAX_IMAGES:
            raise UsageError(
                f"The question has {len(images)} images; it may have {MAX_IMAGES}.",
                kept=_NOT_ASKED,
                fix="Ask about some of them first.",
            )
        traits = self.deps.models.current.model.traits
        if images and traits.vision is False:
            setting = f', or set [models."{traits.name}"] vision = true' if not traits.local else ""
            raise UsageError(
                f"{traits.name} cannot see images.",
                kept=_NOT_ASKED,
                fix=f"Choose a model with vision with /model or --model{setting}.",
            )

    async def run(self, command: str) -> CommandRan:
        """Run a command in the workspace, as typed by the person; its output goes along with the next question.

        `stop` stops it. Raises UsageError while a turn runs, and where nothing may be executed.
        """
        if (unwritable := self.read_only) is not None:
            raise unwritable
        if self.deps.approvals.rules.read_only:
            raise UsageError("Nothing is run: the shell is read-only.", fix="Start it without --read-only.")
        if not command.strip():
            raise UsageError("There is nothing to run.", fix="Say, for instance, !git status.")
        conversation, started = self.conversation, time.monotonic()
        try:
            seen = await conversation.alone(self.deps.workspace.run(command))
        except Stopped:
            seen = Observation("[stopped]", ok=False)
        ran = CommandRan(command, seen.text, seen.ok, seen.truncated, time.monotonic() - started)
        return await conversation.note(ran)

    async def files(self) -> list[str]:
        """Files and folders (these end in a slash) of the workspace, for completing a mention."""
        return await self.deps.workspace.files()

    async def mentionable(self) -> list[str]:
        """The same, and the resources and templates that servers have listed, as `server:address`."""
        servers = self.deps.providers.servers.values()
        listed = ((one.name, address) for one in servers for address in (*one.lists.resources, *one.lists.templates))
        return [*await self.files(), *(f"{name}:{address}" for name, address in listed)]

    async def stop(self) -> None:
        """Stop the turn that runs, or what runs in its place; a turn's stream still ends in TurnFinished."""
        await self.conversation.stop()

    async def command(self, line: str) -> "Printed":
        """Carry out a slash command, after those sent before it; raises EcoshellError."""
        from ecoshell.agent.commands import Printed

        async with self._in_order:
            if (question := await self.deps.providers.prompted(line)) is not None:
                return Printed("", "ask", question)
            return mask_secrets(await self._commands().run(self, line))

    def complete(self, text: str) -> "list[Completion]":
        """What a line that begins with a slash could become."""
        from ecoshell.agent.commands import Completion

        prompts = [
            Completion(name, visible_line(one.description))
            for name, one in self.deps.providers.prompt_names()
            if name.startswith(text)
        ]
        return [*self._commands().complete(self, text), *prompts]

    async def values(self, text: str) -> "list[Completion]":
        """What a line that is a server's prompt could become, by the values the server knows for its arguments."""
        from ecoshell.agent.commands import Completion

        return [Completion(line, "") for line in await self.deps.providers.values(text)]

    def overview(self) -> list[tuple[str, str]]:
        """Each slash command as it is typed, and what it does."""
        return self._commands().overview()

    async def mark(self, turn: int, call: str, name: str, helpful: bool | None) -> Sequence[Event]:
        """Keep the person's word on a call's result; None takes it back. Raises StoreError.

        Gives what has happened: the mark, and the new score of the tool graph that the call belongs to.
        """
        marked = await self.conversation.note(CallMarked(turn, call, name, helpful))
        await asyncio.to_thread(self.deps.experience.records.mark, self.session, turn, call, helpful)
        return (marked, *await self.conversation.score(turn))

    async def set_cap(self, scope: Scope, cap: Amount | None) -> None:
        """Set a cap, or remove the scope's with None."""
        await self.deps.budget.set_cap(scope, cap)
        await self.conversation.note(BudgetChanged(await self.deps.budget.caps()))

    async def tool_details(self, name: str) -> ToolDetails:
        """All there is to tell of a known tool; raises UsageError."""
        conversation, store, session = self.conversation, self.store, self.session
        schema, skill = conversation.known(name), conversation.memory.library.skills.get(name)
        measure, presentation = self.deps.models.current.measure, conversation.memory.presentation
        tokens, exact = await asyncio.to_thread(measure, schema, presentation)
        tool, since = self.deps.catalog.tool(name), None
        if skill is not None:
            since = await asyncio.to_thread(lambda: registered_since(name, store.events(session)))
        return ToolDetails(
            schema=schema,
            effects=tuple(sorted(tool.effects)),
            price_nano=tool.price_nano,
            tokens=tokens,
            exact=exact,
            by="" if skill is None else skill.by,
            since=since,
            why=conversation.decision.why(name) if conversation.decision else "",
        )

    async def context_report(self) -> "ContextReport":
        """What fills the context of the model that takes the next step."""
        return await self.conversation.context_report()

    async def models(self) -> Sequence[ModelRow]:
        """Every model one could go on with."""
        return await asyncio.to_thread(lambda: self.deps.models.factory.models(self.ledger.barred()))

    async def keep_key(self, provider: str, key: str) -> None:
        """Use a provider's key from now on and store it in the keyring; raises UsageError and StoreError."""
        await asyncio.to_thread(self.deps.models.factory.keep_key, provider, key)

    async def introduction(self) -> str:
        """Which model answers, and how to get a better one."""
        return await asyncio.to_thread(self.deps.models.factory.introduction, self.deps.models.name)

    async def standing(self) -> Standing:
        """What a status line or a side panel shows now."""
        standing = await asyncio.to_thread(self._standing)
        return replace(standing, planned=await self.conversation.planned())

    def _standing(self) -> Standing:
        deps, library, session = self.deps, self.conversation.memory.library, self.session
        counted, exact = deps.models.current.sizes_at_hand(
            map(self.conversation.memory.presentation.prompt_text, deps.catalog.schemas)
        )
        sizes = dict(zip(deps.catalog.names, counted, strict=True))
        named = (self.conversation.memory.shown.names or {*deps.catalog.names}) - {*library.names}
        listed = (name for name in deps.catalog.names if name in named)
        names = names_tokens(deps, listed, lambda parts: deps.models.current.sizes_at_hand(parts)[0])
        tools: list[ToolRow] = []
        for schema in deps.catalog.schemas:
            name, skill = schema.name, library.skills.get(schema.name)
            by = "" if skill is None else skill.by
            tools.append(ToolRow(name, sizes[name], skill is not None, by, schema.summary))
        spent = self.ledger.session_row(session)
        ahead = of_step(deps.models.current.mode.forecast(self.conversation.ahead))
        return Standing(
            session=session,
            title=self.store.title(session),
            model=deps.models.name,
            mode=f"{AUTO} → {deps.models.current.mode.name}" if deps.models.mode == AUTO else deps.models.mode,
            strategy=deps.settings.strategy,
            caps=self.ledger.caps(session, self.conversation.turn),
            spent_nano=spent.shown_nano if spent else 0,
            used_tokens=spent.shown_usage.total if spent else 0,
            tools=tuple(tools),
            context_tokens=min(names, names_room(deps)) + sum(tool.tokens for tool in tools if tool.registered),
            everything_tokens=sum(sizes.values()),
            exact=exact,
            next_nano=ahead.nano,
            next_tokens=ahead.tokens,
            plan=deps.settings.plan,
            effort=deps.settings.effort,
            players=deps.models.current.seats,
            context=self.conversation.memory.shown.context,
            away=self.ledger.away is not None,
            estimated=spent is not None and spent.estimate is not None,
            estimated_nano=spent is not None and spent.estimate_nano is not None,
        )

    async def write_down(self) -> StoreError | None:
        """Write what could not be written before; gives why it still cannot be, None when all is on disk."""
        try:
            await self.deps.log.flush()
        except StoreError as failure:
            return failure
        return None

    async def aclose(self) -> None:
        """Stop what runs, write what could not be written before, let the model go and close the files.

        Raises StoreError, once all that is done, where something of the session could not be written and is lost.
        """
        unwritten = None
        if self._reading is not None:
            self._reading.cancel()
        if self._conversation is not None:
            await self._conversation.stop()
            unwritten = await self.write_down()
            await asyncio.to_thread(self.deps.experience.keep)
        await self.deps.models.aclose()
        await self.deps.providers.aclose()
        await asyncio.to_thread(self.ledger.close)
        await asyncio.to_thread(self.store.close)
        await asyncio.to_thread(self.deps.experience.records.close)
        if unwritten is not None:
            raise StoreError(
                f"What happened last could not be written down, and is lost: {unwritten.message}",
                kept=f"What stands of session {self.session} on the disk is kept.",
                fix=unwritten.fix,
            ) from unwritten
