"""Drops the superuser's rights temporarily, because some tests need files that cannot be written."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def read_only_folder(*files: Path) -> Iterator[Path]:
    """A folder with copies of these files that this process cannot write to."""
    folder = Path(tempfile.mkdtemp())
    try:
        for file in files:
            shutil.copy(file, folder / file.name)
            (folder / file.name).chmod(0o444)
        folder.chmod(0o555)
        with _nobody():
            yield folder
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@contextmanager
def closed(folder: Path, *, is_listable: bool = False) -> Iterator[None]:
    """Make a folder unreadable for the dropped user, or let that user list its names only."""
    me = os.geteuid()
    os.seteuid(os.getuid())
    folder.chmod(0o444 if is_listable else 0 if os.getuid() else 0o700)
    os.seteuid(me)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o555)
        os.seteuid(me)


@contextmanager
def _nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
