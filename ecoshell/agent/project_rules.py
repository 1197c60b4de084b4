"""The approvals and the trust that the user gave in each project.

They are stored in the user's data folder, because a file in the project could contain approvals.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import StoreError
from ecoshell.paths import is_special, make_private, remedy, replacement

_TRUST_ENTRY = re.compile(r"(?P<file>[^:]+):(?:trusted|refused):[0-9a-f]{64}")
"""An entry about a file, such as `AGENTS.md:trusted:SHA-256`."""


class ProjectRules:
    """The rules of all projects in one JSON file: `{"/path/of/project": ["write_file", …]}`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def rules(self, workspace: Path) -> tuple[str, ...]:
        """The approved rules of this project; raises StoreError if the file is damaged or unreadable."""
        entries = self._read().get(os.path.realpath(workspace), ())
        return tuple(entry for entry in entries if not _TRUST_ENTRY.fullmatch(entry))

    def allow(self, workspace: Path, rule: str) -> None:
        """Add a rule, and replace the file atomically; raises StoreError."""
        projects, project = self._read(), os.path.realpath(workspace)
        entries = projects.get(project, ())
        if rule not in entries:
            self._write({**projects, project: (*entries, rule)})

    def trusts(
        self, workspace: Path, text: str, *, file: str = "AGENTS.md"
    ) -> tuple[bool | None, bool]:
        """The user's decision about this text of a file, and whether an earlier text had one; raises StoreError.

        The decision is None without one.
        """
        entries = [
            entry
            for entry in self._read().get(os.path.realpath(workspace), ())
            if _is_about(entry, file)
        ]
        for trusted in (True, False):
            if _trust_entry(file, text, trusted=trusted) in entries:
                return trusted, False
        return None, bool(entries)

    def trust(self, workspace: Path, text: str, *, trusted: bool, file: str = "AGENTS.md") -> None:
        """Store the decision about this text of a file and drop the earlier one; raises StoreError."""
        projects, project = self._read(), os.path.realpath(workspace)
        others = (entry for entry in projects.get(project, ()) if not _is_about(entry, file))
        self._write({**projects, project: (*others, _trust_entry(file, text, trusted=trusted))})

    def _read(self) -> dict[str, tuple[str, ...]]:
        try:
            if is_special(self._file):  # reading a pipe would block
                raise ValueError("not a regular file")
            table: Any = json.loads(self._file.read_bytes())
            if not isinstance(table, dict):
                raise ValueError("not a JSON object")
            projects: dict[str, tuple[str, ...]] = {}
            for project, rules in cast("dict[str, Any]", table).items():
                if not isinstance(rules, list):
                    raise ValueError("rules are not a list")
                projects[project] = tuple(map(str, cast("list[Any]", rules)))
            return projects
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(
                f"{self._file} cannot be read ({error.strerror}).", fix="Make it readable."
            ) from error
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{self._file} is damaged.",
                kept="It was not changed.",
                fix="Move it away to start without rules.",
            ) from error

    def _write(self, projects: dict[str, tuple[str, ...]]) -> None:
        text = json.dumps(projects, indent=2, sort_keys=True) + "\n"
        try:
            make_private(self._file.parent)
            with replacement(self._file) as fresh:
                fresh.write(text.encode())
        except OSError as error:
            raise StoreError(
                f"{self._file} cannot be written ({error.strerror}).",
                kept="Your decision applies until this session ends.",
                fix=remedy(error, "Make the folder writable and decide again."),
            ) from error


def _is_about(entry: str, file: str) -> bool:
    match = _TRUST_ENTRY.fullmatch(entry)
    return match is not None and match["file"] == file.replace(":", "_")


def _trust_entry(file: str, text: str, *, trusted: bool) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{file.replace(':', '_')}:{'trusted' if trusted else 'refused'}:{digest}"
