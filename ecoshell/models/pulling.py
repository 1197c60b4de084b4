"""Downloads a model in the background, with its progress in words; a stopped download is resumed by the next one."""

import asyncio
import threading
import time
from collections.abc import Callable

from ecoshell.events.figures import duration
from ecoshell.models import size_text
from ecoshell.models.hub import Hub, HubFile, Pull
from ecoshell.models.hub_names import HubName

_RETRYING = "connection lost, trying again"
_UPDATE_SECONDS = 0.25
_SPEED_SECONDS = 10.0  # the speed is the mean over so many seconds


class _Stopped(Exception):
    """Ends the download's thread."""


class ProgressText:
    """Turns downloaded bytes into `412 MB of 2.5 GB · 4 min 20 s left · 8.1 MB/s`."""

    def __init__(self, total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._samples: list[tuple[float, int]] = []

    def text(self, done: int) -> str:
        """The progress after `done` bytes; what was on disk before does not count as speed."""
        now = self._clock()
        self._samples.append((now, done))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _SPEED_SECONDS:
            del self._samples[0]
        (start, before), text = self._samples[0], f"{size_text(done)} of {size_text(self._total)}"
        if now <= start or done <= before:
            return text
        speed = (done - before) / (now - start)
        left = duration((self._total - done) / speed)
        return f"{text} · {left} left · {size_text(int(speed))}/s"


async def pull_model(hub: Hub, name: HubName, tell: Callable[[str], None]) -> Pull:
    """Download a model and call `tell` with the progress; raises what `Hub` raises.

    Cancelling keeps what has arrived.
    """
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def work() -> Pull:
        pull = hub.find(name)
        progress, last = ProgressText(pull.size_bytes), 0.0

        def count(file: HubFile, size: int) -> None:
            nonlocal last
            if stopped.is_set():
                raise _Stopped
            if time.monotonic() - last >= _UPDATE_SECONDS:
                last = time.monotonic()
                earlier = pull.files[: pull.files.index(file)]
                done = sum(each.size_bytes for each in earlier) + size
                loop.call_soon_threadsafe(tell, f"{progress.text(done)} · downloading {name.short}")

        def retry() -> None:
            if stopped.is_set():
                raise _Stopped
            loop.call_soon_threadsafe(tell, f"{_RETRYING} · downloading {name.short}")

        hub.pull(pull, count, retry)
        return pull

    tell(f"looking up {name.short}")
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([running])
        running.exception()  # it was stopped, or failed as well
        raise
