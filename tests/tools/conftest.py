import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ecoshell.tools.workspace import Workspace

NOBODY = 65534


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder next to the workspace that contains a secret."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("do not read me")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "workspace"
    root.mkdir()
    return Workspace(root)


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Run as an unprivileged user, also if the tests run as root; `folder` stays accessible."""
    if os.geteuid() != 0:
        yield
        return
    for parent in (folder, *folder.parents):  # pytest's own folders are private
        if parent == Path(tempfile.gettempdir()):
            break
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o055)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def unprivileged(workspace: Workspace) -> Callable[[], AbstractContextManager[None]]:
    return lambda: without_privileges(workspace.root)
