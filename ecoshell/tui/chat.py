"""The chat: the screen a person lives in, its widgets in their places and the shell behind them.

And the person in front of it, as the core knows them.
"""

import asyncio
from shutil import get_terminal_size
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import TextArea

from ecoshell import __version__
from ecoshell.errors import EcoshellError
from ecoshell.options import EFFORTS
from ecoshell.paths import Paths
from ecoshell.tui.keys import Hint, KeyLine
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import Draft, DraftFile, History
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.screens.welcome import is_first_start, welcome_block
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.layout import SideLayout
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:  # none of it is needed for the first frame
    from ecoshell.agent import Approval, CostChoice, LimitChoice, Trust
    from ecoshell.agent.commands import CommandTable
    from ecoshell.agent.shell import Shell
    from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, TrustWanted
    from ecoshell.tui.app import ChatApp
    from ecoshell.tui.controller import ChatController, TranscriptController
    from ecoshell.tui.questions import Question
    from ecoshell.tui.side.panel import ToolWanted

T = TypeVar("T")

_LEAVING = frozenset({"/quit", "/exit"})
_WIDE = 100
"""Columns from which on the panels stand beside the transcript."""


def _own() -> "CommandTable[ChatApp]":
    """The commands of the screen itself."""
    from ecoshell.tui.commands import CHAT_COMMANDS

    return CHAT_COMMANDS


_HIDDEN = (
    ("f5", "run('/sessions')", "sessions", "go on with an earlier session"),
    ("f6", "mode", "mode", "one model, or a planner, a caller and a summarizer"),
    ("f7", "run('/model')", "models", "choose another model"),
    ("f8", "run('/settings')", "settings", "look at the settings and change them"),
    ("alt+e", "effort", "effort", "how much the model reasons: the next level"),
    ("f9", "open", "panels", "hide the panels, or show them"),
    ("ctrl+f", "app.transcript('search')", "search", "search the transcript"),
    ("ctrl+o", "app.transcript('fold(True)')", "open the last fold", "open or fold the newest long output"),
)
"""Keys that the palette and the help tell of, and the footer has no room for; they work in the prompt too."""


