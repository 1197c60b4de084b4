"""Keys: taken out of the environment, which every program of the user can read, and masked wherever they turn up.

What is masked are the values of variables that are named like a key, and keys that were found elsewhere: whole, and of
SHORTEST characters or more. A key that was written in another way (in Base64, with a blank in it) is not known again.
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
SHORTEST = 8
"""Characters; shorter values would blank out ordinary words."""
SECRET_NAME = re.compile(r"(API_?KEY|(^|_)(TOKEN|SECRET)|SECRET_.*KEY|PASSWORD|ACCESS_KEY(_ID)?)$", re.IGNORECASE)
_NOT_DUMPABLE = (4, 0)
"""PR_SET_DUMPABLE and its value: nobody but root may read this process's memory and environment."""

_taken: dict[str, str] = {}
_found: set[str] = set()
_of_environment: set[str] = set()
_known: tuple[str, ...] = ()
"""All of them, the longest first."""
_own = False

environ: Mapping[str, str] = ChainMap(cast("dict[str, str]", os.environ), _taken)
"""The environment with the keys that were taken out of it."""


def own_process() -> None:
    """Say that this process is ecoshell's own, so that its environment may be changed; a program that uses ecoshell's
    modules keeps its environment as it is."""
    global _own  # noqa: PLW0603 - as there is one environment
    _own = True


def begin() -> None:
    """Know the keys of the environment, and in a process of ecoshell's own hide them from other programs."""
    named = {value.strip() for name, value in environ.items() if SECRET_NAME.search(name)}
    _of_environment.clear()
    _of_environment.update(value for value in named if not value.isalpha())  # `postgres` is a password and a word
    _renew()
    if not _own:
        return
    close_process()
    names = [name for name in os.environ if SECRET_NAME.search(name)]
    _taken.update((name, os.environ[name]) for name in names)
    if sys.platform == "linux":  # where `/proc/PID/environ` would still show them
        with contextlib.suppress(OSError, AttributeError, ImportError, ValueError):
            import ctypes

            block = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
            at, secret = 0, {os.fsencode(name) for name in names}
            while (place := block[at]) is not None:
                name, equals, value = ctypes.string_at(place).partition(b"=")
                if equals and name in secret:
                    ctypes.memset(place + len(name) + 1, ord(" "), len(value))
                at += 1
    for name in names:
        del os.environ[name]


def learn(key: str) -> None:
    """Know a key from now on."""
    if key not in _found:
        _found.add(key)
        _renew()


def taken() -> dict[str, str]:
    """The variables that were taken out of the environment, for a helper of ecoshell's own."""
    return dict(_taken)


def close_process() -> None:
    """Let no other program of this user look into this process, where the system knows how (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError, ImportError):
            import ctypes  # some milliseconds, which `ecoshell --version` need not take

            ctypes.CDLL(None).prctl(*_NOT_DUMPABLE, 0, 0, 0)


def masked(value: T) -> T:
    """The same without any known key, also in what it consists of; the very same object where there is none in it."""
    same: Any = value
    if not _known:
        return value
    if isinstance(same, str):
        for key in _known:
            if key in same:
                same = same.replace(key, MARK)
        return cast("T", same)
    if isinstance(same, Mapping):
        mapping = cast("Mapping[Any, Any]", same)
        clean = [(masked(name), masked(one)) for name, one in mapping.items()]
        unchanged = all(name is old and one is mapping[old] for (name, one), old in zip(clean, mapping, strict=True))
        return value if unchanged else cast("T", dict(clean))
    if type(same) in (list, tuple):
        items = [masked(one) for one in cast("list[Any]", same)]
        unchanged = all(one is other for one, other in zip(items, same, strict=True))
        return value if unchanged else type(same)(items)
    if dataclasses.is_dataclass(same) and not isinstance(same, type):
        known = (field for field in dataclasses.fields(same) if field.init and not field.metadata.get("opaque"))
        fields = {field.name: getattr(same, field.name) for field in known}
        changed = {name: clean for name, one in fields.items() if (clean := masked(one)) is not one}
        return cast("T", dataclasses.replace(same, **changed)) if changed else value
    return value


@dataclasses.dataclass(eq=False)
class MaskedStream:
    """A text that arrives in pieces: what could be the beginning of a key waits for what follows."""

    _waiting: str = dataclasses.field(default="", repr=False)

    def feed(self, piece: str) -> str:
        """What can be told by now."""
        if not _known:
            return piece
        text, self._waiting = self._waiting + piece, ""
        told: list[str] = []
        at = 0
        while at < len(text):
            rest = text[at : at + len(_known[0])]
            if any(len(key) > len(rest) and key.startswith(rest) for key in _known):
                self._waiting = text[at:]
                break
            key = next((key for key in _known if rest.startswith(key)), "")
            told.append(MARK if key else text[at])
            at += len(key) or 1
        return "".join(told)

    def end(self) -> str:
        """What still waited, once nothing follows."""
        text, self._waiting = masked(self._waiting), ""
        return text


def _renew() -> None:
    global _known  # noqa: PLW0603 - what is masked is one thing in a process, as its environment is
    _known = tuple(sorted((key for key in _found | _of_environment if len(key) >= SHORTEST), key=len, reverse=True))
