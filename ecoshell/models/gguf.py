"""GGUF files and llama.cpp's own view of them: is the file usable, and how does its tokenizer cut text.

Built on llama-cpp-python's low-level functions: its `Llama` class points the whole process's standard output at
/dev/null while it loads, which would blank a running screen.
"""

import codecs
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ecoshell.errors import ModelBroken, ModelMissing
from ecoshell.files import is_special
from ecoshell.models.trial import try_file

LLAMA = "llama_cpp"
GET_LLAMA = 'Install it with: pip install "ecoshell[local]"'
OPENMP_SETTING = "OMP_WAIT_POLICY"
MAGIC = b"GGUF"
FITTING_ADAPTER = "Name an adapter that was trained for this base, or the base it was trained for."
_ERROR_LEVEL = 4
_complaints: deque[str] = deque(maxlen=8)
"""The last errors llama.cpp logged, for the message when a load fails."""
_loading = threading.Lock()
_log_callbacks: list[Any] = []
"""Keeps the C callback alive: llama.cpp holds a bare pointer to it."""


@cache
def llama_library() -> ModuleType:
    """llama.cpp's functions, initialised and silent; raises ModelMissing when the extra is not installed."""
    with _loading:
        try:
            with _waiting_threads_asleep():
                library = import_module("llama_cpp.llama_cpp")
        except ImportError as error:
            raise ModelMissing(
                "Local models need llama-cpp-python, which is not installed.",
                fix=GET_LLAMA,
            ) from error
        callback = library.llama_log_callback(_keep_complaint)
        _log_callbacks.append(callback)
        library.llama_log_set(callback, ctypes.c_void_p(0))
        library.llama_backend_init()
        return library


@contextmanager
def _waiting_threads_asleep() -> Generator[None]:
    """Load the OpenMP library so that threads sleep while they wait for one another, unless the user decided otherwise.

    By default they spin, which on cores that other programs use too slows generation down twentyfold. OpenMP reads the
    setting once, as it is loaded; afterwards it is taken back, so that commands run by tools do not inherit it.
    """
    if OPENMP_SETTING in os.environ:
        yield
        return
    os.environ[OPENMP_SETTING] = "PASSIVE"
    try:
        yield
    finally:
        del os.environ[OPENMP_SETTING]


def check_file(path: Path) -> None:
    """Raise ModelMissing or ModelBroken unless the path is a readable file that starts as a GGUF file does."""
    if is_special(path):
        raise ModelMissing(f"{path} is not a regular file.", fix="Give the path of a GGUF file: local:PATH.gguf")
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError as error:
        raise ModelMissing(f"There is no file {path}.", fix="Give the path of a GGUF file: local:PATH.gguf") from error
    except IsADirectoryError as error:
        raise ModelMissing(f"{path} is a folder.", fix="Give the path of a GGUF file inside it.") from error
    except OSError as error:
        raise ModelMissing(f"{path} cannot be read: {error.strerror}.", fix="Check the file's permissions.") from error
    if magic != MAGIC:
        raise ModelBroken(f"{path} is not a GGUF file.", fix="Download the GGUF version of the model.")


def load_model(path: Path, *, vocab_only: bool = False, gpu_layers: int = 0) -> Any:
    """A llama.cpp model handle, to be freed by the caller; raises ModelMissing, or ModelBroken with the reason."""
    check_file(path)
    try_file(path)
    library = llama_library()
    params = library.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = gpu_layers
    model, reason = _with_reason(lambda: library.llama_model_load_from_file(os.fsencode(path), params))
    if not model:
        raise ModelBroken(
            f"{path} cannot be loaded: {reason}.",
            fix="It may be cut short, or too new for this llama.cpp: download it again or update llama-cpp-python.",
        )
    return model


def load_adapter(model: Any, path: Path, base: Path) -> Any:
    """A LoRA adapter's handle for a loaded model, freed with it at the latest; raises ModelMissing or ModelBroken."""
    check_file(path)
    library = llama_library()
    adapter, reason = _with_reason(lambda: library.llama_adapter_lora_init(model, os.fsencode(path)))
    if not adapter:
        reason = reason.rpartition("failed to apply lora adapter: ")[2]
        raise unfit_adapter(path, base, reason)
    return adapter


