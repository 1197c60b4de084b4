"""Measure the chat while its model writes at a constant rate; `main` runs in a separate process.

The chat uses the terminal it is started on. After measuring it prints a JSON object to standard output, which is not
the terminal: `lag_p99_ms` (delay of the event loop), `cpu_percent` (of one processor), `frames_per_second` and
`tokens_per_second`.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from ecoshell.agent import UserInterface
from ecoshell.events import Event, TextArrived
from ecoshell.options import Options
from ecoshell.tui.app import ChatApp, build_shell

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

_TICK = 0.01
"""Seconds between samples of the event loop's delay."""


class PacedShell:
    """Wraps a shell; from the turn numbered `first`, text arrives at `rate` pieces per second."""

    def __init__(self, shell: "Shell", *, rate: float, first: int) -> None:
        self.pacing = asyncio.Event()
        self.pieces = 0
        self._shell = shell
        self._rate = rate
        self._turns_before = first - 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shell, name)

    async def ask(self, *question: Any, **options: Any) -> AsyncGenerator[Event]:
        """Run a turn; text may arrive late but never early."""
        paced = self._turns_before == 0
        self._turns_before -= 1
        async with aclosing(self._shell.ask(*question, **options)) as events:
            async for event in events:
                if paced and isinstance(event, TextArrived):
                    if not self.pacing.is_set():
                        self._started = time.monotonic()
                        self.pacing.set()
                    await asyncio.sleep(
                        max(0.0, self._started + self.pieces / self._rate - time.monotonic())
                    )
                    self.pieces += 1
                yield event


class PacedChat(ChatApp):
    """A chat with a paced shell; counts frames, and measures from the first paced text on."""

    CSS_PATH = str(
        files("ecoshell.tui") / "chat.tcss"
    )  # Textual would search the folder of this class

    def __init__(self, options: Options, *, rate: float, first: int, seconds: float) -> None:
        super().__init__(options, build=self._build_paced)
        self._rate, self._first, self._seconds = rate, first, seconds
        self._frames = 0

    def post_display_hook(self) -> None:
        """Count a frame."""
        self._frames += 1

    async def _build_paced(self, options: Options, person: UserInterface) -> "Shell":
        paced = PacedShell(await build_shell(options, person), rate=self._rate, first=self._first)
        self.run_worker(self._measure(paced))
        return cast("Shell", paced)

    async def _measure(self, paced: PacedShell) -> None:
        await paced.pacing.wait()
        started, cpu, frames, pieces = (
            time.monotonic(),
            time.process_time(),
            self._frames,
            paced.pieces,
        )
        delays: list[float] = []
        while (now := time.monotonic()) - started < self._seconds:
            await asyncio.sleep(_TICK)
            delays.append(time.monotonic() - now - _TICK)
        seconds = time.monotonic() - started
        figures = {
            "lag_p99_ms": sorted(delays)[len(delays) * 99 // 100] * 1000,
            "cpu_percent": (time.process_time() - cpu) / seconds * 100,
            "frames_per_second": (self._frames - frames) / seconds,
            "tokens_per_second": (paced.pieces - pieces) / seconds,
        }
        (sys.__stdout__ or sys.stdout).write(f"{json.dumps(figures)}\n")
        (sys.__stdout__ or sys.stdout).flush()


def main(model: str, *, rate: float, first: int, seconds: float) -> None:
    """Run the chat until the user quits; see PacedShell for `rate` and `first`. Measures for `seconds`."""
    asyncio.run(
        PacedChat(Options(model=model), rate=rate, first=first, seconds=seconds).run_async()
    )
