"""The shell that every interface uses: the open session, and the way to others."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from ecoshell.agent.archive import Archive
from ecoshell.agent.conversation import Conversation, Stopped
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.shell_status import ShellStatus, ToolDetails, shell_status
from ecoshell.agent.turn_setup import Question
from ecoshell.budget import Amount, CapState, Scope, amount_text
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import BudgetChanged, CallMarked, CommandRan, Event, Notice
from ecoshell.images import MAX_IMAGES
from ecoshell.messages import Attachment, Call, Observation, visible_line
from ecoshell.models import ModelRow, StartingModel
from ecoshell.options import ApprovalMode
from ecoshell.secrecy import mask_secrets
from ecoshell.sessions import SessionLock, SessionStore
from ecoshell.tools.running import in_thread
from ecoshell.worker import warm_worker

if TYPE_CHECKING:  # loaded with the first slash command
    from ecoshell.agent.command_table import CommandTable, Completion, Printed
    from ecoshell.agent.context_report import ContextReport
    from ecoshell.agent.custom_commands import CustomCommand, CustomCommands

READ_FILE = "read_file"
_TURN_MODULES = ("ecoshell.agent.callbacks", "ecoshell.agent.tool_graph")
"""Modules that turns load when they call tools or run tool graphs."""
_NOT_ASKED = "Nothing was asked, nothing was spent."
_OPEN_ELSEWHERE = "Close it there first, or start a new session."


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
        forget = (deps.workspace.undo.forget, deps.providers.forget_session)
        self.archive = Archive(
            store, ledger, forget=forget, current=lambda: self.session, workspace=workspace
        )
        self.workspace = workspace
        self._commands = commands
        self._custom_commands = custom_commands
        self._conversation: Conversation | None = None
        self._lock: SessionLock | None = None
        """Of the open session; None for display."""
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
        self.caps_to_show: Callable[[], Awaitable[tuple[CapState, ...]]] | None = None
        """Returns the caps that `status` has, in a shell that only displays a session; None for the stored ones."""

    @property
    def conversation(self) -> Conversation:
        if self._conversation is None:
            raise StoreError("No session is open yet.", fix="Call Shell.open first.")
        return self._conversation

    async def open(self, session: str | None = None, *, for_display: bool = False) -> None:
        """Start a session, or resume one by its ID or a unique prefix; raises UsageError and StoreError.

        A session that another shell has open is refused, except `for_display`, which never writes it.
        """
        if session is None:
            opened = await asyncio.to_thread(
                self.store.create, workspace=self.workspace, model=self.deps.models.name
            )
        else:
            opened = await asyncio.to_thread(self.store.find, session)
        lock = self._lock if opened == self.session else None
        if lock is None and not for_display:
            lock = await asyncio.to_thread(self.store.lock, opened, fix=_OPEN_ELSEWHERE)
        try:
            await self._enter(opened)
        except BaseException:
            if lock is not None and lock is not self._lock:
                lock.release()
            raise
        if self._lock is not None and self._lock is not lock:
            self._lock.release()
        self._lock = lock

    async def _enter(self, opened: str) -> None:
        """Leave the open session, if any, and continue with this one."""
        if self.read_only is None:
            own_caps = await asyncio.to_thread(self.ledger.own_caps, opened, 0)
            capped_scopes = {cap.scope for cap in own_caps}
            for scope, cap in self.first_caps.items():
                if scope not in capped_scopes:
                    await asyncio.to_thread(self.ledger.set_cap, opened, scope, cap)
        if self._conversation is not None:
            for event in await self._conversation.leave():
                self.on_event(event)
            await self._end_background()
        self.past, self.resumed = await asyncio.to_thread(self.store.history, opened), None
        self._conversation = await asyncio.to_thread(Conversation, self.deps, opened, self.past)
        self.deps.workspace.background.count = len(self._conversation.memory.background)
        self.session = opened

    async def restore_choices(self) -> None:
        """Restore the model, mode, roles and effort that the session used last, if they are available."""
        models, settings = self.deps.models, self.deps.settings
        last = await asyncio.to_thread(self.store.last_choices, self.session)
        settings.effort = last.effort or settings.effort
        problems: list[str] = []
        if last.advisor:
            try:
                await asyncio.to_thread(models.lend, last.advisor)
                settings.advisor = last.advisor
            except EcoshellError as error:
                problems.append(f"Its advisor {last.advisor} is unavailable: {error}")
        present = (models.session_model, models.mode, models.roles)
        if last.mode and (last.model, last.mode, last.roles) != present:
            try:
                await models.change(model=last.model, mode=last.mode, roles=last.roles)
            except EcoshellError as error:
                problems.append(f"Its model {last.model} is unavailable: {error}")
        if last.workspace not in ("", self.workspace):
            fix = f"return to it with: ecoshell --resume {self.session}"
            problems.append(f"Its workspace was {last.workspace}; {fix}.")
        await self.announce_resume(
            " ".join(problems), "Change them with /model, /mode, /role and /effort."
        )

    async def announce_resume(self, problems: str, advice: str) -> None:
        """Add a notice with the model, mode, effort and workspace of the resumed session, and its unknown costs."""
        models, effort = self.deps.models, self.deps.settings.effort
        players = models.playing(models.current.mode.name)
        how = f"mode {models.mode}" + ("" if effort == "auto" else f", effort {effort}")
        summary = f"Session {self.session} resumed with {players} in {how}, in {self.workspace}."
        unknown = await asyncio.to_thread(self._unknown_costs)
        self.resumed = Notice(" ".join(filter(None, (summary, problems, unknown, advice))))
        self.past = (*self.past, self.resumed)

    def _unknown_costs(self) -> str:
        """What counts in this session for stopped and killed calls; empty if nothing. Reads the disk."""
        from ecoshell.agent.reconciling import counted_nano

        calls = self.ledger.unreconciled()
        nano = sum(counted_nano(call) or 0 for call in calls if call.session == self.session)
        if not nano:
            return ""
        amount = amount_text(nano, "usd")
        return f"Calls of unknown cost count with all they reserved, {amount}; /cost reconcile sets their cost."

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
        if self._conversation is None or self.conversation.turn == 0:
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
            await self._require_vision(complete)
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
        expansion = await self.expansion(question.text)
        if expansion is None:
            return question
        from ecoshell.agent.custom_commands import applied

        command, text = expansion
        session_model, effort = self.deps.models.session_model, self.deps.settings.effort
        await stack.enter_async_context(applied(command, self.deps))
        source = command.definition
        return replace(
            question,
            text=text,
            line=question.text,
            caps=() if command.cap is None else (command.cap,),
            session_model=session_model,
            effort=effort,
            source=(source.file, source.text) if source.of_project else None,
        )

    async def expansion(self, line: str) -> "tuple[CustomCommand, str] | None":
        """The custom command and the question of a line; None for other lines. Raises UsageError for a faulty file."""
        return await asyncio.to_thread(lambda: self._custom_commands().expand(line))

    async def require_question(self, line: str) -> None:
        """Raise UsageError for a line that is a command of the chat, for callers without a chat."""
        if line.lstrip().startswith("/"):
            from ecoshell.agent.question_line import require_question

            custom = await asyncio.to_thread(lambda: self._custom_commands().current())
            require_question(line, custom)

    async def _attached(self, question: Question, conversation: Conversation) -> Question:
        """The question with the resources and files that it mentions."""
        text, attachments, later_notices = question.text, question.attachments, list[str]()
        if mentions := self.deps.providers.mentions(text):
            resources = await conversation.alone(self.deps.providers.attach(text))
            attachments = (*resources.attachments, *attachments)
            later_notices = resources.notices
            for match in mentions:  # blanked, so that they are not looked up as files
                text = f"{text[: match.start()]}{' ' * len(match[0])}{text[match.end() :]}"
        by_program = self.deps.by_program and READ_FILE in self.deps.catalog
        may_read = self._may_read() if by_program else None
        files = await self.deps.workspace.mentioned(text, attachments, may_read)
        notices = (*question.notices, *files.notices, *later_notices)
        return replace(question, attachments=(*files.attachments, *attachments), notices=notices)

    def _may_read(self) -> Callable[[str], bool]:
        """Returns a check whether the rules let the agent read a path without approval."""
        tool, rules = self.deps.catalog.tool(READ_FILE), self.deps.approvals.rules
        return lambda path: rules.judge(Call(READ_FILE, {"path": path}), tool).verdict == "allow"

    async def _require_vision(self, question: Question) -> None:
        """Raise UsageError for images that the model cannot see, and for too many."""
        images = [file.image for file in question.attachments if file.image is not None]
        if len(images) > MAX_IMAGES:
            reason = f"The question has {len(images)} images; the limit is {MAX_IMAGES}."
            raise UsageError(reason, kept=_NOT_ASKED, fix="Ask about fewer images.")
        if not images:
            return
        models, choice = self.deps.models, "with /model or --model"
        if question.task is not None:
            from ecoshell.agent.subagents import planned

            models, _ = await asyncio.to_thread(planned, question.task, self.deps)
            choice = "for the agent, or with [agent] task_model"
        traits = models.current.model.traits
        if traits.vision is False:
            setting = f', or set [models."{traits.name}"] vision = true' if not traits.local else ""
            fix = f"Choose a model with vision {choice}{setting}."
            raise UsageError(f"{traits.name} cannot see images.", kept=_NOT_ASKED, fix=fix)

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
            fix = "Start it without --read-only."
            raise UsageError("Commands are disabled: the shell is read-only.", fix=fix)
        if not command.strip():
            raise UsageError("The command is empty.", fix="For example: !git status")
        conversation, started = self.conversation, time.monotonic()
        try:
            result = await conversation.alone(self.deps.workspace.run(command))
        except Stopped:
            result = Observation("[stopped]", ok=False)
        seconds = time.monotonic() - started
        event = CommandRan(command, result.text, result.ok, result.truncated, seconds)
        return await conversation.note(event)

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
            if await self.expansion(line) is not None:
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
        records = self.deps.experience.records
        await asyncio.to_thread(records.mark, self.session, turn, call, helpful)
        return (marked, *await self.conversation.score(turn))

    @property
    def approval_mode(self) -> ApprovalMode:
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
        mode = self.deps.models.current.mode
        bounds = await asyncio.to_thread(proposed_bounds, mode, conversation.ahead)
        is_capped = any(cap.unit == "usd" for cap in await self.deps.budget.caps())
        cap = turn_cap(quoted, sum(bound.nano or 0 for bound in bounds))
        self.deps.settings.approval_mode = "edits" if edits else "ask"
        conversation.accepted = quoted
        conversation.accepted_caps = (cap,) if cap is not None and is_capped else ()
        return question

    async def set_cap(self, scope: Scope, cap: Amount | None) -> None:
        """Set the cap of a scope; None removes it."""
        await self.deps.budget.set_cap(scope, cap)
        await self.conversation.note(BudgetChanged(await self.deps.budget.caps()))

    async def tool_details(self, name: str) -> ToolDetails:
        """Details of a known tool or skill; raises UsageError."""
        conversation, catalog = self.conversation, self.deps.catalog
        schema, registered = conversation.known(name), conversation.memory.library.tools.get(name)
        tool = catalog.tool(name) if name in catalog else None
        skill = "" if tool else await asyncio.to_thread(catalog.skills[name].text)
        return ToolDetails(
            schema,
            tuple(sorted(tool.effects)) if tool else (),
            tool.price_nano if tool else 0,
            *await asyncio.to_thread(conversation.setup.measure, schema, skill),
            by="" if registered is None else registered.by,
            why=self.why_loaded(name) if tool else "",
            skill=skill,
        )

    def why_loaded(self, name: str) -> str:
        """Why a tool's schema is loaded or not; empty before the first turn."""
        library, decision = self.conversation.memory.library, self.conversation.setup.decision
        tool = library.tools.get(name)
        if tool is None and name in library.removed:
            return f"You unregistered {name}, so no turn begins with it."
        if tool is not None and tool.by != "upfront":
            by = {"user": "you", "first_call": "its first call"}.get(tool.by, "the agent")
            return f"{name} was registered by {by}."
        return "" if decision is None else decision.why(name)

    async def context_report(self) -> "ContextReport":
        """The use of the context of the model that takes the next step."""
        return await self.conversation.context_report()

    @property
    def model_name(self) -> str:
        """The name of the model that leads."""
        return self.deps.models.name

    async def models(self) -> Sequence[ModelRow]:
        factory = self.deps.models.factory
        return await asyncio.to_thread(lambda: factory.models(self.ledger.barred()))

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
        download = self.deps.models.factory.pull(name, self.on_progress)
        try:
            return await self.conversation.alone(download)
        finally:
            self.on_progress("")

    async def introduction(self) -> str:
        """Which model answers and, for the demonstration model, how to get a better one."""
        return await asyncio.to_thread(self.deps.models.factory.introduction, self.deps.models.name)

    async def status(self) -> ShellStatus:
        """The status that status lines and side panels show."""
        status = await asyncio.to_thread(shell_status, self)
        if self.caps_to_show is not None:
            status = replace(status, caps=await self.caps_to_show())
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
        unwritten, last_events = None, ()
        if self._reading is not None:
            self._reading.cancel()
        if self._conversation is not None:
            last_events = await self._conversation.leave()
            await self._end_background()
            unwritten = await self.flush()
        if self._lock is not None:
            self._lock.release()
        await self.deps.models.aclose()
        await self.deps.providers.aclose()
        await asyncio.to_thread(self.ledger.close)
        await asyncio.to_thread(self.store.close)
        await asyncio.to_thread(self.deps.experience.records.close)
        for event in last_events:
            self.on_event(event)
        if unwritten is not None:
            raise StoreError(
                f"The last events could not be written and are lost: {unwritten.message}",
                kept=f"Earlier events of session {self.session} are kept.",
                fix=unwritten.fix,
            ) from unwritten
