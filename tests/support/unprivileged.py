"""Being nobody for a while: the superuser may write everywhere, and some tests are about what cannot be written."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def read_only_folder(*files: Path) -> Iterator[Path]:
    """A folder with copies of these files in which this process cannot write anything until the end."""
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
def closed(folder: Path, *, named: bool = False) -> Iterator[None]:
    """While it lasts, whoever is nobody cannot even look into a folder, or see no more of it than names."""
    me = os.geteuid()
    os.seteuid(os.getuid())
    folder.chmod(0o444 if named else 0 if os.getuid() else 0o700)
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
