"""The screen with the transcript of a subagent, which follows it while it works."""

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Footer

from ecoshell.errors import EcoshellError
from ecoshell.events import ErrorHappened, TurnFinished
from ecoshell.messages import visible_line
from ecoshell.tui.screens.overlay import Overlay
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.presenter import EventPresenter
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

_POLL_SECONDS = 0.5


class SubagentTranscript(Transcript):
    """The transcript of a subagent."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "screen.dismiss(None)", "close")]


class SubagentScreen(Overlay):
    """Returns the slash command that resumes the subagent's session, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "resume", "resume its session"),
        Binding("escape,q", "dismiss(None)", "close"),
    ]
    DEFAULT_CSS = """
    SubagentScreen {
        & > Vertical { max-width: 140; height: 90%; }
        Transcript { height: 1fr; }
    }
    """

    def __init__(self, shell: "Shell", session: str, name: str) -> None:
        super().__init__()
        self._shell = shell
        self._session = session
        self._name = name
        self._has_ended = False

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(visible_line(f"{self._name} · session {self._session}"))
            yield SubagentTranscript()
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(Transcript).focus()
        self._follow()

    @work
    async def _follow(self) -> None:
        """Show the stored events, and new ones until the subagent ends."""
        column, last = self.query_one(Transcript).column, 0
        presenter = EventPresenter(column)
        while True:
            try:
                read = self._shell.store.events_after
                events = await asyncio.to_thread(read, self._session, last)
            except EcoshellError as error:
                column.add(event_blocks.error(ErrorHappened.of(error)))
                return
            for number, event in events:
                presenter.show(event)
                last = number
            self._has_ended = bool(events) and isinstance(events[-1][1], TurnFinished)
            self.refresh_bindings()
            if self._has_ended or not self._shell.conversation.busy:
                presenter.end_activity()
                return
            await asyncio.sleep(_POLL_SECONDS)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to resume only an ended session."""
        return None if action == "resume" and not self._has_ended else True

    def action_resume(self) -> None:
        self.dismiss(f"/resume {self._session}")

    @work
    async def on_transcript_session_requested(self, event: Transcript.SessionRequested) -> None:
        """Open the transcript of a subagent's own subagent."""
        screen = SubagentScreen(self._shell, event.session, event.name)
        line = await self.app.push_screen_wait(screen)  # pyright: ignore[reportUnknownMemberType]
        if line:
            self.dismiss(line)
