"""The chat: the one screen of this version, its widgets in their places and the shell behind them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer

from ecoshell import __version__
from ecoshell.budget.caps import CapState
from ecoshell.events import ErrorHappened
from ecoshell.paths import Paths
from ecoshell.tui.asking.person import QuestionSpot, ScreenPerson
from ecoshell.tui.prompt.drafts import DraftFile
from ecoshell.tui.prompt.history import History
from ecoshell.tui.prompt.prompt import Prompt, PromptBar
from ecoshell.tui.side.bars import SummaryLine, TitleBar
from ecoshell.tui.side.panels import BudgetPanel, ToolsPanel, summary
from ecoshell.tui.talk import Talk
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell, Standing

_LEAVING = frozenset({"/quit", "/exit"})


class ChatScreen(Screen[None]):
    """Where a person asks and watches; what is sent before the shell is ready waits for it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - declared so by Textual
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop"),
        Binding("f2", "panels", "panels"),
        Binding("f1", "run('/help')", "help"),
    ]

    class Left(Message):
        """The person typed that they want to leave."""

    def __init__(self, paths: Paths, model: str) -> None:
        super().__init__()
        self._paths = paths
        self._model = model
        self._waiting = ""
        self.talk: Talk | None = None

    def compose(self) -> ComposeResult:
        """Title, transcript and panels, question, prompt, keys."""
        yield TitleBar(f"opening {self._model} …")
        with Horizontal(id="body"):
            yield Transcript()
            with Vertical(id="side"):
                yield BudgetPanel()
                yield ToolsPanel()
        yield SummaryLine()
        yield QuestionSpot()
        yield PromptBar(History(self._paths.history_file), DraftFile(self._paths.draft_file))
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Welcome the person and let them type."""
        self.query_one(Transcript).add(lines.welcome(__version__))
        prompt = self.query_one(Prompt)
        prompt.send = self._typed
        prompt.focus()

    @property
    def person(self) -> ScreenPerson:
        """The person in front of this screen."""
        return ScreenPerson(self.query_one(QuestionSpot))

    async def opened(self, shell: "Shell") -> None:
        """Take the shell: show where it stands, and ask what has been waiting for it."""
        transcript = self.query_one(Transcript)
        transcript.drop()
        talk = Talk(shell, transcript, self.show)
        await talk.begin()
        self.query_one(Prompt).completer = shell.complete
        self.run_worker(talk.watch())
        self.talk = talk
        waiting, self._waiting = self._waiting, ""
        if waiting:
            self._send(talk, waiting)

    def failed(self, error: ErrorHappened) -> None:
        """Say why there is no shell; what was waiting goes back to the prompt."""
        transcript = self.query_one(Transcript)
        transcript.drop()
        transcript.add(lines.error(error))
        self.query_one(TitleBar).say("not ready")
        if self._waiting:
            self.query_one(Prompt).put(self._waiting)

    def show(self, standing: "Standing", caps: Sequence[CapState]) -> None:
        """Show where the session stands."""
        self.query_one(TitleBar).show(standing)
        self.query_one(BudgetPanel).show(standing, caps)
        self.query_one(ToolsPanel).show(standing)
        self.query_one(SummaryLine).update(summary(standing, caps))

    def _typed(self, text: str) -> None:
        """Send what was typed, or say why it stays in the prompt."""
        bar, text = self.query_one(PromptBar), text.strip()
        if not text:
            bar.hint("Nothing was typed: ask a question, or type / for commands.")
        elif text in _LEAVING:
            bar.take()
            self.post_message(self.Left())
        elif self.talk is None:
            self._wait(bar, text)
        elif self._busy and not text.startswith("/"):
            bar.hint("A turn is under way: esc stops it. What you typed stays here.")
        else:
            self._send(self.talk, bar.take())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the key that stops while there is nothing to stop."""
        return None if action == "stop" and not self._busy else True

    def action_stop(self) -> None:
        """Stop the turn that runs."""
        if self.talk is not None:
            self.run_worker(self.talk.stop())

    def action_panels(self) -> None:
        """Show or hide the panels."""
        self.toggle_class("-panels")

    def action_run(self, line: str) -> None:
        """Run the slash command that a key stands for."""
        if self.talk is not None:
            self._send(self.talk, line)

    def interrupt(self) -> bool:
        """Stop the turn or clear the prompt; says whether there was anything to do."""
        if self._busy:
            self.action_stop()
        elif self.query_one(Prompt).text:
            self.query_one(PromptBar).take()
        else:
            return False
        return True

    @property
    def _busy(self) -> bool:
        return self.talk is not None and self.talk.busy

    def _wait(self, bar: PromptBar, text: str) -> None:
        """Keep one question until the shell is ready, and show that it waits."""
        if self._waiting:
            bar.hint("One question is waiting already; this one stays here until the model is ready.")
            return
        self._waiting = bar.take()
        self.query_one(Transcript).open(lines.question(text, waiting=f"waits until {self._model} is ready"))

    def _send(self, talk: Talk, text: str) -> None:
        """Hand a question or a command to the shell, beside everything else that goes on."""
        command = text.lstrip().startswith("/")
        self.run_worker(self._command(talk, text.strip()) if command else talk.ask(text))

    async def _command(self, talk: Talk, line: str) -> None:
        if await talk.command(line):
            self.post_message(self.Left())