class ChatScreen(Screen[None]):
    """Where a person asks and watches; what is sent before the shell is ready waits for it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]  # noqa: RUF012 - declared so by Textual
    AUTO_FOCUS = "Prompt"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop"),
        Binding("shift+tab", "back", "to the transcript", show=False),
        Binding("f1", "help", "help"),
        Binding("f2", "open('tools')", "tools"),
        Binding("f3", "open('plan')", "plan"),
        Binding("f4", "open('cost')", "cost"),
        *(Binding(key, act, name, show=False, tooltip=words, priority=True) for key, act, name, words in _HIDDEN),
    ]
    HELP = "Type below; what happens is told above, and the panels beside it say what it costs."
    app: "ChatApp"

    def __init__(self, paths: Paths, model: str) -> None:
        wide = get_terminal_size().columns >= _WIDE
        super().__init__(classes="-wide" if wide else "-narrow")  # or Textual would style everything twice to say so
        self._paths = paths
        self._model = model
        self._failed = self._first = False
        self._view: TranscriptController | None = None
        self.controller: ChatController | None = None
        self.leaving = False
        """Whether the program ends: what is queued is kept then, and not sent any more."""

    def compose(self) -> ComposeResult:
        yield TitleBar(f"opening {self._model} …")
        yield SideLayout(Transcript())
        yield QuestionSpot()
        yield PromptBar(History(self._paths.history_file), DraftFile(self._paths.draft_file))
        yield KeyLine(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._first = is_first_start(self._paths)
        self.query_one(Transcript).column.add(welcome_block(__version__, first=self._first))
        prompt = self.query_one(Prompt)
        prompt.send = self._typed
        self.watch(self.query_one(Transcript), "news", self.query_one(PromptBar).tell_news, init=False)

    @property
    def view(self) -> "TranscriptController":
        """What follows the conversation."""
        if self._view is None:
            from ecoshell.tui.controller import TranscriptController

            title, transcript = self.query_one(TitleBar), self.query_one(Transcript)
            self._view = TranscriptController(title, transcript, self.query_one(SideLayout), self.query_one(PromptBar))
        return self._view

    @property
    def shell(self) -> "Shell | None":
        return self.controller.shell if self.controller is not None else None

    async def opened(self, shell: "Shell") -> None:
        """Take the shell: show where it stands, and ask what has been waiting for it."""
        from ecoshell.tui.controller import ChatController

        await self.query_one(SideLayout).mount_panels()
        self.query_one(Transcript).column.drop()
        controller, prompt = ChatController(shell, self.view), self.query_one(Prompt)
        await controller.begin()
        prompt.completer = lambda text: [*shell.complete(text), *_own().complete(self.app, text)]
        prompt.values, prompt.mentions.files = shell.values, shell.mentionable
        self.run_worker(controller.watch())
        self.run_worker(controller.introduce(first=self._first))
        self.controller = controller
        self.warm()
        bar = self.query_one(PromptBar)
        waiting, bar.waiting = bar.waiting, None
        if waiting is not None:
            self._send(waiting)

    def failed(self, error: Exception, kept: str = "") -> None:
        """Say why there is no shell; what was waiting goes back to the prompt."""
        self.view.fail(error, kept)
        self._failed = True
        bar = self.query_one(PromptBar)
        self._put_back(bar.waiting)
        bar.waiting = None

    @on(TextArea.Changed)
    def warm(self) -> None:
        """Have the model loaded while a question is typed; until then the open chat takes no memory for it."""
        if self.controller is not None and not self.controller.warmed and self.query_one(Prompt).text:
            self.controller.warmed = True
            self.run_worker(self.controller.warm())

    # -- what is typed

    def begin(self, text: str) -> None:
        prompt = self.query_one(Prompt)
        prompt.put(Draft(text))
        prompt.focus()

    def _typed(self, draft: Draft) -> None:
        """Send what was typed, and go to where it shows; or say why it stays in the prompt."""
        bar, text = self.query_one(PromptBar), draft.text.strip()
        if text:
            self.query_one(Transcript).action_end()
        if not text:
            bar.hint("Nothing was typed: ask a question, or type / for commands.")
        elif text in _LEAVING:
            bar.prompt.take()
            self.app.call_later(self.app.action_quit)
        elif text.startswith("/") and _own().knows(text):
            self._send(bar.prompt.take())
        elif self.controller is None and bar.waiting is not None:
            bar.queue = (*bar.queue, bar.prompt.take())
        elif self.controller is None:  # one question is kept until the shell is ready, and seen to wait
            bar.waiting = bar.prompt.take()
            self.view.wait(text, self._model)
            if self._failed:
                self._failed = False
                self.app.run_worker(self.app.open_shell())  # it may be possible now
        else:
            if self.controller.stoppable and not text.startswith("/"):
                bar.queue = (*bar.queue, bar.prompt.take())
            else:
                self._send(bar.prompt.take())
            for question in self.query_one(QuestionSpot).children:  # what is asked has the keys again
                question.focus()

    def _send(self, draft: Draft) -> None:
        """Hand over what was typed, beside everything else that goes on."""
        line = draft.text.strip()
        if line.startswith("/"):
            self.run_worker(self._command(line))
        elif self.controller is not None:
            self.controller.begin_turn()
            self.run_worker(self._asked(self.controller, draft))

    async def _asked(self, controller: "ChatController", draft: Draft) -> None:
        """Ask, and send what was typed meanwhile, unless another turn has begun or the program ends."""
        if not await controller.send(draft):
            self._put_back(draft)
        else:
            self._send_queued()

    def _send_queued(self) -> None:
        """Send the oldest of what waits, unless something is under way or the program ends."""
        bar = self.query_one(PromptBar)
        if bar.queue and self.controller is not None and not self.controller.stoppable and not self.leaving:
            queued, bar.queue = bar.queue[0], bar.queue[1:]
            self._send(queued)

    def _put_back(self, draft: Draft | None) -> None:
        """Give back what could not be sent, unless something else has been typed meanwhile."""
        prompt = self.query_one(Prompt)
        if draft is not None and not prompt.text:
            prompt.put(draft)

    # -- slash commands

    def action_run(self, line: str) -> None:
        self._send(Draft(line))

    async def _command(self, line: str) -> None:
        """Run a command of the screen's own, or of the shell; or open the screen that finds out which."""
        if _own().knows(line):
            try:
                self.view.answer(line, (await _own().run(self.app, line)).text)
            except EcoshellError as error:
                self.view.answer(line, error)
        elif self.controller is not None:
            from ecoshell.tui.commands import screen_for

            screen = screen_for(line, self.controller.shell)
            chosen = line if screen is None else await self.app.push_screen_wait(screen)
            if chosen:
                await self._carry_out(self.controller, chosen)
        self._send_queued()

    async def _carry_out(self, controller: "ChatController", line: str) -> None:
        printed = await controller.command(line)
        if printed is None:
            return
        if printed.effect == "quit":
            self.app.call_later(self.app.action_quit)
        elif printed.effect == "ask":
            controller.begin_turn()
            await self._asked(controller, Draft(printed.value, printed.attachments))
        elif printed.effect == "copy":
            self.app.copy_to_clipboard(printed.value)

    @property
    def overview(self) -> list[tuple[str, str]]:
        """Every slash command as it is typed, and what it does."""
        return [*(self.shell.overview() if self.shell else ()), *_own().overview()]

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the key that stops while there is nothing to stop."""
        works = self.controller is not None and self.controller.stoppable
        stoppable = works or any(bar.queue for bar in self.query(PromptBar))
        return None if action == "stop" and not stoppable else True

    def action_stop(self) -> None:
        """Empty the queue or, when nothing waits, stop the turn that runs."""
        bar = self.query_one(PromptBar)
        if bar.queue:
            bar.queue = ()
            bar.hint("Nothing is queued any more: up finds what was.")
        elif self.shell is not None:
            self.run_worker(self.shell.stop())

    def action_back(self) -> None:
        """Go from the prompt to what is asked or, over all panels, to the transcript; elsewhere to the place before."""
        if self.focused is self.query_one(Prompt) and not self.query_one(QuestionSpot).children:
            self.query_one(Transcript).focus()
        else:
            self.focus_previous()

    @work
    async def action_help(self) -> None:
        from ecoshell.tui.screens.help import HelpScreen, places  # no first frame waits for it

        chosen = await self.app.push_screen_wait(HelpScreen(places(self), self.overview))
        if chosen:
            self.begin(chosen)

    @work
    async def action_document(self, tool: str, *, planned: bool = False) -> None:
        """Show a tool's document and, above it, the arithmetic of its row in the plan where it is asked for there."""
        from ecoshell.tui.screens.document import DocumentScreen  # no first frame waits for it

        if (controller := self.controller) is None:
            return
        line = await self.app.push_screen_wait(DocumentScreen(controller.shell, tool, planned=planned))
        if line:
            await self._carry_out(controller, line)

    def action_mode(self) -> None:
        if self.controller is None:
            return
        if self.controller.busy:
            self.query_one(PromptBar).hint("A turn is under way: the mode can be changed after it. esc stops it.")
        else:
            standing = self.controller.standing
            self.action_run("/mode single" if standing is not None and standing.mode == "umi" else "/mode umi")

    def action_effort(self) -> None:
        """Go on to the next effort, and after the last to the first."""
        if self.controller is not None and (standing := self.controller.standing) is not None:
            levels = list(EFFORTS)
            at = next((number for number, one in enumerate(levels) if one == standing.effort), 0)
            self.action_run(f"/effort {levels[(at + 1) % len(levels)]}")

    async def action_open(self, tab: str = "") -> None:
        """Open a tab of the panels; without one hide them all, or show them."""
        await self.query_one(SideLayout).open(tab)

    # -- what the widgets want

    def on_hint(self, event: Hint) -> None:
        self.query_one(PromptBar).hint(event.text)

    def on_transcript_mark_wanted(self, event: Transcript.MarkWanted) -> None:
        if self.controller is not None:
            self.run_worker(self.controller.mark(event.call, helpful=event.helpful))

    def on_tool_wanted(self, event: "ToolWanted") -> None:
        """Show a tool's schema, its row in the plan above it where that is asked for; or register the tool, or not."""
        if event.what in ("schema", "why"):
            self.action_document(event.tool, planned=event.what == "why")
        else:
            self.action_run(f"/{event.what} {event.tool}")


class QuestionSpot(Vertical):
    """The person in front of the screen: questions are asked here, one at a time; without one it takes no room."""

    DEFAULT_CSS = """
    QuestionSpot { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()

    async def ask(self, question: "Question[T]") -> T:
        """The person's answer; a cancelled wait takes the question off the screen.

        While something stands in the prompt, or was typed there a moment ago, the focus stays there, so that no key
        meant for it answers the question.
        """
        prompt = self.screen.query_one(Prompt)
        async with self._turn:
            try:
                await self.mount(question)
                if not question.continues and (prompt.text or prompt.mode == "search" or prompt.typing):
                    question.border_subtitle = "shift+tab comes here"
                elif not question.continues:
                    question.focus()
                return await question.answer
            finally:
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

    async def trust(self, wanted: "TrustWanted") -> "Trust":
        from ecoshell.tui.questions import TrustQuestion

        return await self.ask(TrustQuestion(wanted))
