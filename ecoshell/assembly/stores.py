"""The user's settings and databases."""

import functools
import math
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ecoshell.agent.dependencies import Profiles
from ecoshell.agent.experience import Experience
from ecoshell.assembly.plugins import plugins_of
from ecoshell.budget import parse_amount
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import StoreError, UsageError
from ecoshell.paths import Paths
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore
from ecoshell.sessions import SessionStore
from ecoshell.settings.schema import Settings
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import workspace_folder

if TYPE_CHECKING:  # imported on first use
    from ecoshell.planning.catp.costs import CostTable, ProfileStore

T = TypeVar("T")
_BUSY_SECONDS = 0.3
"""How long a turn waits for a file that another process is writing; the next use retries the write."""


def load_settings(paths: Paths) -> Settings:
    """Return the user's settings; raises SettingsError with file, line and key."""
    from ecoshell.settings import load_settings as load

    return load(paths.settings_file, os.environ).settings


def open_ledger(
    paths: Paths, settings: Settings | None = None, workspace: Path | None = None
) -> Ledger:
    """Open the user's ledger, or the shared one of `[budget] ledger`.

    Raises StoreError and UsageError.
    """
    address = None if settings is None else settings.budget.ledger
    if settings is None or address is None:
        return Ledger(paths.ledger_file)
    failures: list[str] = []
    scheme = address.partition(":")[0].lower()
    opener = plugins_of(settings, paths, failures.append).ledgers().get(scheme)
    if opener is None:
        problem = " ".join((f"No plugin opens a ledger at {scheme}://.", *failures))
        raise UsageError(problem, fix="Enable the plugin `team`, or correct [budget] ledger.")
    project = settings.budget.project or workspace_folder(workspace).name
    return opener(address, paths.ledger_file, project[:200])


def open_store(paths: Paths) -> SessionStore:
    """Open the user's sessions; raises StoreError."""
    return SessionStore(paths.sessions_file)


def undo_log(paths: Paths) -> UndoLog:
    """Return the log of file contents before each turn, with a new owner for the calling shell."""
    return UndoLog(paths.undo_folder, owner=secrets.token_hex(4))


def experience_of(paths: Paths) -> Experience:
    """Return the user's experience with tools; may block."""
    try:
        store = ExperienceStore(paths.experience_file, busy_seconds=_BUSY_SECONDS)
    except StoreError as failure:
        store = cast("ExperienceStore", _UnavailableStore(failure))
    return Experience(store, Past(store))


def profiles_of(settings: Settings, paths: Paths) -> Profiles:
    """Return the profiles of tools; their costs are 0 if price units have no price in the settings."""

    @functools.cache
    def costs() -> "CostTable":
        from ecoshell.planning.catp.costs import cost_table

        return cost_table(_read_profiles(paths, lambda store: store.runs()))

    if settings.plan.resource_price == "off":
        return Profiles(0, {}, costs)
    unit = parse_amount(settings.plan.resource_price).value
    profiles = _read_profiles(paths, lambda store: store.profiles())
    prices = {tool: math.ceil(unit * profile.usual) for tool, profile in profiles.items()}
    return Profiles(unit, prices, costs)


class _UnavailableStore:
    """Replaces a database that cannot be opened; any use raises the reason."""

    def __init__(self, failure: StoreError) -> None:
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        raise self._failure

    def close(self) -> None:
        """Do nothing: no file is open."""


def _read_profiles(paths: Paths, read: "Callable[[ProfileStore], dict[str, T]]") -> dict[str, T]:
    """Read the profiles; returns none if the file is missing or unreadable."""
    if not paths.profiles_file.is_file():
        return {}
    from ecoshell.planning.catp.costs import ProfileStore

    try:
        with closing(ProfileStore(paths.profiles_file, busy_seconds=_BUSY_SECONDS)) as store:
            return read(store)
    except StoreError:
        return {}
