"""What a person allowed always in one project: kept in the user's own data folder, by the project's path.

It is not kept in the project, or a repository could come with its own approvals.
"""

import json
import os
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import StoreError
from ecoshell.files import replacement
from ecoshell.paths import make_private


class ProjectRules:
    """The approval rules of all projects in one JSON file: `{"/path/of/project": ["write_file", …]}`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def rules(self, workspace: Path) -> tuple[str, ...]:
        """What is allowed in this project; raises StoreError when the file is damaged or cannot be read."""
        return self._read().get(_key(workspace), ())

    def allow(self, workspace: Path, rule: str) -> None:
        """Add a rule; the file is replaced as a whole. Raises StoreError when it cannot be."""
        everything = self._read()
        key = _key(workspace)
        if rule in everything.get(key, ()):
            return
        everything[key] = (*everything.get(key, ()), rule)
        self._write(everything)

    def _read(self) -> dict[str, tuple[str, ...]]:
        try:
            content: object = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._file} cannot be read ({error.strerror}).", fix="Make it readable.") from error
        except ValueError as error:
            raise self._damaged() from error
        if not isinstance(content, dict):
            raise self._damaged()
        table = cast("dict[str, Any]", content)
        if not all(isinstance(rules, list) for rules in table.values()):
            raise self._damaged()
        return {project: tuple(str(rule) for rule in rules) for project, rules in table.items()}

    def _write(self, everything: dict[str, tuple[str, ...]]) -> None:
        text = json.dumps(everything, indent=2, sort_keys=True) + "\n"
        try:
            make_private(self._file.parent)
            with replacement(self._file) as fresh:
                fresh.write(text.encode())
        except OSError as error:
            raise StoreError(
                f"{self._file} cannot be written ({error.strerror}).",
                kept="The rule holds until this session ends.",
                fix="Make the folder writable and allow it again.",
            ) from error

    def _damaged(self) -> StoreError:
        return StoreError(
            f"{self._file} is damaged.", kept="It was left as it is.", fix="Move it away to start with no rules."
        )


def _key(workspace: Path) -> str:
    return os.path.realpath(workspace)
