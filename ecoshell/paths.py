"""Where ecoshell keeps its files, under platformdirs' folders or `ECOSHELL_HOME`, and files replaced whole or not."""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO


class Paths:
    """The three folders of one user, and the files and folders in them."""

    def __init__(self, config: Path, data: Path, cache: Path) -> None:
        self.config = config
        self.data = data
        self.cache = cache
        self.settings_file = config / "config.toml"
        self.instructions_file = config / "AGENTS.md"
        """What the user wants of the agent in every project."""
        self.plugins_folder = config / "plugins"
        """Where a user's own plugins are looked for."""
        self.ledger_file = data / "ledger.sqlite"
        self.sessions_file = data / "sessions.sqlite"
        self.experience_file = data / "experience.sqlite"
        self.profiles_file = data / "profiles.sqlite"
        """What `ecoshell profile` has measured."""
        self.judge_file = data / "judge.json"
        """The weights of the classifier that `ecoshell experience train` makes."""
        self.mcp_folder = cache / "mcp"
        """What servers have listed when they were last connected to."""
        self.files_folder = data / "files"
        """What came with results and is no text, such as images, by session."""
        self.approvals_file = data / "approvals.json"
        self.run_folder = cache / "run"
        """Sockets and locks of processes that outlive a command."""
        self.models_folder = data / "models"
        """Where a user's own GGUF files are looked for."""
        self.undo_folder = data / "undo"
        self.history_file = data / "history.txt"
        self.draft_file = data / "draft.txt"

    @classmethod
    def under(cls, home: str | Path) -> "Paths":
        """All three below one folder."""
        root = expanded(home).absolute()
        return cls(root / "config", root / "data", root / "cache")


def user_paths() -> Paths:
    """The folders of the user who runs this process; nothing is created."""
    home = os.environ.get("ECOSHELL_HOME")
    if home:
        return Paths.under(home)
    from platformdirs import PlatformDirs  # not needed when a home is given

    folders = PlatformDirs("ecoshell", appauthor=False)
    return Paths(folders.user_config_path, folders.user_data_path, folders.user_cache_path)


def expanded(path: str | Path) -> Path:
    """The path with a home folder in the place of `~` or `~NAME`; as it is written where there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib raises where there is none


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner alone; raises OSError.

    One that is there is left as it is; only a folder that is ecoshell's by its place is closed to others. What stands
    under `ECOSHELL_HOME` is where the user wanted it.
    """
    missing = [*takewhile(lambda one: not one.exists(), (folder, *folder.parents))]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # says so where a file has its name
    if missing or os.environ.get("ECOSHELL_HOME") or os.name != "posix":
        return
    paths = user_paths()
    if folder in (paths.config, paths.data):
        with suppress(OSError):
            found = folder.stat()
            if found.st_uid == os.geteuid() and found.st_mode & 0o077:  # one of somebody else stays as it is
                folder.chmod(stat.S_IMODE(found.st_mode) & 0o700)


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
