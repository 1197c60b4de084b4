"""llama.cpp: the library, loading files, and their tokenizers.

Uses llama-cpp-python's low-level functions, because its `Llama` class redirects the process's standard output to
/dev/null while it loads, which would blank the screen. Each file is first loaded in a separate process, because some
damaged files crash llama.cpp.
"""

import ctypes
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import finalize

from ecoshell.errors import ModelBroken, ModelMissing
from ecoshell.models.embedded import embedded_path
from ecoshell.models.gguf import FITTING_ADAPTER, check_file
from ecoshell.paths import make_private, user_paths

LLAMA = "llama_cpp"
GET_LLAMA = 'Install it with: pip install "ecoshell[local]"'
_NO_LLAMA = "Local models need llama-cpp-python, which is not installed."
OPENMP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
_AMX = b"AMX_INT8 = 1"
"""Reported by a llama.cpp built for Intel's matrix unit. GCC omits half of the unit's configuration, so the first
prompt would crash the process (llama.cpp pull request 26954); without the extra buffers the unit is not used."""
_ERROR_LEVEL = 4
_complaints: deque[str] = deque(maxlen=8)  # last errors logged by llama.cpp
_loading = threading.Lock()
_log_callbacks: list[Any] = []  # keeps the callback alive: llama.cpp has only a pointer


def require_llama() -> None:
    """Raise ModelMissing if the extra is not installed, without loading llama.cpp."""
    if find_spec(LLAMA) is None:
        raise ModelMissing(_NO_LLAMA, fix=GET_LLAMA)


@cache
def llama_library() -> ModuleType:
    """llama.cpp's functions, initialised and silent; raises ModelMissing if the extra is not installed."""

    def keep_complaint(level: int, text: bytes, _user_data: object) -> None:
        if level == _ERROR_LEVEL:
            _complaints.append(text.decode("utf-8", "replace").strip().rstrip("."))

    with _loading:
        # Threads synchronise about 400 times per token of a small model. By default here they spin for ten
        # microseconds and then sleep: sleeping at once halves the speed on an idle machine, and OpenMP's default of
        # longer spinning takes cores from other programs. OpenMP reads these variables once; they are removed
        # afterwards so that commands run by tools do not inherit them.
        settings = {} if OPENMP.keys() & os.environ.keys() else OPENMP
        os.environ.update(settings)
        try:
            library = import_module("llama_cpp.llama_cpp")
        except ImportError as error:
            raise ModelMissing(_NO_LLAMA, fix=GET_LLAMA) from error
        finally:
            for name in settings:
                del os.environ[name]
        callback = library.llama_log_callback(keep_complaint)
        _log_callbacks.append(callback)
        library.llama_log_set(callback, ctypes.c_void_p(0))
        library.llama_backend_init()
        return library


def load_model(path: Path, *, vocab_only: bool = False, gpu_layers: int = 0) -> Any:
    """A llama.cpp model handle that the caller must free; raises ModelMissing, or ModelBroken with the reason."""
    check_file(path)
    try_file(path)
    library = llama_library()
    params = library.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = gpu_layers
    params.use_extra_bufts = _AMX not in library.llama_print_system_info()
    load: Any = library.llama_model_load_from_file
    model, reason = _with_reason(lambda: load(os.fsencode(path), params))
    if not model:
        raise ModelBroken(
            f"{path} cannot be loaded: {reason}.",
            fix="It may be truncated, or too new for this llama.cpp. Download it again or update llama-cpp-python.",
        )
    return model


def load_adapter(model: Any, path: Path, base: Path) -> Any:
    """A LoRA adapter's handle, freed together with the model; raises ModelMissing or ModelBroken."""
    check_file(path)
    library = llama_library()
    load: Any = library.llama_adapter_lora_init
    adapter, reason = _with_reason(lambda: load(model, os.fsencode(path)))
    if not adapter:
        reason = reason.rpartition("failed to apply lora adapter: ")[2]
        text = f"The adapter {path} does not fit {base}: {reason}."
        raise ModelBroken(text, fix=FITTING_ADAPTER)
    return adapter


def _with_reason(load: Callable[[], Any]) -> tuple[Any, str]:
    """The loaded object and the first error that llama.cpp logged meanwhile."""
    with _loading:
        _complaints.clear()
        return load(), _complaints[0] if _complaints else "llama.cpp gives no reason"


