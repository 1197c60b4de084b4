"""Standard input as text, and as `ask` takes it: the question itself, or a text that goes along with one."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable

from ecoshell.agent.workspace import FILE_BYTES
from ecoshell.budget.money import counted
from ecoshell.errors import UsageError
from ecoshell.messages import Attachment

NAME = "standard input"
MOST = 16_000_000
"""Bytes that are read at all."""
_BEGINS, _ENDS = 3.0, 60.0
"""Seconds within which an input that nobody promised has to begin and to end: services are often started with an open
pipe that nobody writes to."""
_CHUNK = 65_536
_WHEN_SLOW = "Put - after the question to wait for its end, or < /dev/null to go without."


def decoded(raw: bytes, warn: Callable[[str], None]) -> str:
    """The bytes as text; what is not UTF-8 is replaced, and that is said."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        warn("the input is not valid UTF-8; what could not be read was replaced by \N{REPLACEMENT CHARACTER}")
        return raw.decode("utf-8", errors="replace")


def question() -> bytes:
    """All of standard input, however long it takes; raises UsageError for more than MOST bytes."""
    head, _, ended = _hear(MOST, begins=None, ends=None)
    if not ended:
        raise UsageError(f"The question on standard input has more than {MOST:,} bytes.", fix="Ask a shorter one.")
    return head


def context(say: Callable[[str], None], *, promised: bool) -> Attachment | None:
    """What was piped in, to go along with a question; `say` tells how much it was. None where nothing was.

    A terminal is not read unless it is `promised`, which also takes the time limits away. Raises UsageError for what is
    no text.
    """
    if sys.stdin.isatty() and not promised:
        return None
    limits = (None, None) if promised else (_BEGINS, _ENDS)
    try:
        head, size, ended = _hear(FILE_BYTES, begins=limits[0], ends=limits[1])
    except OSError as error:  # as after nohup, which leaves an input that cannot be read
        if promised:
            raise UsageError(f"Standard input cannot be read ({error.strerror}).") from error
        return None
    if not size and not ended:
        say(f"nothing came on standard input for {_BEGINS:.0f} s, so the question goes without it. {_WHEN_SLOW}")
    if b"\0" in head:
        raise UsageError(
            "Standard input is binary (it contains NUL bytes), not text, so nothing was asked.",
            fix="Pipe text, or give the question < /dev/null.",
        )
    if not head.strip():
        return None
    whole = counted(size, "byte") if ended else f"more than {min(size, MOST):,} bytes"
    if len(head) < size:
        try:
            head.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":  # a character that was cut in two goes
                head = head[: error.start]
    text = decoded(head, say)
    if len(head) == size and ended:
        say(f"{NAME} goes along with the question: {whole}.")
        return Attachment(NAME, text)
    part = f"the first {len(head):,} of {whole}"
    if ended or size >= MOST:
        say(f"{NAME} goes along with the question, cut: {part}.")
    else:
        say(f"{NAME} had not ended after {_ENDS:.0f} s; {part} go along with the question. {_WHEN_SLOW}")
    return Attachment(NAME, f"{text}\n[cut: {part}]")


def _hear(kept: int, *, begins: float | None, ends: float | None) -> tuple[bytes, int, bool]:
    """Read to the end, to MOST bytes or to the time limits, of which None is none; raises OSError.

    Gives the beginning of what came in, as much as is `kept`, how much it was, and whether it has ended.
    """
    head, size, ended, began, limit = b"", 0, False, time.monotonic(), begins
    arrived: queue.Queue[bytes | OSError] = queue.Queue(maxsize=4)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        chunk = b"more"
        while chunk:
            try:
                chunk = os.read(descriptor, _CHUNK)
            except BlockingIOError:  # whoever started this may have left the input without waiting
                import select

                select.select([descriptor], [], [])
                continue
            except OSError as error:
                arrived.put(error)
                return
            arrived.put(chunk)

    # a thread reads, as not every system can wait for a pipe; it ends with us
    threading.Thread(target=read, daemon=True).start()
    while size <= MOST and not ended:
        left = None if limit is None else max(0.0, began + limit - time.monotonic())
        try:
            chunk = arrived.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(chunk, OSError):
            raise chunk
        limit = ends
        head += chunk[: kept - len(head)]
        size += len(chunk)
        ended = not chunk
    return head, size, ended
