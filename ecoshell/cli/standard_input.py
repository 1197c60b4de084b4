"""Reads standard input: the question, or text that accompanies it."""

import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from ecoshell.agent.mentions import FILE_BYTES
from ecoshell.budget import counted
from ecoshell.errors import UsageError
from ecoshell.messages import Attachment

NAME = "standard input"
MAX_BYTES = 16_000_000
_START_SECONDS, _END_SECONDS = 3.0, 60.0
"""Time limits of an input that was not announced: services are often started with an open pipe that stays empty."""
_CHUNK_BYTES = 65_536
_SLOW_INPUT_FIX = (
    "End the question with - to wait for its end, or use < /dev/null to ask without it."
)


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes of standard input; `head` is the kept beginning of `size` bytes."""

    head: bytes
    size: int
    ended: bool


def decode(content: bytes, warn: Callable[[str], None]) -> str:
    """Decode UTF-8; invalid bytes are replaced, with a warning."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        warn(
            "the input is not valid UTF-8; invalid bytes were replaced by \N{REPLACEMENT CHARACTER}"
        )
        return content.decode("utf-8", errors="replace")


def unreadable(error: OSError) -> UsageError:
    """Return the error for a standard input that cannot be read, as after nohup."""
    return UsageError(
        f"Standard input cannot be read ({error.strerror}).", fix="Pipe text, or give the question."
    )


def read_question_text(warn: Callable[[str], None]) -> str:
    """Read the question itself; raises UsageError."""
    try:
        content = _read(MAX_BYTES)
    except OSError as error:
        raise unreadable(error) from error
    if not content.ended:
        message = f"The question on standard input has more than {MAX_BYTES:,} bytes."
        raise UsageError(message, fix="Ask a shorter one.")
    return decode(content.head, warn)


def read_attachment(say: Callable[[str], None], *, announced: bool) -> Attachment | None:
    """Read piped text that accompanies a question; None without any. Raises UsageError if it is not text.

    `announced` input is read from a terminal, too, and without time limits. `say` reports its size.
    """
    if sys.stdin.isatty() and not announced:
        return None
    start_seconds, end_seconds = (None, None) if announced else (_START_SECONDS, _END_SECONDS)
    try:
        content = _read(FILE_BYTES, start_seconds=start_seconds, end_seconds=end_seconds)
    except OSError as error:  # as after nohup
        if announced:
            raise unreadable(error) from error
        return None
    if not content.size and not content.ended:
        say(
            f"no data on standard input for {_START_SECONDS:.0f} s; asking without it. {_SLOW_INPUT_FIX}"
        )
    if b"\0" in content.head:
        message = "Standard input is binary (it contains NUL bytes)."
        fix = "Pipe text, or give the question < /dev/null."
        raise UsageError(message, kept="Nothing was asked.", fix=fix)
    if not content.head.strip():
        return None
    return _attachment(content, say)


def _attachment(content: Input, say: Callable[[str], None]) -> Attachment:
    size, head, complete = content.size, content.head, content.ended
    total = counted(size, "byte") if complete else f"more than {min(size, MAX_BYTES):,} bytes"
    if len(head) < size:
        head = _without_cut_character(head)
    text = decode(head, say)
    if len(head) == size and complete:
        say(f"attached {NAME}: {total}.")
        return Attachment(NAME, text)
    part = f"the first {len(head):,} of {total}"
    if complete or size >= MAX_BYTES:
        say(f"attached {NAME}, cut: {part}.")
    else:
        say(f"{NAME} did not end within {_END_SECONDS:.0f} s; attached {part}. {_SLOW_INPUT_FIX}")
    return Attachment(NAME, f"{text}\n[cut: {part}]")


def _without_cut_character(head: bytes) -> bytes:
    """Drop a character whose last bytes are missing."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return head[: error.start]
    return head


def _read(
    kept_bytes: int, *, start_seconds: float | None = None, end_seconds: float | None = None
) -> Input:
    """Read to the end, to MAX_BYTES or to a time limit, keeping the first bytes; raises OSError.

    The limits are the seconds until the first byte, and until the end; None waits forever.
    """
    descriptor = sys.stdin.fileno()
    head, size, started, limit = b"", 0, time.monotonic(), start_seconds
    while size <= MAX_BYTES:
        seconds_left = None if limit is None else max(0.0, started + limit - time.monotonic())
        if not select.select([descriptor], [], [], seconds_left)[0]:
            break
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return Input(head, size, ended=True)
        limit = end_seconds
        head += chunk[: kept_bytes - len(head)]
        size += len(chunk)
    return Input(head, size, ended=False)
