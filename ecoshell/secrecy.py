"""Secrets: removed from the environment, which other programs of the user can read, and masked in all output.

A secret is the value of a variable whose name looks like one, or a key added with `add_secret`. Only the exact text is
masked, from MIN_KEY_CHARACTERS on; an encoded or split key is not recognized.
"""

import contextlib
import dataclasses
import os
import re
import sys
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")

MARK = "[key hidden]"
MIN_KEY_CHARACTERS = 8
"""Shorter values would mask ordinary words."""
SECRET_NAME = re.compile(
    r"(API_?KEY|(^|_)(TOKEN|SECRET)|SECRET_.*KEY|PASSWORD|ACCESS_KEY(_ID)?)$", re.IGNORECASE
)
_WITHOUT_TEXT = frozenset((int, float, bool, type(None)))
"""Types of parts that are not searched for secrets; most fields of events have them."""
_NOT_DUMPABLE = (4, 0)
"""PR_SET_DUMPABLE and its value: only root may read this process's memory and environment."""

_removed: dict[str, str] = {}
_added_secrets: set[str] = set()
_environment_secrets: set[str] = set()
_secrets: tuple[str, ...] = ()
"""All secrets, the longest first."""
_is_own_process = False

environ: Mapping[str, str] = ChainMap(cast("dict[str, str]", os.environ), _removed)
"""The environment, including the variables removed from `os.environ`."""


def claim_process() -> None:
    """Mark this process as ecoshell's own, so that `protect_secrets` may change its environment.

    A program that imports ecoshell's modules keeps its environment unchanged.
    """
    global _is_own_process  # noqa: PLW0603 - a process has one environment
    _is_own_process = True


def protect_secrets() -> None:
    """Register the environment's secrets; in ecoshell's own process, also remove them from the environment."""
    values = {value.strip() for name, value in environ.items() if SECRET_NAME.search(name)}
    _environment_secrets.clear()
    # `postgres` is also a word
    _environment_secrets.update(value for value in values if not value.isalpha())
    _update_secrets()
    if not _is_own_process:
        return
    close_process()
    names = [name for name in os.environ if SECRET_NAME.search(name)]
    _removed.update((name, os.environ[name]) for name in names)
    if sys.platform == "linux":  # `/proc/PID/environ` would still show them
        with contextlib.suppress(OSError, AttributeError, ImportError, ValueError):
            import ctypes

            block = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
            index, secret_names = 0, {os.fsencode(name) for name in names}
            while (address := block[index]) is not None:
                name, equals, value = ctypes.string_at(address).partition(b"=")
                if equals and name in secret_names:
                    ctypes.memset(address + len(name) + 1, ord(" "), len(value))
                index += 1
    for name in names:
        del os.environ[name]


def add_secret(key: str) -> None:
    """Mask this key from now on."""
    if key not in _added_secrets:
        _added_secrets.add(key)
        _update_secrets()


def removed_variables() -> dict[str, str]:
    """Return the variables removed from the environment, for ecoshell's own helper processes."""
    return dict(_removed)


def close_process() -> None:
    """Prevent other programs of this user from inspecting this process (Linux only)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError, ImportError):
            import ctypes  # takes milliseconds, which `ecoshell --version` need not spend

            ctypes.CDLL(None).prctl(*_NOT_DUMPABLE, 0, 0, 0)


def mask_secrets(value: T) -> T:
    """Replace every known secret in a value and in its parts; returns the same object if it contains no secret."""
    same: Any = value
    if not _secrets:
        return value
    if isinstance(same, str):
        for secret in _secrets:
            if secret in same:
                same = same.replace(secret, MARK)
        return cast("T", same)
    if isinstance(same, Mapping):
        mapping = cast("Mapping[Any, Any]", same)
        clean = [(mask_secrets(name), mask_secrets(item)) for name, item in mapping.items()]
        unchanged = all(
            name is old and item is mapping[old]
            for (name, item), old in zip(clean, mapping, strict=True)
        )
        return value if unchanged else cast("T", dict(clean))
    if type(same) in (list, tuple):
        items = [
            item if type(item) in _WITHOUT_TEXT else mask_secrets(item)
            for item in cast("list[Any]", same)
        ]
        unchanged = all(item is old for item, old in zip(items, same, strict=True))
        return value if unchanged else type(same)(items)
    if dataclasses.is_dataclass(same) and not isinstance(same, type):
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(same):
            if field.init and not field.metadata.get("opaque"):
                item = getattr(same, field.name)
                if type(item) in _WITHOUT_TEXT:
                    continue
                if (clean := mask_secrets(item)) is not item:
                    changed[field.name] = clean
        return cast("T", dataclasses.replace(same, **changed)) if changed else value
    return value


@dataclasses.dataclass(eq=False)
class MaskedStream:
    """Masks a text that arrives in pieces; a possible start of a secret waits for the next piece."""

    _waiting: str = dataclasses.field(default="", repr=False)

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that is safe to show."""
        if not _secrets:
            return piece
        text, self._waiting = self._waiting + piece, ""
        output: list[str] = []
        position = 0
        while position < len(text):
            window = text[position : position + len(_secrets[0])]
            if any(len(secret) > len(window) and secret.startswith(window) for secret in _secrets):
                self._waiting = text[position:]
                break
            secret = next((secret for secret in _secrets if window.startswith(secret)), "")
            output.append(MARK if secret else text[position])
            position += len(secret) or 1
        return "".join(output)

    def end(self) -> str:
        """Return the waiting text when no further piece follows."""
        text, self._waiting = mask_secrets(self._waiting), ""
        return text


def _update_secrets() -> None:
    global _secrets  # noqa: PLW0603 - secrets belong to the process
    long_enough = (
        key for key in _added_secrets | _environment_secrets if len(key) >= MIN_KEY_CHARACTERS
    )
    _secrets = tuple(sorted(long_enough, key=len, reverse=True))
