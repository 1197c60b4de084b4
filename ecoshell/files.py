"""Files that are replaced whole or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacement(file: Path, mode: int = 0o600) -> Generator[BinaryIO]:
    """A new file of this mode that takes the old one's place when the block ends well.

    A killed process leaves one or the other. Raises OSError.
    """
    fresh = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        fresh.chmod(mode)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
