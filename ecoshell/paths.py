"""Where ecoshell keeps its files: platformdirs' folders, or all under `ECOSHELL_HOME`."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """The three folders of one user."""

    config: Path
    data: Path
    cache: Path

    @classmethod
    def under(cls, home: str | Path) -> "Paths":
        """All three below one folder."""
        root = Path(home).expanduser().absolute()
        return cls(root / "config", root / "data", root / "cache")

    @property
    def settings_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def instructions_file(self) -> Path:
        """What the user wants of the agent in every project."""
        return self.config / "AGENTS.md"

    @property
    def plugins_folder(self) -> Path:
        """Where a user's own plugins are looked for."""
        return self.config / "plugins"

    @property
    def ledger_file(self) -> Path:
        return self.data / "ledger.sqlite"

    @property
    def sessions_file(self) -> Path:
        return self.data / "sessions.sqlite"

    @property
    def experience_file(self) -> Path:
        return self.data / "experience.sqlite"

    @property
    def profiles_file(self) -> Path:
        """What `ecoshell profile` has measured."""
        return self.data / "profiles.sqlite"

    @property
    def judge_file(self) -> Path:
        """The weights of the classifier that `ecoshell experience train` makes."""
        return self.data / "judge.json"

    @property
    def mcp_folder(self) -> Path:
        """What servers have listed when they were last connected to."""
        return self.cache / "mcp"

    @property
    def files_folder(self) -> Path:
        """What came with results and is no text, such as images, by session."""
        return self.data / "files"

    @property
    def approvals_file(self) -> Path:
        return self.data / "approvals.json"

    @property
    def models_folder(self) -> Path:
        """Where a user's own GGUF files are looked for."""
        return self.data / "models"

    @property
    def undo_folder(self) -> Path:
        return self.data / "undo"

    @property
    def history_file(self) -> Path:
        return self.data / "history.txt"

    @property
    def draft_file(self) -> Path:
        return self.data / "draft.txt"

    @property
    def state_file(self) -> Path:
        return self.data / "screen.json"


def user_paths() -> Paths:
    """The folders of the user who runs this process; nothing is created."""
    home = os.environ.get("ECOSHELL_HOME")
    if home:
        return Paths.under(home)
    from platformdirs import PlatformDirs  # not needed when a home is given

    folders = PlatformDirs("ecoshell", appauthor=False)
    return Paths(folders.user_config_path, folders.user_data_path, folders.user_cache_path)


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner alone; raises OSError.

    One that is there is left as it is; only a folder that is ecoshell's by its place is closed to others. What stands
    under `ECOSHELL_HOME` is where the user wanted it.
    """
    missing = [*takewhile(lambda one: not one.exists(), (folder, *folder.parents))]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # says so where a file has its name
    if not missing and not os.environ.get("ECOSHELL_HOME") and os.name == "posix":
        _close(folder)


def _close(folder: Path) -> None:
    """Keep others out of a folder of ecoshell's own; one that belongs to somebody else stays as it is."""
    paths = user_paths()
    if folder in (paths.config, paths.data):
        with suppress(OSError):
            found = folder.stat()
            if found.st_uid == os.geteuid() and found.st_mode & 0o077:
                folder.chmod(stat.S_IMODE(found.st_mode) & 0o700)
