"""The chat screen: its widgets, keys and commands, and the area where the user answers questions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shutil import get_terminal_size
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import TextArea

from ecoshell import __version__
from ecoshell.errors import EcoshellError, ModelMissing, UsageError
from ecoshell.options import EFFORTS, EMBEDDED
from ecoshell.paths import Paths
from ecoshell.tui.keys import Hint, KeyLine
from ecoshell.tui.memory import release_free_memory
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import Draft, DraftFile, History
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.screens.welcome import is_first_start, welcome_block
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.layout import SideLayout
from ecoshell.tui.themes import chosen_setting
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:  # none of it is needed for the first frame
    from ecoshell.agent import Approval, CostChoice, LimitChoice, QuoteChoice, Trust
    from ecoshell.agent.command_table import CommandTable
    from ecoshell.agent.shell import Shell
    from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, Quote, TrustWanted
    from ecoshell.models import StartingModel
    from ecoshell.tui.app import ChatApp
    from ecoshell.tui.controller import ChatController, TranscriptController
    from ecoshell.tui.questions import Question
    from ecoshell.tui.screens.start_question import StartQuestion
    from ecoshell.tui.side.panel import ToolRequested

T = TypeVar("T")

_QUIT_COMMANDS = frozenset({"/quit", "/exit"})
_MODEL_COMMAND = "/model "
_PULL = "pull "
_PULL_COMMAND = f"{_MODEL_COMMAND}{_PULL}"
_BUILD_SECONDS = 1.0
"""Time between two looks at the progress of a compilation."""
_WIDE = 100
"""Width from which panels are shown next to the transcript."""
_TALL = 8
"""Height below which only the transcript and the prompt are shown."""


def _screen_commands() -> "CommandTable[ChatApp]":
    """The commands that the screen handles itself."""
    from ecoshell.tui.commands import CHAT_COMMANDS

    return CHAT_COMMANDS


_HIDDEN = (
    ("f5", "run('/sessions')", "sessions", "resume a session"),
    ("f6", "mode", "mode", "one model, or a planner, a caller and a summarizer"),
    ("f7", "run('/model')", "models", "change the model"),
    ("f8", "run('/settings')", "settings", "view and change the settings"),
    ("alt+w", "why", "why", "why the plan allows a tool"),
    ("alt+e", "effort", "effort", "next level of reasoning effort"),
    ("alt+t", "todo", "tasks", "fold or open the task list"),
    ("f9", "open", "panels", "hide or show the panels"),
    ("ctrl+f", "app.transcript('search')", "search", "search the transcript"),
    (
        "ctrl+o",
        "app.transcript('fold(True)')",
        "open the last fold",
        "open or fold the newest long output",
    ),
)
"""Keys listed in the palette and the help but not in the footer; they also work in the prompt."""


class ChatScreen(Screen[None]):
    """The main screen; input sent before the shell is ready waits for it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]  # noqa: RUF012 - as declared by Textual
    VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL, "-tall")]  # noqa: RUF012 - as declared by Textual
    AUTO_FOCUS = "Prompt"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop"),
        Binding("shift+tab", "back", "ask, plan mode, accept edits", show=False),
        Binding("f1", "help", "help"),
        Binding("f2", "open('tools')", "tools"),
        Binding("f3", "open('plan')", "plan"),
        Binding("f4", "open('cost')", "cost"),
        *(
            Binding(key, act, name, show=False, tooltip=words, priority=True)
            for key, act, name, words in _HIDDEN
        ),
    ]
    HELP = "Type below. The conversation is shown above, plan and costs in the panels."
    app: "ChatApp"

    def __init__(self, paths: Paths, model: str) -> None:
        """`model` is the chosen model; empty if the user has not chosen one."""
        columns, lines = get_terminal_size()
        width = "-wide" if columns >= _WIDE else "-narrow"
        height = "-tall" if lines >= _TALL else "-short"
        super().__init__(classes=f"{width} {height}")  # avoids a second styling by Textual
        self._paths = paths
        self._model = model or "the model"
        self._chooses_model = not model
        self._failed = self._first = False
        self._stores_choice = False
        """Whether the next model chosen is that of the first start, which is stored for later chats."""
        self._view: TranscriptController | None = None
        self.controller: ChatController | None = None
        self.leaving = False
        """Whether the app is quitting; queued input is kept and not sent."""

    def compose(self) -> ComposeResult:
        yield TitleBar(f"opening {self._model} …")
        yield SideLayout(Transcript())
        yield QuestionArea()
        yield PromptBar(History(self._paths.history_file), DraftFile(self._paths.draft_file))
        yield KeyLine(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._first = is_first_start(self._paths)
        self.query_one(Transcript).column.add(welcome_block(__version__))
        self.query_one(Prompt).send = self._typed
        show_news = self.query_one(PromptBar).show_news
        self.watch(self.query_one(Transcript), "has_news", show_news, init=False)
        self.watch(self.query_one(QuestionArea), "asking", self._show_asking, init=False)

    @property
    def view(self) -> "TranscriptController":
        """The controller of the widgets."""
        if self._view is None:
            from ecoshell.tui.controller import TranscriptController

            title, transcript = self.query_one(TitleBar), self.query_one(Transcript)
            body, bar = self.query_one(SideLayout), self.query_one(PromptBar)
            self._view = TranscriptController(title, transcript, body, bar)
        return self._view

    def _show_asking(self, asking: bool) -> None:
        self.view.set_asking(asking)

    @property
    def shell(self) -> "Shell | None":
        return self.controller.shell if self.controller is not None else None

    async def opened(self, shell: "Shell") -> None:
        """Adopt the shell: show its session, and send the waiting input."""
        from ecoshell.tui.controller import ChatController

        await self.query_one(SideLayout).mount_panels()
        self.query_one(Transcript).column.drop()
        controller, prompt = ChatController(shell, self.view), self.query_one(Prompt)
        await controller.load()
        prompt.completer = lambda text: [
            *shell.complete(text),
            *_screen_commands().complete(self.app, text),
        ]
        prompt.values, prompt.mentions.files = shell.values, shell.mentionable
        self.run_worker(controller.refresh_after_events())
        self.run_worker(self._introduce(controller))
        self.controller = controller
        self.warm()
        bar = self.query_one(PromptBar)
        waiting, bar.waiting = bar.waiting, None
        if waiting is not None:
            self._send(waiting)

    async def _introduce(self, controller: "ChatController") -> None:
        """Introduce the model; at the first start, let the user choose one, and suggest requests."""
        first = self._first and not controller.shell.past and self._chooses_model
        offers = await controller.starting_models() if first else ()
        if len(offers) > 1 and not controller.busy:
            self._stores_choice = True
            chosen = await self._choose(offers)
            if chosen is not None:
                await self._use(controller, chosen)
            else:
                self._stores_choice = False
        await controller.introduce(first=self._first)
        await asyncio.to_thread(release_free_memory)

    async def choose_another_model(self) -> bool:
        """Wait while llama.cpp compiles and, if no model was chosen, let the user choose one that does not need it.

        Returns whether the shell can be opened now; raises ModelMissing if llama.cpp could not be installed.
        """
        from ecoshell.assembly.first_run import models_without_llama
        from ecoshell.models.local_build import failed_build

        offers = await asyncio.to_thread(models_without_llama) if self._chooses_model else ()
        ways = [self._wait_for_llama(), self._choose_without_llama(offers)]
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            for finished in asyncio.as_completed(tasks):
                if await finished:
                    return True
        finally:
            for task in tasks:
                task.cancel()
        if (build := await asyncio.to_thread(failed_build)) is not None:
            raise ModelMissing(f"{build.words}.", fix=build.fix)
        return False

    async def _choose_without_llama(self, offers: "Sequence[StartingModel]") -> bool:
        """Let the user choose the model to open the shell with; return whether one was chosen."""
        chosen = await self._choose(offers) if offers else None
        if chosen is None:
            return False
        self.app.options = replace(self.app.options, model=chosen.name)
        await self._store_model(chosen.name)
        return True

    async def _choose(self, offers: "Sequence[StartingModel]") -> "StartingModel | None":
        from ecoshell.tui.screens.start_question import StartQuestion

        return await self.query_one(QuestionArea).ask(StartQuestion(offers))

    async def _wait_for_llama(self) -> bool:
        """Show the progress of a running compilation; return whether there was one, and it succeeded."""
        from ecoshell.models.local_build import current_build

        build = await asyncio.to_thread(current_build)
        if build is None:
            return False
        while build is not None:
            self.view.title.state = build.words
            if not build.running:
                return False
            await asyncio.sleep(_BUILD_SECONDS)
            build = await asyncio.to_thread(current_build)
        self.view.title.state = f"opening {self._model} …"
        return True

    def _end_choice(self) -> None:
        """Close the question of the first start: a model has been chosen in another way."""
        self._stores_choice = False
        if (question := self._start_question) is not None:
            question.resolve(None)

    @property
    def _opens_demo(self) -> bool:
        """Whether later chats open the demo model."""
        return chosen_setting(self.app.paths, "model", EMBEDDED) == EMBEDDED

    async def _store_model(self, name: str) -> None:
        """Store the model of later chats in the settings."""
        from ecoshell.settings.edit import write_settings

        file = self.app.paths.settings_file
        try:
            await asyncio.to_thread(write_settings, file, {("model",): name})
        except EcoshellError as error:
            self.view.show_result("/model", error)

    async def _use(self, controller: "ChatController", offer: "StartingModel") -> None:
        """Change to a model of the first run, after its download if it needs one; during a turn, after the turn."""
        line = f"{_MODEL_COMMAND}{offer.name}"
        if offer.source == "download":
            line = f"{_PULL_COMMAND}{offer.name.removeprefix('hf:')}"
        if controller.busy:
            bar = self.query_one(PromptBar)
            bar.queue = (Draft(line), *bar.queue)
        else:
            await self._carry_out(controller, line)
            self._send_queued()

    def failed(self, error: Exception, kept: str = "") -> None:
        """Show why the shell could not be opened, and return waiting input to the prompt."""
        self.view.show_failure(error, kept)
        self._failed = True
        bar = self.query_one(PromptBar)
        self._put_back(bar.waiting)
        bar.waiting = None

    @on(TextArea.Changed)
    def warm(self) -> None:
        """Load the model once the user starts typing; an idle chat needs no memory for it."""
        controller = self.controller
        if controller is not None and not controller.warmed and self.query_one(Prompt).text:
            controller.warmed = True
            self.run_worker(controller.warm())

    # -- input

    def begin(self, text: str) -> None:
        prompt = self.query_one(Prompt)
        prompt.put(Draft(text))
        prompt.focus()

    def _typed(self, draft: Draft) -> None:
        """Send or queue the input, or hint why it stays in the prompt."""
        bar, text = self.query_one(PromptBar), draft.text.strip()
        if text:
            self.query_one(Transcript).action_end()
        if not text:
            bar.hint("Nothing to send: ask a question, or type / for commands.")
        elif text in _QUIT_COMMANDS:
            bar.prompt.take()
            self.app.call_later(self.app.action_quit)
        elif text.startswith("/") and (
            _screen_commands().knows(text) or self._opens_first_models(text)
        ):
            self._send(bar.prompt.take())
        elif self.controller is None and bar.waiting is not None:
            bar.queue = (*bar.queue, bar.prompt.take())
        elif self.controller is None:  # the first question waits visibly for the shell
            draft = bar.prompt.take()
            if self._failed and text.startswith(_MODEL_COMMAND):
                self._open_with(text.removeprefix(_MODEL_COMMAND).strip())
                return
            bar.waiting = draft
            self.view.show_waiting(text, self._model)
            if self._failed:
                self._open_again()
        else:
            if self.controller.stoppable and not text.startswith("/"):
                bar.queue = (*bar.queue, bar.prompt.take())
            else:
                self._send(bar.prompt.take())
            for question in self.query_one(QuestionArea).children:
                question.focus()  # as before the input

    def _opens_first_models(self, line: str) -> bool:
        """Whether this line opens the models while no shell is open: the last start failed, or a model is asked for."""
        is_waiting = self._failed or self._start_question is not None
        return line == _MODEL_COMMAND.strip() and self.controller is None and is_waiting

    @property
    def _start_question(self) -> "StartQuestion | None":
        """The open question for the first model."""
        from ecoshell.tui.screens.start_question import StartQuestion

        return next(iter(self.query(StartQuestion)), None)

    def _open_again(self) -> None:
        self._failed = False
        self.app.run_worker(self.app.open_shell())

    def _open_with(self, name: str) -> None:
        """Open the shell with another model, after a failed start."""
        self._model = name
        self.app.options = replace(self.app.options, model=name)
        self.view.show_waiting(f"{_MODEL_COMMAND}{name}", name)
        self._open_again()

    async def _choose_first_model(self) -> None:
        """Let the user choose the model to open the shell with."""
        from ecoshell.assembly.first_run import ModelsBeforeStart
        from ecoshell.models import StartingModel
        from ecoshell.tui.screens.pickers import ModelPicker

        line = await self.app.push_screen_wait(ModelPicker(ModelsBeforeStart()))
        name = (line or "").removeprefix(_MODEL_COMMAND)
        if name.startswith(_PULL):
            fix = f"Choose another model, or run: ecoshell models pull {name.removeprefix(_PULL)}."
            error = UsageError("No model can be downloaded before the chat is open.", fix=fix)
            self.view.show_result(f"{_MODEL_COMMAND}{name}", error)
        elif name and (question := self._start_question) is not None:
            question.resolve(StartingModel(name, "key", ""))
        elif name and self._failed:
            self._open_with(name)

    def _send(self, draft: Draft) -> None:
        line = draft.text.strip()
        if line.startswith("/"):
            self.run_worker(self._command(line))
        elif self.controller is not None:
            self.controller.begin_turn()
            self.run_worker(self._asked(self.controller, draft))

    async def _asked(self, controller: "ChatController", draft: Draft) -> None:
        """Ask, then send the next queued input."""
        if not await controller.send(draft):
            self._put_back(draft)
            return
        bar = self.query_one(PromptBar)
        if not bar.queue:
            self.app.alert(f"turn ended: {draft.text}")
            await self._review_plan(controller)
        self._send_queued()

    async def _review_plan(self, controller: "ChatController") -> None:
        """Ask whether a plan that the turn has written is carried out."""
        plan, quoted = controller.take_plan()
        if plan is None:
            return
        from ecoshell.tui.plan_questions import PlanQuestion

        answer = await self.query_one(QuestionArea).ask(PlanQuestion(plan, quoted))
        if answer == "change":
            self.begin(f"/plan accept {plan.text}")
        elif answer:
            line = "/plan accept edits" if answer == "edits" else "/plan accept"
            await self._carry_out(controller, line)

    def _send_queued(self) -> None:
        """Send the oldest queued input, unless something is running or the app is quitting."""
        bar = self.query_one(PromptBar)
        is_busy = self.controller is None or self.controller.stoppable
        if bar.queue and not is_busy and not self.leaving:
            queued, bar.queue = bar.queue[0], bar.queue[1:]
            self._send(queued)

    def _put_back(self, draft: Draft | None) -> None:
        """Return unsent input to the prompt, unless the user has typed something else."""
        prompt = self.query_one(Prompt)
        if draft is not None and not prompt.text:
            prompt.put(draft)

    # -- slash commands

    def action_run(self, line: str) -> None:
        self._send(Draft(line))

    async def _command(self, line: str) -> None:
        """Run a command of the screen or the shell, or open the screen that selects one."""
        if _screen_commands().knows(line):
            try:
                self.view.show_result(line, (await _screen_commands().run(self.app, line)).text)
            except EcoshellError as error:
                self.view.show_result(line, error)
            if self._stores_choice and chosen_setting(self.app.paths, "model", ""):
                self._end_choice()  # the settings screen has stored a model
        elif self.controller is not None:
            from ecoshell.tui.commands import screen_for

            screen = screen_for(line, self.controller.shell)
            chosen = line if screen is None else await self.app.push_screen_wait(screen)
            if chosen:
                await self._carry_out(self.controller, chosen)
        elif self._opens_first_models(line):
            await self._choose_first_model()
        else:
            self.query_one(PromptBar).hint(f"{line} is available once the chat is open.")
        self._send_queued()

    async def _carry_out(self, controller: "ChatController", line: str) -> None:
        """Run a command of the shell; a model chosen at the first start, or instead of the demo, is stored."""
        is_pull = line.startswith(_PULL_COMMAND)
        replaces_demo = is_pull and controller.shell.model_name == EMBEDDED
        printed = await controller.command(line)
        if printed is None:
            return
        model = controller.shell.model_name
        if replaces_demo and model != EMBEDDED and self._opens_demo:
            await self._store_model(model)
            self._end_choice()
        elif self._stores_choice and line.startswith(_MODEL_COMMAND) and not is_pull:
            await self._store_model(line.removeprefix(_MODEL_COMMAND))
            self._end_choice()
        if printed.effect == "quit":
            self.app.call_later(self.app.action_quit)
        elif printed.effect == "ask":
            draft, bar = Draft(printed.value, printed.attachments), self.query_one(PromptBar)
            if controller.busy:
                bar.queue = (*bar.queue, draft)
            else:
                controller.begin_turn()
                await self._asked(controller, draft)
        elif printed.effect == "copy":
            self.app.copy_to_clipboard(printed.value)

    @property
    def overview(self) -> list[tuple[str, str]]:
        """All slash commands with their usage and description."""
        return [*(self.shell.overview() if self.shell else ()), *_screen_commands().overview()]

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the stop key if nothing is running or queued."""
        if action != "stop" or (self.controller is not None and self.controller.stoppable):
            return True
        return True if any(bar.queue for bar in self.query(PromptBar)) else None

    def action_stop(self) -> None:
        """Empty the queue or, if it is empty, stop the turn."""
        bar = self.query_one(PromptBar)
        if bar.queue:
            bar.queue = ()
            bar.hint("The queue is empty now; up finds its messages in the history.")
        elif self.shell is not None:
            self.run_worker(self.shell.stop())

    def action_back(self) -> None:
        """From the prompt, focus an open question or change what runs without asking; else the previous widget."""
        if self.focused is not self.query_one(Prompt) or self.query_one(QuestionArea).children:
            self.focus_previous()
        elif self.controller is not None:
            self.run_worker(self.controller.next_approval_mode())

    @work
    async def action_help(self) -> None:
        # not needed for the first frame
        from ecoshell.tui.screens.help import HelpScreen, key_groups

        chosen = await self.app.push_screen_wait(HelpScreen(key_groups(self), self.overview))
        if chosen:
            self.begin(chosen)

    @work
    async def action_show_tool(self, tool: str, *, planned: bool = False) -> None:
        """Show a tool's schema and, with `planned`, the arithmetic of its plan row."""
        from ecoshell.tui.screens.schema import SchemaScreen  # not needed for the first frame

        if (controller := self.controller) is None:
            return
        screen = SchemaScreen(controller.shell, tool, planned=planned)
        if line := await self.app.push_screen_wait(screen):
            await self._carry_out(controller, line)

    def action_mode(self) -> None:
        if self.controller is None:
            return
        if self.controller.busy:
            hint = "A turn is running; change the mode after it, or stop it with esc."
            self.query_one(PromptBar).hint(hint)
        else:
            status = self.controller.status
            is_umi = status is not None and status.mode == "umi"
            self.action_run("/mode single" if is_umi else "/mode umi")

    def action_effort(self) -> None:
        """Switch to the next effort level, from the last to the first."""
        if self.controller is not None and (status := self.controller.status) is not None:
            levels = list(EFFORTS)
            at = levels.index(status.effort) if status.effort in levels else 0
            self.action_run(f"/effort {levels[(at + 1) % len(levels)]}")

    def action_todo(self) -> None:
        bar = self.query_one(PromptBar)
        if not bar.todo.toggle():
            bar.hint("There is no task list; the agent makes one for longer work.")

    def action_why(self) -> None:
        """Show the arithmetic of the plan's highlighted tool or the tool used last."""
        from ecoshell.tui.side.plan import PlanPanel  # not needed for the first frame

        if not any(panel.explain() for panel in self.query(PlanPanel)):
            hint = "There is no plan yet; it is made before the first step of a question."
            self.query_one(PromptBar).hint(hint)

    async def action_open(self, tab: str = "") -> None:
        """Focus a tab of the panels; without one, toggle all panels."""
        await self.query_one(SideLayout).open(tab)

    # -- messages from widgets

    def on_hint(self, event: Hint) -> None:
        self.query_one(PromptBar).hint(event.text)

    def on_question_area_asked(self, event: "QuestionArea.Asked") -> None:
        self.app.alert(event.title)

    def on_transcript_mark_requested(self, event: Transcript.MarkRequested) -> None:
        if self.controller is not None:
            self.run_worker(self.controller.mark(event.call, helpful=event.helpful))

    @work
    async def on_transcript_session_requested(self, event: Transcript.SessionRequested) -> None:
        from ecoshell.tui.screens.subagent import SubagentScreen  # few sessions delegate

        if (controller := self.controller) is not None:
            screen = SubagentScreen(controller.shell, event.session, event.name)
            if line := await self.app.push_screen_wait(screen):
                await self._carry_out(controller, line)

    def on_tool_requested(self, event: "ToolRequested") -> None:
        """Show a tool's schema or plan row, or register or unregister it."""
        if event.action in ("schema", "why"):
            self.action_show_tool(event.tool, planned=event.action == "why")
        else:
            self.action_run(f"/{event.action} {event.tool}")


class QuestionArea(Vertical):
    """The user at the screen: questions appear here, one at a time; without one it takes no space."""

    DEFAULT_CSS = """
    QuestionArea { height: auto; }
    """

    asking = var(False)
    """Whether a question is shown."""

    @dataclass
    class Asked(Message):
        """A question waits for the user."""

        title: str

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()

    async def ask(self, question: "Question[T]") -> T:
        """Return the user's answer; cancelling removes the question.

        The prompt keeps the focus if it contains text or was just used, so that no key meant for it answers the
        question.
        """
        prompt = self.screen.query_one(Prompt)
        async with self._turn:
            try:
                await self.mount(question)
                self.asking = True
                self.post_message(self.Asked(str(question.border_title)))
                is_typing = prompt.text or prompt.mode == "search" or prompt.typing
                if is_typing and not question.takes_focus:
                    question.border_subtitle = "shift+tab to answer"
                elif not question.takes_focus:
                    question.focus()
                return await question.answer
            finally:
                self.asking = False
                question.remove()
                prompt.focus()

    async def approve(self, wanted: "ApprovalWanted") -> "Approval":
        from ecoshell.tui.questions import ApprovalQuestion

        return await self.ask(ApprovalQuestion(wanted))

    async def at_limit(self, hit: "LimitHit") -> "LimitChoice":
        from ecoshell.tui.questions import LimitQuestion

        return await self.ask(LimitQuestion(hit))

    async def at_cost(self, wanted: "CostWanted") -> "CostChoice":
        from ecoshell.tui.questions import CostQuestion

        return await self.ask(CostQuestion(wanted))

    async def at_quote(self, quoted: "Quote") -> "QuoteChoice":
        from ecoshell.tui.plan_questions import QuoteQuestion

        return await self.ask(QuoteQuestion(quoted))

    async def trust(self, wanted: "TrustWanted") -> "Trust":
        from ecoshell.tui.questions import TrustQuestion

        return await self.ask(TrustQuestion(wanted))