class Vocabulary:
    """The tokenizer and metadata of a GGUF file, loaded without its weights (0.2 s); thread-safe."""

    def __init__(self, path: Path) -> None:
        self._library = llama_library()
        self._model = load_model(path, vocab_only=True)
        # A thread that still counts keeps the tokenizer of a closed model until it is done.
        self.close = finalize(self, self._library.llama_model_free, self._model)
        self.close.atexit = False
        self.handle = self._library.llama_model_get_vocab(self._model)
        if not self.handle:
            text = f"{path} contains no tokenizer."
            raise ModelBroken(text, fix="Use a GGUF file of a text model.")
        self.size: int = self._library.llama_vocab_n_tokens(self.handle)

    def tokens(self, text: str, *, special: bool = False, start: bool = False) -> list[int]:
        """The tokens of a text.

        `special` parses control tokens in the text (only for text written by ecoshell); `start` adds the begin token if
        the model uses one.
        """
        data = text.encode("utf-8", "replace")
        room = len(data) + 2  # a token has at least one byte; start and end tokens may be added
        buffer = (self._library.llama_token * room)()
        tokenize: Any = self._library.llama_tokenize
        count = tokenize(self.handle, data, len(data), buffer, room, start, special)
        if count < 0:
            raise ModelBroken(f"The tokenizer rejected a text of {len(data)} bytes.")
        return buffer[:count]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of one token; control tokens are empty unless `special`."""
        room, to_piece = 64, self._library.llama_token_to_piece
        while True:
            buffer = ctypes.create_string_buffer(room)
            length = to_piece(self.handle, token, buffer, room, 0, special)
            if length >= 0:
                return buffer.raw[:length]
            room = -length

    def ends(self, token: int) -> bool:
        return bool(self._library.llama_vocab_is_eog(self.handle, token))

    def controls(self, token: int) -> bool:
        return bool(self._library.llama_vocab_is_control(self.handle, token))

    def strips_after(self, token: int) -> bool:
        """Whether white space after this control token belongs to it."""
        attributes = self._library.llama_vocab_get_attr(self.handle, token)
        return bool(attributes & self._library.LLAMA_TOKEN_ATTR_RSTRIP)

    def start_and_end(self) -> tuple[str, str]:
        """The texts of the begin and end tokens; empty if undefined."""
        library = self._library
        start, end = library.llama_vocab_bos(self.handle), library.llama_vocab_eos(self.handle)
        pieces = [self.piece(token, special=True) if token >= 0 else b"" for token in (start, end)]
        return pieces[0].decode(), pieces[1].decode()

    def metadata(self, key: str) -> str | None:
        room = self._library.llama_model_meta_val_str(self._model, key.encode(), None, 0)
        if room < 0:
            return None
        buffer = ctypes.create_string_buffer(room + 1)
        self._library.llama_model_meta_val_str(self._model, key.encode(), buffer, room + 1)
        return buffer.value.decode("utf-8", "replace")

    def tokens_in(self, key: str) -> int | None:
        """A token count among the architecture's metadata."""
        value = self.metadata(f"{self.metadata('general.architecture')}.{key}")
        return int(value) if value and value.isdigit() else None


# -- trying a file

_TRY = f"""
import os, sys
from llama_cpp import llama_cpp as library
library.llama_backend_init()
params = library.llama_model_default_params()
params.n_gpu_layers = 0
params.use_extra_bufts = {_AMX!r} not in library.llama_print_system_info()
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
_TRY_SECONDS = 600  # enough for many gigabytes on a slow disk
_trying = threading.Lock()


def try_file(path: Path) -> None:
    """Raise ModelBroken if the file crashes llama.cpp. Blocks while it is loaded, once for each file.

    Files that loaded are remembered by size and time. The embedded model is not tried, because its package was verified
    during installation.
    """
    with suppress(ModelMissing, OSError):
        if path.resolve() == embedded_path().resolve():
            return
    with _trying:
        mark = user_paths().cache / "tried" / _mark(path)
        if mark.exists():
            return
        try:
            done = subprocess.run(
                [sys.executable, "-c", _TRY, str(path)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRY_SECONDS,
                check=False,
            )
            failure = f"signal {-done.returncode}" if done.returncode < 0 else ""
        except subprocess.TimeoutExpired:
            failure = f"no end after {_TRY_SECONDS} s"
        if failure:
            text = f"{path} is damaged: llama.cpp fails on it ({failure})."
            raise ModelBroken(text, fix="Download it again.")
        with suppress(OSError):  # without a mark the file is tried again
            make_private(mark.parent)
            mark.touch()


def _mark(path: Path) -> str:
    """Identifies this version of the file and of llama.cpp."""
    info, library = path.resolve().stat(), version("llama-cpp-python")
    identity = f"{path.resolve()} {info.st_size} {info.st_mtime_ns} {library}"
    return sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
