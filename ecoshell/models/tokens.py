"""Counting tokens offline: exact where a model's own tokenizer is at hand, estimated where not, and it says which.

tiktoken takes 0.3 to 0.7 s to load an encoding and holds the interpreter for up to 0.2 s of that, so it runs in a small
helper process (tokens_worker) and no screen waits for it. Its files are those in litellm's package; nothing is fetched.
"""

import importlib.util
import json
import os
import subprocess
import threading
from collections import OrderedDict
from hashlib import sha1
from pathlib import Path
from tempfile import gettempdir
from typing import Protocol

from ecoshell.models.helper import helper_command, helper_environ

_EXACT = {
    "o200k_base": ("gpt-4o", "gpt-4.1", "gpt-4.5", "chatgpt-4o", "gpt-5", "o1", "o3", "o4-mini"),
    "cl100k_base": ("gpt-4", "gpt-3.5-turbo", "gpt-35-turbo"),
}
"""Beginnings of the names of the models that use an encoding, the more telling ones first."""

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""The hash of an encoding's address is its file's name in every tiktoken cache; the address itself is never asked."""

_LONGEST = 64_000
"""Characters; longer texts are estimated, since counting them would take longer than a frame."""
_REMEMBERED = 4096


class TokenCounter(Protocol):
    """Counts tokens of plain text."""

    @property
    def name(self) -> str:
        """What does the counting."""
        ...

    @property
    def exact(self) -> bool:
        """Whether counts come, at this moment, from the model's own tokenizer."""
        ...

    def start(self) -> None:
        """Start loading; returns at once."""
        ...

    def wait(self, seconds: float = 30.0) -> bool:
        """Load, and wait until that is done; False when there is nothing to load, or it failed."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text."""
        ...

    def close(self) -> None:
        """Let go of what was loaded."""
        ...


class ByteCounter:
    """An estimate that needs no tokenizer: four bytes to a token."""

    name = "bytes / 4"
    exact = False

    def count(self, text: str) -> int:
        """A quarter of the text's bytes, rounded up."""
        return -(-len(text.encode("utf-8", "replace")) // 4)

    def start(self) -> None:
        """Nothing needs to be loaded."""

    def wait(self, seconds: float = 30.0) -> bool:
        """No exact count will ever be had."""
        return False

    def close(self) -> None:
        """Nothing is held."""


class TiktokenCounter:
    """Counts with a tiktoken encoding in a helper process; estimates until that is ready, and for very long texts.

    `own` says whether the encoding is the model's own. The process starts at the first count and ends with `close`, or
    by itself when this one ends.
    """

    def __init__(self, encoding: str, folder: Path, *, own: bool) -> None:
        self._encoding = encoding
        self._folder = folder
        self._own = own
        self._estimate = ByteCounter()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._broken = False
        self._lock = threading.Lock()
        self._known: OrderedDict[str, int] = OrderedDict()

    @property
    def name(self) -> str:
        """The encoding."""
        return self._encoding

    @property
    def exact(self) -> bool:
        """Whether the encoding is the model's own and loaded."""
        return self._own and self._ready.is_set() and not self._broken

    @property
    def pid(self) -> int | None:
        """The helper process's number, once it was started."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start loading the encoding; returns at once."""
        with self._lock:
            if self._process is None and not self._broken:
                self._process = subprocess.Popen(
                    [*helper_command("ecoshell.models.tokens_worker"), self._encoding],
                    env={**helper_environ(), "TIKTOKEN_CACHE_DIR": str(self._folder)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                threading.Thread(target=self._await_ready, args=(self._process,), daemon=True).start()

    def wait(self, seconds: float = 30.0) -> bool:
        """Start, and wait until counts are exact; False when that cannot be had."""
        self.start()
        return self._ready.wait(seconds) and not self._broken

    def count(self, text: str) -> int:
        """Tokens of the text; special tokens written out in it count as the plain text they are."""
        self.start()
        if not self._ready.is_set() or self._broken or len(text) > _LONGEST:
            return self._estimate.count(text)
        with self._lock:
            if text not in self._known:
                self._known[text] = self._ask(text)
            self._known.move_to_end(text)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            return self._known[text]

    def close(self) -> None:
        """End the helper process; later counts are estimates."""
        with self._lock:
            self._broken = True
            if self._process is not None:
                self._process.kill()
                self._process.communicate()

    def _ask(self, text: str) -> int:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return self._estimate.count(text)
        try:
            process.stdin.write(json.dumps(text).encode() + b"\n")
            process.stdin.flush()
            return int(process.stdout.readline())
        except (OSError, ValueError):  # the process is gone
            self._broken = True
            return self._estimate.count(text)

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None and process.stdout.readline() == b"ready\n":
            self._ready.set()
        else:
            self._broken = True
            self._ready.set()


def counter_for(model: str, *, hosted: bool = True) -> TokenCounter:
    """The best counter for a model's name, with or without a provider's prefix.

    `hosted` is false for a model at an address of the user's own, whose name says nothing about its tokenizer.
    """
    own = encoding_of(model) if hosted else None
    for encoding in dict.fromkeys((own or "cl100k_base", "cl100k_base")):
        folder = _folder_of(encoding)
        if folder is not None:
            return TiktokenCounter(encoding, folder, own=encoding == own)
    return ByteCounter()


def encoding_of(model: str) -> str | None:
    """The tiktoken encoding a model is known to use; None when its tokenizer is not one of OpenAI's, or not known."""
    bare = model.rpartition("/")[2].removeprefix("ft:")
    return next((name for name, starts in _EXACT.items() if bare.startswith(starts)), None)


def _folder_of(encoding: str) -> Path | None:
    """The first folder with the encoding's file: litellm's package, then tiktoken's own caches."""
    file_name = sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
    return next((folder for folder in _folders() if (folder / file_name).is_file()), None)


def _folders() -> list[Path]:
    folders: list[Path] = []
    litellm = importlib.util.find_spec("litellm")
    if litellm is not None and litellm.origin:
        folders.append(Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers")
    named = (os.environ.get(name) for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"))
    folders += [Path(folder) for folder in named if folder]
    return [*folders, Path(gettempdir()) / "data-gym-cache"]
