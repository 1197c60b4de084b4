"""What names of local models stand for: `embedded`, `local:BASE.gguf`, either with `+ADAPTER.gguf`, and `hf:…`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ecoshell.errors import UsageError
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.embedded import embedded_path
from ecoshell.models.gguf_places import ModelFile, hub_file
from ecoshell.models.hub_names import HUB, hub_name
from ecoshell.paths import user_paths

LOCAL = "local:"
_PLUS = "+"
_ADAPTED = re.compile(rf"({EMBEDDED}|{LOCAL}.*?\.(?i:gguf))\+(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a local model; whether they exist is not said."""

    base: Path
    adapter: Path | None = None


def is_local(name: str) -> bool:
    """Whether the name is of a model that runs in this process."""
    return is_embedded(name) or name.startswith((LOCAL, HUB))


def local_name(file: ModelFile) -> str:
    """What a model is called that is in a file."""
    return str(file.hub) if file.hub and not file.missing else f"{LOCAL}{file.path}"


def is_embedded(name: str) -> bool:
    """Whether the name is of the embedded model, with an adapter or without."""
    return name == EMBEDDED or name.startswith(EMBEDDED + _PLUS)


def name_parts(name: str) -> tuple[str, str]:
    """A model's name and the file of its adapter, as the name reads; empty where it has none. No file is looked for."""
    parts = _ADAPTED.fullmatch(name)
    return (parts[1], parts[2]) if parts else (name, "")


def local_files(name: str) -> LocalFiles | None:
    """The files a name stands for, None where it is no local model's; raises ModelMissing and UsageError.

    What `hf:OWNER/REPO:QUANT` stands for is looked for where it is pulled to, and in the hub's cache.

    A `+` may stand in file names, too: a file that has the whole name comes first, then the first `+` that parts two
    files, then the first behind a file, or at least behind what should be one.
    """
    if is_embedded(name):
        return _with_adapter(name, embedded_path(), name[len(EMBEDDED) :])
    if name.startswith(HUB):
        return LocalFiles(hub_file(hub_name(name), user_paths().models_folder))
    if not name.startswith(LOCAL):
        return None
    text = name.removeprefix(LOCAL)
    whole = Path(text).expanduser()
    parts = [(text[:place], text[place:]) for place, sign in enumerate(text) if sign == _PLUS]
    if not parts or os.path.isfile(whole):  # noqa: PTH113
        return LocalFiles(whole)
    base, rest = max(parts, key=lambda part: _likelihood(*part))  # of equals the first
    return _with_adapter(name, Path(base).expanduser(), rest) if any(_likelihood(base, rest)) else LocalFiles(whole)


def _with_adapter(name: str, base: Path, rest: str) -> LocalFiles:
    """`rest` is what follows the base: nothing, or a plus and a path."""
    if rest == _PLUS:
        raise UsageError(f"{name} names no adapter after the +.", fix=f"Write {name}ADAPTER.gguf, or leave the + out.")
    return LocalFiles(base, Path(rest.removeprefix(_PLUS)).expanduser() if rest else None)


def _likelihood(base: str, rest: str) -> tuple[bool, bool, bool]:
    """How likely a part of a name is a base, and what follows it its adapter."""
    found = os.path.isfile(Path(base).expanduser())  # noqa: PTH113
    both = found and os.path.isfile(Path(rest.removeprefix(_PLUS)).expanduser())  # noqa: PTH113
    return found, both, base.lower().endswith(".gguf")
