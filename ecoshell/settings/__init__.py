"""The settings: a TOML file and `ECOSHELL_*` variables, and what a person allowed in a project.

The modules need pydantic, which must not be loaded before the first frame: import them inside functions. What was
allowed in a project stands here, and is kept in the person's own data folder, not in the project: or a repository could
come with its own approvals.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import StoreError
from ecoshell.paths import is_special, make_private, remedy, replacement

_INSTRUCTIONS = "AGENTS.md:"
"""Begins what was said of a project's instructions, which no tool's name can: `AGENTS.md:trusted:SHA-256`."""


class ProjectRules:
    """The approval rules of all projects in one JSON file: `{"/path/of/project": ["write_file", …]}`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def rules(self, workspace: Path) -> tuple[str, ...]:
        """What is allowed in this project; raises StoreError when the file is damaged or cannot be read."""
        kept = self._read().get(os.path.realpath(workspace), ())
        return tuple(rule for rule in kept if not rule.startswith(_INSTRUCTIONS))

    def allow(self, workspace: Path, rule: str) -> None:
        """Add a rule; the file is replaced as a whole. Raises StoreError when it cannot be."""
        everything, project = self._read(), os.path.realpath(workspace)
        kept = everything.get(project, ())
        if rule not in kept:
            self._write({**everything, project: (*kept, rule)})

    def trusts(self, workspace: Path, text: str) -> bool | None:
        """What was said of these instructions of the project; None where it is not known. Raises StoreError."""
        said = self._said(workspace)
        trusted, refused = (_word(text, trusted=told) for told in (True, False))
        return said == trusted if said in (trusted, refused) else None

    def asked(self, workspace: Path) -> bool:
        """Whether something was said of instructions of the project, these or others; raises StoreError."""
        return bool(self._said(workspace))

    def trust(self, workspace: Path, text: str, *, trusted: bool) -> None:
        """Keep what is said of these instructions, in the place of what was said of others; raises StoreError."""
        everything, project = self._read(), os.path.realpath(workspace)
        others = (rule for rule in everything.get(project, ()) if not rule.startswith(_INSTRUCTIONS))
        self._write({**everything, project: (*others, _word(text, trusted=trusted))})

    def _said(self, workspace: Path) -> str:
        """What is kept of the project's instructions; empty where nothing was said."""
        kept = self._read().get(os.path.realpath(workspace), ())
        return next((rule for rule in kept if rule.startswith(_INSTRUCTIONS)), "")

    def _read(self) -> dict[str, tuple[str, ...]]:
        try:
            if is_special(self._file):  # a pipe would be waited for
                raise ValueError("it is no file")
            table: Any = json.loads(self._file.read_bytes())
            if not isinstance(table, dict):
                raise ValueError("it is no table")
            found: dict[str, tuple[str, ...]] = {}
            for project, rules in cast("dict[str, Any]", table).items():
                if not isinstance(rules, list):
                    raise ValueError("it has no list of rules")
                found[project] = tuple(map(str, cast("list[Any]", rules)))
            return found
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._file} cannot be read ({error.strerror}).", fix="Make it readable.") from error
        except (ValueError, RecursionError) as error:
            kept, fix = "It was left as it is.", "Move it away to start with no rules."
            raise StoreError(f"{self._file} is damaged.", kept=kept, fix=fix) from error

    def _write(self, everything: dict[str, tuple[str, ...]]) -> None:
        text = json.dumps(everything, indent=2, sort_keys=True) + "\n"
        try:
            make_private(self._file.parent)
            with replacement(self._file) as fresh:
                fresh.write(text.encode())
        except OSError as error:
            raise StoreError(
                f"{self._file} cannot be written ({error.strerror}).",
                kept="What you said holds until this session ends.",
                fix=remedy(error, "Make the folder writable and say it again."),
            ) from error


def _word(text: str, *, trusted: bool) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{_INSTRUCTIONS}{'trusted' if trusted else 'refused'}:{digest}"
