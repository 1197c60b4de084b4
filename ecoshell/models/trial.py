"""A GGUF file is tried in a process of its own first: on some damaged ones llama.cpp ends the process."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ecoshell.errors import ModelBroken, ModelMissing
from ecoshell.files import replacement
from ecoshell.models.embedded import embedded_path
from ecoshell.paths import make_private, user_paths

_TRY = """
import os, sys
from llama_cpp import llama_cpp as library
library.llama_backend_init()
params = library.llama_model_default_params()
params.n_gpu_layers = 0
model = library.llama_model_load_from_file(os.fsencode(sys.argv[1]), params)
if model:
    sizes = library.llama_context_default_params()
    sizes.n_ctx = sizes.n_batch = sizes.n_ubatch = 32
    context = library.llama_init_from_model(model, sizes)
    if context:
        tokens = (library.llama_token * 1)(0)
        library.llama_decode(context, library.llama_batch_get_one(tokens, 1))
os._exit(0)
"""
_SECONDS = 600
"""For a file of many gigabytes on a slow disk."""
_KEPT = 200
"""Files that are remembered."""
_lock = threading.Lock()
_sound: set[str] = set()


def try_file(path: Path) -> None:
    """Raise ModelBroken when llama.cpp does not survive the file; one that it did is remembered by size and time.

    The embedded model is taken as sound: its package was checked when it was installed. Blocks, once for each file, for
    as long as loading it takes.
    """
    with _lock:
        mark = _mark(path)
        if mark in _sound or _is_embedded(path):
            return
        memory = user_paths().cache / "tried.json"
        known = _remembered(memory)
        if mark not in known:
            _survives(path)
            known = [*known[1 - _KEPT :], mark]
            with suppress(OSError):  # it is tried again the next time
                make_private(memory.parent)
                with replacement(memory) as file:
                    file.write(json.dumps(known).encode())
        _sound.add(mark)


def _survives(path: Path) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
        how = f"signal {-done.returncode}" if done.returncode < 0 else ""
    except subprocess.TimeoutExpired:
        how = f"no end after {_SECONDS} s"
    if how:
        raise ModelBroken(f"{path} is damaged: llama.cpp fails on it ({how}).", fix="Download it again.")


def _mark(path: Path) -> str:
    """The file as it is now, and the llama.cpp it is for."""
    try:
        found = path.resolve().stat()
        library = version("llama-cpp-python")
    except (OSError, PackageNotFoundError):
        return str(path)
    return f"{path.resolve()} {found.st_size} {found.st_mtime_ns} {library}"


def _remembered(memory: Path) -> list[str]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [str(one) for one in known] if isinstance(known, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _is_embedded(path: Path) -> bool:
    try:
        return path.resolve() == embedded_path().resolve()
    except (ModelMissing, OSError):
        return False
