"""The Textual app: it shows its first frame, then opens the shell, and restores the terminal at the end."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import ModalScreen, Screen

from ecoshell.errors import EcoshellError, ModelMissing
from ecoshell.options import Options
from ecoshell.paths import Paths, user_paths
from ecoshell.tui.chat import ChatScreen, QuestionArea
from ecoshell.tui.memory import share_arena
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.side.layout import SideLayout
from ecoshell.tui.themes import ThemedApp, chosen_setting
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from ecoshell.agent import UserInterface
    from ecoshell.agent.shell import Shell
    from ecoshell.events import Event

Build = Callable[[Options, "UserInterface"], Awaitable["Shell"]]
_GARBAGE = (50_000, 20, 50)
"""Thresholds of the garbage collector: a long session has many small objects, all of which stay alive."""
_QUIT_SECONDS = 2.0
"""Time within which a second ctrl+c quits."""


async def build_shell(options: Options, user: "UserInterface") -> "Shell":
    """Assemble the shell, with its imports in a thread; raises EcoshellError."""
    await asyncio.to_thread(import_module, "ecoshell.tui.controller")
    assembly: Any = await asyncio.to_thread(import_module, "ecoshell.assembly.shell")
    return await assembly.assemble(options, user)


class ChatApp(ThemedApp[int]):
    """A chat with one shell; returns the exit status."""

    TITLE = "ecoshell"
    # of the app: Textual does not read that of a default screen
    CSS_PATH = Path(__file__).with_name("chat.tcss")
    COMMANDS = {lambda: import_module("ecoshell.tui.screens.palette").ChatCommands}  # noqa: RUF012 - as declared by Textual
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+p", "command_palette", "commands", priority=True),
        Binding("ctrl+q", "quit", "quit", priority=True),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
    ]

    def __init__(
        self, options: Options, *, build: Build = build_shell, paths: Paths | None = None
    ) -> None:
        super().__init__(paths or user_paths())
        self.options = options
        self._build = build
        self._failed = 0
        self._interrupted_at = -_QUIT_SECONDS
        self._is_focused = True
        """False only after the terminal reported that it lost the focus."""
        self.shell: Shell | None = None
        self.opened = asyncio.Event()
        """Set once the shell is open and its past is shown."""
        self.chat = ChatScreen(self.paths, options.model or chosen_setting(self.paths, "model", ""))

    def get_driver_class(self) -> type[Driver]:
        """The driver that survives invalid input bytes and a lost terminal, except on Windows."""
        if sys.platform == "win32" or "TEXTUAL_DRIVER" in os.environ:
            return super().get_driver_class()
        from ecoshell.tui.terminal import TerminalDriver  # it needs termios

        return TerminalDriver

    def get_default_screen(self) -> Screen[None]:
        return self.chat

    def on_mount(self) -> None:
        """Load everything else after the first frame."""
        self.call_after_refresh(self.after_first_frame)

    def after_first_frame(self) -> None:
        """Open the shell; input typed until then waits for it."""
        share_arena()
        gc.freeze()  # objects created so far stay alive
        gc.set_threshold(*_GARBAGE)
        gc.enable()
        self.run_worker(self._fill())

    async def _fill(self) -> None:
        """Mount the panels and open the shell, which import modules at the same time.

        If two threads import modules of a package while it is being imported, Python may report a deadlock.
        """
        await asyncio.to_thread(import_module, "ecoshell.events")
        self.run_worker(self.chat.query_one(SideLayout).mount_panels())
        self.run_worker(self._show_theme_problems())
        self.run_worker(self.open_shell())

    async def _show_theme_problems(self) -> None:
        if complaints := (await self.reload_themes()).complaints:
            from ecoshell.tui.transcript import event_blocks  # not needed for the first frame

            self.chat.view.column.insert(*map(event_blocks.notice, complaints))

    async def open_shell(self) -> None:
        """Open the shell, or show why it cannot be opened."""
        try:
            self.shell = await self._build(self.options, self.chat.query_one(QuestionArea))
            await self.chat.opened(self.shell)
            self.opened.set()
        except EcoshellError as error:
            if not (isinstance(error, ModelMissing) and self.options.model is None):
                self._fail(error)
            elif await self._can_open_with_another_model(error):
                await self.open_shell()
        except Exception as error:  # noqa: BLE001 - worker boundary: a defect must not lose the screen and its draft
            self._failed = 1
            self.chat.failed(error, "Your input is kept.")

    async def _can_open_with_another_model(self, error: EcoshellError) -> bool:
        """Let the user choose another model, or show why no other is available."""
        try:
            if await self.chat.choose_another_model():
                return True
        except EcoshellError as fault:
            error = fault
        self._fail(error)
        return False

    def _fail(self, error: EcoshellError) -> None:
        self._failed = error.exit_status
        self.chat.failed(error)

    def on_app_focus(self) -> None:
        self._is_focused = True

    def on_app_blur(self) -> None:
        self._is_focused = False

    def alert(self, text: str) -> None:
        """Tell a user who looks at another window that a turn has ended or that a question waits."""
        if self._is_focused or self._driver is None:
            return
        from ecoshell.tui import alerts  # not needed for the first frame

        mode = chosen_setting(self.paths, "tui.notify", alerts.DEFAULT)
        chosen = mode if mode in alerts.MODES else alerts.DEFAULT
        self._driver.write(alerts.alert_sequence(chosen, text, os.environ))
        self._driver.flush()

    async def action_transcript(self, action: str) -> None:
        """Run an action of the transcript from any screen."""
        await self.chat.query_one(Transcript).run_action(action)

    def action_command_palette(self) -> None:
        from ecoshell.tui.screens.palette import Palette  # not needed for the first frame

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def action_interrupt(self) -> None:
        """Close a modal screen, copy the selection, stop the turn or clear the prompt; the second time, quit."""
        if isinstance(self.screen, ModalScreen):
            self.screen.dismiss(None)
            return
        selected = self.screen.get_selected_text() or self.chat.query_one(Prompt).selected_text
        if selected:
            self.copy_to_clipboard(selected)
            return
        is_second = time.monotonic() - self._interrupted_at < _QUIT_SECONDS
        self._interrupted_at = time.monotonic()
        bar, controller = self.chat.query_one(PromptBar), self.chat.controller
        if is_second:
            self.call_later(self.action_quit)
        elif controller is not None and controller.stoppable:
            bar.queue = ()
            self.chat.run_worker(controller.shell.stop())
        elif not bar.clear():
            bar.hint("Press ctrl+c again to quit.")

    async def action_quit(self, status: int | None = None) -> None:
        """Stop a running turn, so that its reservations are settled, and exit with this status."""
        self.chat.leaving = True
        if self.shell is not None:
            await self.shell.stop()
        self.exit(self._failed if status is None else status)


def run(options: Options) -> int:
    """Run the chat on this terminal; return the exit status."""
    return asyncio.run(_session(ChatApp(options)))


async def _session(app: ChatApp) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT) if sys.platform != "win32" else ():
        loop.add_signal_handler(
            number, lambda status=128 + number: loop.create_task(app.action_quit(status))
        )
    try:
        status = await app.run_async()
    finally:
        events: list[Event] = []
        if app.shell is not None:
            app.shell.on_event = events.append
            await app.shell.aclose()
    lines = [f"{line.icon} {line.words}" for event in events if (line := event.render())]
    if app.shell is not None and app.shell.resume_hint:
        lines.append(app.shell.resume_hint)
    with suppress(OSError):  # the terminal may be gone
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
    return app.return_code or 0 if status is None else status