def unfit_adapter(path: Path, base: Path, reason: str) -> ModelBroken:
    """The error for an adapter of another base."""
    return ModelBroken(f"The adapter {path} does not fit {base}: {reason}.", fix=FITTING_ADAPTER)


def _with_reason(load: Callable[[], Any]) -> tuple[Any, str]:
    """What llama.cpp loads, and the first thing it complained of meanwhile."""
    with _loading:
        _complaints.clear()
        return load(), _complaints[0] if _complaints else "llama.cpp gives no reason"


def _keep_complaint(level: int, text: bytes, _user_data: object) -> None:
    if level == _ERROR_LEVEL:
        _complaints.append(text.decode("utf-8", "replace").strip().rstrip("."))


class Vocabulary:
    """The tokenizer and metadata of a GGUF file, loaded without its weights (0.2 s); safe to use from any thread."""

    def __init__(self, path: Path) -> None:
        self._library = llama_library()
        self._model = load_model(path, vocab_only=True)
        self.handle = self._library.llama_model_get_vocab(self._model)
        if not self.handle:
            raise ModelBroken(f"{path} holds no tokenizer.", fix="Use a GGUF file of a text model.")
        self.size: int = self._library.llama_vocab_n_tokens(self.handle)

    def close(self) -> None:
        """Free the memory; nothing may be asked afterwards."""
        if self._model:
            self._library.llama_model_free(self._model)
            self._model = None

    def tokens(self, text: str, *, special: bool = False, start: bool = False) -> list[int]:
        """The tokens of a text.

        `special` reads control tokens written in the text as such (only for text ecoshell wrote itself); `start` adds
        the begin token where the model wants one.
        """
        data = text.encode("utf-8", "replace")
        room = len(data) + 2  # a token is at least a byte, and start and end tokens may be added
        buffer = (self._library.llama_token * room)()
        count = self._library.llama_tokenize(self.handle, data, len(data), buffer, room, start, special)
        if count < 0:
            raise ModelBroken(f"The tokenizer refused a text of {len(data)} bytes.")
        return buffer[:count]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of one token; control tokens are empty unless `special`."""
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            length = self._library.llama_token_to_piece(self.handle, token, buffer, room, 0, special)
            if length >= 0:
                return buffer.raw[:length]
            room = -length

    def text(self, tokens: Iterable[int]) -> str:
        """The text of a sequence of tokens."""
        return b"".join(self.piece(token) for token in tokens).decode("utf-8", "replace")

    def ends(self, token: int) -> bool:
        """Whether this token ends a generation."""
        return bool(self._library.llama_vocab_is_eog(self.handle, token))

    def controls(self, token: int) -> bool:
        """Whether this is a control token, which only a template may write."""
        return bool(self._library.llama_vocab_is_control(self.handle, token))

    def strips_after(self, token: int) -> bool:
        """Whether white space after this control token belongs to it."""
        attributes = self._library.llama_vocab_get_attr(self.handle, token)
        return bool(attributes & self._library.LLAMA_TOKEN_ATTR_RSTRIP)

    def start_and_end(self) -> tuple[str, str]:
        """The begin and end tokens as templates write them; empty where there is none."""
        library = self._library
        found = (library.llama_vocab_bos(self.handle), library.llama_vocab_eos(self.handle))
        first, last = (self.piece(token, special=True).decode() if token >= 0 else "" for token in found)
        return first, last

    def metadata(self, key: str) -> str | None:
        """A value of the file's metadata as text."""
        room = self._library.llama_model_meta_val_str(self._model, key.encode(), None, 0)
        if room < 0:
            return None
        buffer = ctypes.create_string_buffer(room + 1)
        self._library.llama_model_meta_val_str(self._model, key.encode(), buffer, room + 1)
        return buffer.value.decode("utf-8", "replace")

    def trained_context(self) -> int | None:
        """The context size the model was trained with, in tokens."""
        return self._tokens_in("context_length")

    def unstretched_context(self) -> int | None:
        """Up to which context size positions stand as they were before the model was adapted to longer ones."""
        return self._tokens_in("rope.scaling.original_context_length")

    def _tokens_in(self, key: str) -> int | None:
        value = self.metadata(f"{self.metadata('general.architecture')}.{key}")
        return int(value) if value and value.isdigit() else None


class Utf8Stream:
    """Turns tokens' bytes into text without breaking characters that span tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The text that is certain by now."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left; half a character becomes the replacement sign."""
        return self._decoder.decode(b"", final=True)
