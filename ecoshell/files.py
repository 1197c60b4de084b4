"""Files that are replaced whole or not at all, and disks that are full."""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where a file cannot grow."""
_SETTLED = 5.0
"""Seconds of age from which a temporary that nobody has locked is nobody's: a younger one may be locked in a moment."""


def remedy(error: OSError, otherwise: str) -> str:
    """What to do about a file that could not be written: make room where that is missing, else what is said here."""
    return "Free some space and try again." if error.errno in NO_ROOM else otherwise


@contextmanager
def replacement(file: Path, mode: int = 0o600) -> Generator[BinaryIO]:
    """A new file of this mode that takes the old one's place when the block ends well.

    A killed process leaves one or the other, and a temporary that the next replacement removes. Raises OSError.
    """
    temporary = re.compile(rf"\.{re.escape(file.name)}\.[0-9a-f]{{12}}")
    with suppress(OSError):  # what killed processes have left beside the file goes
        for one in file.parent.iterdir():
            if temporary.fullmatch(one.name):
                with suppress(OSError), one.open("rb") as left:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its writer lives
                    if time.time() - os.fstat(left.fileno()).st_mtime > _SETTLED:
                        one.unlink()
    fresh = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
            fresh.chmod(mode)
            fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def is_special(file: Path) -> bool:
    """Whether there is neither a file nor a folder, but, say, a pipe: opening it could wait for ever."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):  # opening it says why
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
