"""Paths of ecoshell's files, under platformdirs' folders or `ECOSHELL_HOME`, and atomic replacement of files."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

HOOKS_FILE = ".ecoshell/hooks.toml"
"""The hooks of a workspace."""
SKILL_FOLDERS = (".ecoshell/skills", ".claude/skills")
"""Folders of skills in a workspace."""


class Paths:
    """The configuration, data and cache folders of one user, and the files in them."""

    def __init__(self, config: Path, data: Path, cache: Path) -> None:
        self.config = config
        self.data = data
        self.cache = cache
        self.settings_file = config / "config.toml"
        self.instructions_file = config / "AGENTS.md"
        """The user's instructions for the agent in every project."""
        self.plugins_folder = config / "plugins"
        self.commands_folder = config / "commands"
        """The user's slash commands, one Markdown file each."""
        self.agents_folder = config / "agents"
        """The user's definitions of agents for the tool `task`."""
        self.skills_folder = config / "skills"
        self.ledger_file = data / "ledger.sqlite"
        self.sessions_file = data / "sessions.sqlite"
        self.experience_file = data / "experience.sqlite"
        self.profiles_file = data / "profiles.sqlite"
        """Measurements of `ecoshell profile`."""
        self.judge_file = data / "judge.json"
        """Weights of the classifier trained by `ecoshell experience train`."""
        self.mcp_folder = cache / "mcp"
        """The last tool lists of MCP servers."""
        self.files_folder = data / "files"
        """Images and other binary results, by session."""
        self.approvals_file = data / "approvals.json"
        self.run_folder = cache / "run"
        """Sockets and locks of processes that outlive a command."""
        self.models_folder = data / "models"
        """The user's GGUF files."""
        self.undo_folder = data / "undo"
        self.history_file = data / "history.txt"
        self.draft_file = data / "draft.txt"

    @classmethod
    def under(cls, home: str | Path) -> "Paths":
        """Place all three folders below one folder."""
        root = expanded(home).absolute()
        return cls(root / "config", root / "data", root / "cache")


def user_paths() -> Paths:
    """Return the folders of the current user; creates nothing."""
    home = os.environ.get("ECOSHELL_HOME")
    if home:
        return Paths.under(home)
    from platformdirs import PlatformDirs  # not needed with ECOSHELL_HOME

    folders = PlatformDirs("ecoshell", appauthor=False)
    return Paths(folders.user_config_path, folders.user_data_path, folders.user_cache_path)


def expanded(path: str | Path) -> Path:
    """Expand `~` and `~NAME`; an unknown user's path stays unchanged."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib raises for an unknown user


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents for its owner alone; raises OSError.

    An existing folder keeps its mode, except ecoshell's default folders, which are closed to other users.
    """
    missing = [*takewhile(lambda path: not path.exists(), (folder, *folder.parents))]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises if a file has this name
    if missing or os.environ.get("ECOSHELL_HOME") or os.name != "posix":
        return
    paths = user_paths()
    if folder in (paths.config, paths.data):
        with suppress(OSError):
            status = folder.stat()
            # another user's folder stays as it is
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                folder.chmod(stat.S_IMODE(status.st_mode) & 0o700)


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers for a file that cannot grow."""


def remedy(error: OSError, otherwise: str) -> str:
    """Return the fix for a failed write: free space if the disk is full, else `otherwise`."""
    return "Free some space and try again." if error.errno in NO_ROOM else otherwise


@contextmanager
def replacement(file: Path, mode: int = 0o600) -> Generator[BinaryIO]:
    """Write a new file that replaces the old one when the block ends without an error.

    A killed process leaves the old or the new file, and perhaps a temporary next to it. Raises OSError.
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


def is_special(file: Path) -> bool:
    """Whether the path is neither a file nor a folder; opening a pipe, say, could block forever."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):  # opening it reports the reason
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
