"""The shell that every interface uses: the open session, and the way to others."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from ecoshell.agent.archive import Archive
from ecoshell.agent.conversation import Conversation, Stopped
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.shell_status import ShellStatus, ToolDetails, registration_time, shell_status
from ecoshell.agent.turn_setup import Question
from ecoshell.budget import Amount, Scope
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import BudgetChanged, CallMarked, CommandRan, Event, Notice
from ecoshell.images import MAX_IMAGES
from ecoshell.messages import Attachment, Call, Observation, visible_line
from ecoshell.models import ModelRow, StartingModel
from ecoshell.options import ApprovalMode
from ecoshell.secrecy import mask_secrets
from ecoshell.sessions import SessionStore
from ecoshell.tools.running import in_thread
from ecoshell.worker import warm_worker

if TYPE_CHECKING:  # loaded with the first slash command
    from ecoshell.agent.command_table import CommandTable, Completion, Printed
    from ecoshell.agent.context_report import ContextReport
    from ecoshell.agent.custom_commands import CustomCommands

READ_FILE = "read_file"
_TURN_MODULES = ("ecoshell.agent.callbacks", "ecoshell.agent.tool_graph")
"""Modules that turns load when they call tools or run tool graphs."""
_NOT_ASKED = "Nothing was asked, nothing was spent."


class Shell:
    """The open session, all other sessions, and the parts they share. Call `open` first."""

    def __init__(
        self,
        deps: Dependencies,
        *,
        store: SessionStore,
        ledger: Ledger,
        workspace: str,
        commands: "Callable[[], CommandTable[Shell]]",
        custom_commands: "Callable[[], CustomCommands]",
    ) -> None:
        self.deps = deps
        self.store = store
        self.ledger = ledger
        self.session = ""
        """The ID of the open session."""
        forget = (deps.workspace.undo.forget, deps.providers.forget_session)
        self.archive = Archive(
            store, ledger, forget=forget, current=lambda: self.session, workspace=workspace
        )
        self.workspace = workspace
        self._commands = commands
        self._custom_commands = custom_commands
        self._conversation: Conversation | None = None
        self._reading: asyncio.Task[None] | None = None
        self._in_order = asyncio.Lock()
        self.past: Sequence[Event] = ()
        """The events of the session before it was opened here, and the notice about its resumption."""
        self.resumed: Notice | None = None
        """The model, mode and workspace of a resumed session."""
        self.on_progress: Callable[[str], None] = lambda text: None
        """Shows the progress of a download; an empty text ends it."""
        self.on_event: Callable[[Event], None] = lambda event: None
        """Shows an event that happened outside a turn."""
        self._notes = set[asyncio.Task[None]]()
        deps.workspace.background.report = self._report
        self.first_caps: dict[Scope, Amount] = {}
        """Initial caps of the turn and the session, for scopes without a cap."""

    @property
    def conversation(self) -> Conversation:
        """The open session."""
        if self._conversation is None:
            raise StoreError("No session is open yet.", fix="Call Shell.open first.")
        return self._conversation

    async def open(self, session: str | None = None) -> None:
        """Start a session, or resume one by its ID or a unique prefix; raises UsageError and StoreError."""
        if session is None:
            opened = await asyncio.to_thread(
                self.store.create, workspace=self.workspace, model=self.deps.models.name
            )
        else:
            opened = await asyncio.to_thread(self.store.find, session)
        if self.read_only is None:
            capped_scopes = {
                cap.scope for cap in await asyncio.to_thread(self.ledger.own_caps, opened, 0)
            }
            for scope, cap in self.first_caps.items():
                if scope not in capped_scopes:
                    await asyncio.to_thread(self.ledger.set_cap, opened, scope, cap)
        if self._conversation is not None:
            await self._conversation.leave()
            await self._end_background()
        self.past, self.resumed = await asyncio.to_thread(self.store.history, opened), None
        self._conversation = await asyncio.to_thread(Conversation, self.deps, opened, self.past)
        self.session = opened

    async def restore_choices(self) -> None:
        """Restore the model, mode and roles that the session used last, if they are available."""
        models = self.deps.models
        last = await asyncio.to_thread(self.store.last_choices, self.session)
        self.deps.settings.advisor = last.advisor or self.deps.settings.advisor
        problems: list[str] = []
        if last.mode and (last.model, last.mode, last.roles) != (
            models.session_model,
            models.mode,
            models.roles,
        ):
            try:
                await models.change(model=last.model, mode=last.mode, roles=last.roles)
            except EcoshellError as error:
                problems.append(f"Its model {last.model} is unavailable: {error}")
        if last.workspace not in ("", self.workspace):
            problems.append(
                f"Its workspace was {last.workspace}; return to it with: ecoshell --resume {self.session}."
            )
        self.announce_resume(" ".join(problems), "Change them with /model, /mode and /role.")

    def announce_resume(self, problems: str, advice: str) -> None:
        """Add a notice with the model, mode and workspace of the resumed session."""
        models = self.deps.models
        players = models.playing(models.current.mode.name)
        summary = f"Session {self.session} resumed with {players} in mode {models.mode}, in {self.workspace}."
        self.resumed = Notice(" ".join(filter(None, (summary, problems, advice))))
        self.past = (*self.past, self.resumed)

    def _report(self, event: Event) -> None:
        """Add an event to the running turn, or record and show it between turns."""
        if not self.conversation.emit(event):
            self._notes.add(task := asyncio.create_task(self._note(event)))
            task.add_done_callback(self._notes.discard)

    async def _note(self, event: Event) -> None:
        with suppress(EcoshellError):  # the next question reports a store that cannot be written
            self.on_event(await self.conversation.note(event))

    @property
    def resume_hint(self) -> str:
        """How to resume the session later; empty if it is empty."""
        is_empty = self._conversation is None or self.conversation.turn == 0
        if is_empty:
            return ""
        return f"Session {self.session} is kept. Resume it with: ecoshell --resume {self.session}"

    @property
    def read_only(self) -> StoreError | None:
        """Why no question can be asked, because its costs or events could not be stored; None if one can."""
        try:
            self.ledger.require_writable(_NOT_ASKED)
            self.store.require_writable(_NOT_ASKED)
        except StoreError as error:
            return error
        return None

    async def warm(self) -> None:
        """Start to load models and worker for the next question; returns at once."""
        if self.read_only is None:
            await in_thread(warm_worker)
            self.deps.providers.connect_unknown()
            for model in self.deps.models.current.models:
                await model.warm()

    def read_ahead(self) -> None:
        """While the user types a question, load what it needs, and let local models read the history."""
        if self.read_only is None and not self.conversation.busy:
            self._reading = asyncio.create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        for module in _TURN_MODULES:
            await asyncio.to_thread(import_module, module)
        with suppress(EcoshellError):  # the question will report it
            await self.conversation.setup.read_ahead()

    async def ask(
        self, question: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncGenerator[Event]:
        """Run one turn; see Conversation.ask. Files and server resources mentioned with `@` are attached.

        A line with `/task` goes to a subagent; one with a custom command asks its question. The stream ends early if
        another session is opened. Raises StoreError if the session cannot be written.
        """
        if (unwritable := self.read_only) is not None:
            raise unwritable
        if self._reading is not None:
            self._reading.cancel()
        if not question.strip():
            raise UsageError("The question is empty.", fix="Type a question or a task.")
        conversation = self.conversation
        conversation.require_free()
        async with AsyncExitStack() as stack:
            try:
                complete = Question(question, tuple(attachments))
                if question.lstrip().startswith("/"):
                    complete = await conversation.alone(self._expand(complete, stack))
                complete = await self._attached(complete, conversation)
            except Stopped:
                return
            if conversation is not self._conversation:
                return
            self._require_vision(complete.attachments)
            turn = await stack.enter_async_context(aclosing(conversation.ask(complete)))
            async for event in turn:
                if conversation is not self._conversation:
                    return
                yield event

    async def _expand(self, question: Question, stack: AsyncExitStack) -> Question:
        """What a line with `/task` delegates, or the question of a custom command; raises EcoshellError.

        The choices of a custom command hold until `stack` closes.
        """
        from ecoshell.agent.task_command import delegation_of

        names = {name for name, _, _ in await asyncio.to_thread(self.deps.agents().rows)}
        if (delegation := delegation_of(question.text, names)) is not None:
            return replace(question, task=delegation)
        expansion = await asyncio.to_thread(lambda: self._custom_commands().expand(question.text))
        if expansion is None:
            return question
        from ecoshell.agent.custom_commands import applied

        session_model = self.deps.models.session_model
        await stack.enter_async_context(applied(expansion.command, self.deps))
        source, cap = expansion.command.definition, expansion.command.cap
        return replace(
            question,
            text=expansion.question,
            caps=() if cap is None else (cap,),
            session_model=session_model,
            source=(source.file, source.text) if source.of_project else None,
        )

    async def _attached(self, question: Question, conversation: Conversation) -> Question:
        """The question with the resources and files that it mentions."""
        text, attachments, later_notices = question.text, question.attachments, list[str]()
        if mentions := self.deps.providers.mentions(text):
            resources = await conversation.alone(self.deps.providers.attach(text))
            attachments = (*resources.attachments, *attachments)
            later_notices = resources.notices
            for match in mentions:  # blanked, so that they are not looked up as files
                text = f"{text[: match.start()]}{' ' * len(match[0])}{text[match.end() :]}"
        may_read = (
            self._may_read() if self.deps.by_program and READ_FILE in self.deps.catalog else None
        )
        files = await self.deps.workspace.mentioned(text, attachments, may_read)
        notices = (*question.notices, *files.notices, *later_notices)
        return replace(question, attachments=(*files.attachments, *attachments), notices=notices)

    def _may_read(self) -> Callable[[str], bool]:
        """Returns a check whether the rules let the agent read a path without approval."""
        tool, rules = self.deps.catalog.tool(READ_FILE), self.deps.approvals.rules
        return lambda path: rules.judge(Call(READ_FILE, {"path": path}), tool).verdict == "allow"

    def _require_vision(self, attachments: Sequence[Attachment]) -> None:
        """Raise UsageError for images that the model cannot see, and for too many."""
        images = [attachment.image for attachment in attachments if attachment.image is not None]
        if len(images) > MAX_IMAGES:
            raise UsageError(
                f"The question has {len(images)} images; the limit is {MAX_IMAGES}.",
                kept=_NOT_ASKED,
                fix="Ask about fewer images.",
            )
        traits = self.deps.models.current.model.traits
        if images and traits.vision is False:
            setting = f', or set [models."{traits.name}"] vision = true' if not traits.local else ""
            raise UsageError(
                f"{traits.name} cannot see images.",
                kept=_NOT_ASKED,
                fix=f"Choose a model with vision with /model or --model{setting}.",
            )

    async def _end_background(self) -> None:
        """Stop the background commands of the session, and record their ends."""
        await self.deps.workspace.background.aclose()
        await asyncio.sleep(0)  # the ends are reported by callbacks
        if self._notes:
            await asyncio.wait(self._notes)

    async def run(self, command: str) -> CommandRan:
        """Run a command that the user typed in the workspace; the next question includes its output.

        `stop` stops it. Raises UsageError while a turn runs and if the shell is read-only.
        """
        if (unwritable := self.read_only) is not None:
            raise unwritable
        if self.deps.approvals.rules.read_only:
            raise UsageError(
                "Commands are disabled: the shell is read-only.",
                fix="Start it without --read-only.",
            )
        if not command.strip():
            raise UsageError("The command is empty.", fix="For example: !git status")
        conversation, started = self.conversation, time.monotonic()
        try:
            result = await conversation.alone(self.deps.workspace.run(command))
        except Stopped:
            result = Observation("[stopped]", ok=False)
        seconds = time.monotonic() - started
        return await conversation.note(
            CommandRan(command, result.text, result.ok, result.truncated, seconds)
        )

    async def files(self) -> list[str]:
        """Files and folders of the workspace; folders end in a slash."""
        return await self.deps.workspace.files()

    async def mentionable(self) -> list[str]:
        """Everything that a question can mention with `@`: files, and resources and templates of servers."""
        resources = [
            f"{server.name}:{address}"
            for server in self.deps.providers.servers.values()
            for address in (*server.lists.resources, *server.lists.templates)
        ]
        return [*await self.files(), *resources]

    async def stop(self) -> None:
        """Stop the running turn or command; a turn's stream still ends with TurnFinished."""
        await self.conversation.stop()

    async def command(self, line: str) -> "Printed":
        """Run a slash command after all earlier ones; raises EcoshellError."""
        from ecoshell.agent.command_table import Printed

        async with self._in_order:
            if (question := await self.deps.providers.expand_prompt(line)) is not None:
                return Printed("", "ask", question)
            if await asyncio.to_thread(lambda: self._custom_commands().expand(line)) is not None:
                return Printed("", "ask", line.strip())
            return mask_secrets(await self._commands().run(self, line))

    def complete(self, text: str) -> "list[Completion]":
        """Completions of a line that starts with a slash."""
        from ecoshell.agent.command_table import Completion, menu_text

        prompts = [
            Completion(name, visible_line(prompt.description))
            for name, prompt in self.deps.providers.prompt_names()
            if name.startswith(text)
        ]
        custom = [
            Completion(f"/{name}", menu_text(command.about, command.usage))
            for name, command in self._custom_commands().current().items()
            if f"/{name}".startswith(text.lower())
        ]
        return [*self._commands().complete(self, text), *custom, *prompts]

    async def values(self, text: str) -> "list[Completion]":
        """Completions of the arguments of a server's prompt, from the server."""
        from ecoshell.agent.command_table import Completion

        return [Completion(line, "") for line in await self.deps.providers.values(text)]

    def overview(self) -> list[tuple[str, str]]:
        """The usage and description of each slash command."""
        custom = self._custom_commands().current().items()
        rows = [(f"/{name} {command.usage}".strip(), command.about) for name, command in custom]
        return [*self._commands().overview(), *rows]

    async def mark(self, turn: int, call: str, name: str, helpful: bool | None) -> Sequence[Event]:
        """Store the user's mark on a call's result; None removes it. Raises StoreError.

        Returns the events: the mark, and the new score of the call's tool graph.
        """
        marked = await self.conversation.note(CallMarked(turn, call, name, helpful))
        await asyncio.to_thread(
            self.deps.experience.records.mark, self.session, turn, call, helpful
        )
        return (marked, *await self.conversation.score(turn))

    @property
    def approval_mode(self) -> ApprovalMode:
        """What runs without asking."""
        return self.deps.settings.approval_mode

    def set_approval_mode(self, mode: ApprovalMode) -> ApprovalMode:
        """Set what runs without asking, also for the running turn."""
        self.deps.settings.approval_mode = mode
        return mode

    async def accept_plan(self, text: str = "", *, edits: bool = False) -> str:
        """Leave plan mode and return the question that carries out the last plan, or `text` in its place.

        `edits` accepts edits without asking. Under a cap in dollars, the turn is capped at the upper end of the plan's
        quote, or at what a step and the answer reserve. Raises UsageError without a plan and while a turn runs.
        """
        from ecoshell.agent.plan_mode import question_for, turn_cap
        from ecoshell.agent.spending import proposed_bounds

        conversation, memory = self.conversation, self.conversation.memory
        conversation.require_free()
        question, quoted = question_for(memory.plan, text), memory.plan_quote
        bounds = await asyncio.to_thread(
            proposed_bounds, self.deps.models.current.mode, conversation.ahead
        )
        caps = await self.deps.budget.caps()
        cap = turn_cap(quoted, sum(bound.nano or 0 for bound in bounds))
        self.deps.settings.approval_mode = "edits" if edits else "ask"
        is_capped = cap is not None and any(cap.unit == "usd" for cap in caps)
        conversation.accepted = quoted
        conversation.accepted_caps = (cap,) if cap is not None and is_capped else ()
        return question

    async def set_cap(self, scope: Scope, cap: Amount | None) -> None:
        """Set the cap of a scope; None removes it."""
        await self.deps.budget.set_cap(scope, cap)
        await self.conversation.note(BudgetChanged(await self.deps.budget.caps()))

    async def tool_details(self, name: str) -> ToolDetails:
        """Details of a known tool or skill; raises UsageError."""
        conversation, store, session = self.conversation, self.store, self.session
        schema, registered = conversation.known(name), conversation.memory.library.tools.get(name)
        measure, presentation = self.deps.models.current.measure, conversation.memory.presentation
        catalog, since, skill = self.deps.catalog, None, ""
        if name in catalog:
            tokens, exact = await asyncio.to_thread(measure, schema, presentation)
        else:
            skill = await asyncio.to_thread(catalog.skills[name].text)
            tokens, exact = await asyncio.to_thread(self.deps.models.current.sizes_at_hand, [skill])
            tokens = tokens[0]
        if registered is not None:
            since = await asyncio.to_thread(lambda: registration_time(name, store.events(session)))
        return ToolDetails(
            schema=schema,
            effects=() if skill else tuple(sorted(catalog.tool(name).effects)),
            price_nano=0 if skill else catalog.tool(name).price_nano,
            tokens=tokens,
            exact=exact,
            by="" if registered is None else registered.by,
            since=since,
            why=conversation.setup.decision.why(name)
            if conversation.setup.decision and not skill
            else "",
            skill=skill,
        )

    async def context_report(self) -> "ContextReport":
        """The use of the context of the model that takes the next step."""
        return await self.conversation.context_report()

    async def models(self) -> Sequence[ModelRow]:
        """All available models."""
        return await asyncio.to_thread(
            lambda: self.deps.models.factory.models(self.ledger.barred())
        )

    async def store_key(self, provider: str, key: str) -> None:
        """Use a provider's key from now on and store it in the keyring; raises UsageError and StoreError."""
        await asyncio.to_thread(self.deps.models.factory.store_key, provider, key)

    async def starting_models(self) -> Sequence[StartingModel]:
        """The models that the first run offers, the best one first."""
        return await asyncio.to_thread(self.deps.models.factory.starting_models)

    async def pull(self, name: str) -> str:
        """Download a model and return the name to select it by; `stop` ends it, and what has arrived is kept.

        Raises UsageError while a turn runs, Stopped, ModelMissing, ModelUnavailable and ModelBroken.
        """
        try:
            return await self.conversation.alone(
                self.deps.models.factory.pull(name, self.on_progress)
            )
        finally:
            self.on_progress("")

    async def introduction(self) -> str:
        """Which model answers and, for the demonstration model, how to get a better one."""
        return await asyncio.to_thread(self.deps.models.factory.introduction, self.deps.models.name)

    async def status(self) -> ShellStatus:
        """The status that status lines and side panels show."""
        status = await asyncio.to_thread(shell_status, self)
        return replace(status, planned=await self.conversation.planned())

    async def flush(self) -> StoreError | None:
        """Retry failed writes; returns the error if one still fails."""
        try:
            await self.deps.log.flush()
        except StoreError as failure:
            return failure
        return None

    async def aclose(self) -> None:
        """Stop what runs, retry failed writes, release the models and close the files.

        Raises StoreError at the end if events of the session are lost.
        """
        unwritten = None
        if self._reading is not None:
            self._reading.cancel()
        if self._conversation is not None:
            await self._conversation.leave()
            await self._end_background()
            unwritten = await self.flush()
            await asyncio.to_thread(self.deps.experience.keep)
        await self.deps.models.aclose()
        await self.deps.providers.aclose()
        await asyncio.to_thread(self.ledger.close)
        await asyncio.to_thread(self.store.close)
        await asyncio.to_thread(self.deps.experience.records.close)
        if unwritten is not None:
            raise StoreError(
                f"The last events could not be written and are lost: {unwritten.message}",
                kept=f"Earlier events of session {self.session} are kept.",
                fix=unwritten.fix,
            ) from unwritten
