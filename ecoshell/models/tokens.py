"""Counts tokens offline, exactly with the model's own tokenizer or else estimated.

tiktoken takes 0.3 to 0.7 s to load an encoding and blocks the interpreter for up to 0.2 s of that, so it runs in a
helper process (`main`). It uses the files in litellm's package; nothing is downloaded.
"""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from functools import lru_cache
from hashlib import sha1
from itertools import chain
from pathlib import Path

from ecoshell.models import estimate

_EXACT = {
    "o200k_base": ("gpt-4o", "gpt-4.1", "gpt-4.5", "chatgpt-4o", "gpt-5", "o1", "o3", "o4-mini"),
    "cl100k_base": ("gpt-4", "gpt-3.5-turbo", "gpt-35-turbo"),
}
"""Prefixes of the models of an encoding, more specific ones first."""

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""URL of an encoding; its hash is the file name in tiktoken caches. It is never requested."""

_MAX_COUNTED_CHARS = 64_000  # counting more takes longer than a frame
_CACHE_SIZE = 4096


class TokenCounter:
    """Counts with a tiktoken encoding in a helper process; estimates until it is ready, and for very long texts.

    `own` says whether the encoding is the model's own. The process starts with the first count and ends with `close` or
    with this process. Without an encoding, all counts are estimates.
    """

    def __init__(
        self, encoding: str = "", folder: Path | None = None, *, own: bool = False
    ) -> None:
        self.name = encoding or "bytes / 4"  # the encoding, or the way of estimating
        self._folder = folder
        self._own = own
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._broken = folder is None
        self._lock = threading.Lock()
        self._cached_count = lru_cache(maxsize=_CACHE_SIZE)(self._requested)

    @property
    def exact(self) -> bool:
        """Whether counts come from the model's own tokenizer now."""
        return self._own and self._ready.is_set() and not self._broken

    @property
    def pid(self) -> int | None:
        """Process ID of the helper, once started."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start loading the encoding; returns at once."""
        with self._lock:
            if self._process is not None or self._broken:
                return
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ecoshell.models.tokens", self.name],
                env={**helper_environ(), "TIKTOKEN_CACHE_DIR": str(self._folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

        def await_ready() -> None:
            if process.stdout is None or process.stdout.readline() != b"ready\n":
                self._broken = True
            self._ready.set()

        threading.Thread(target=await_ready, daemon=True).start()

    def wait(self, seconds: float = 30.0) -> bool:
        """Start and wait until counts are exact; False if that is not possible."""
        self.start()
        return not self._broken and self._ready.wait(seconds) and not self._broken

    def count(self, text: str) -> int:
        """Tokens of the text; special tokens in it count as plain text."""
        counted = self._encoded(text)
        return estimate(text) if counted is None else counted

    def exact_count(self, text: str) -> int | None:
        """Tokens of the text by the model's own tokenizer; None if it is unavailable now."""
        return self._encoded(text) if self._own else None

    def _encoded(self, text: str) -> int | None:
        self.start()
        if not self._ready.is_set() or self._broken or len(text) > _MAX_COUNTED_CHARS:
            return None
        try:
            with self._lock:
                return self._cached_count(text)
        except (OSError, ValueError):  # the process has ended
            self._broken = True
            return None

    def _requested(self, text: str) -> int:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ValueError("the process is not running")
        process.stdin.write(json.dumps(text).encode() + b"\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def close(self) -> None:
        """End the helper process; later counts are estimates."""
        with self._lock:
            self._broken = True
            if self._process is not None:
                self._process.kill()
                self._process.communicate()


def counter_for(model: str, *, hosted: bool = True) -> TokenCounter:
    """The best counter for a model's name, with or without a provider's prefix.

    `hosted` is false for the user's own servers, whose model names say nothing about the tokenizer. litellm's package
    contains the files of these encodings.
    """
    encoding_name = encoding_of(model) if hosted else None
    litellm = importlib.util.find_spec("litellm")
    if litellm and litellm.origin:
        folder = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
        for encoding in dict.fromkeys((encoding_name or "cl100k_base", "cl100k_base")):
            file_name = sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
            if (folder / file_name).is_file():
                return TokenCounter(encoding, folder, own=encoding == encoding_name)
    return TokenCounter()


def encoding_of(model: str) -> str | None:
    """The tiktoken encoding of a model; None if unknown."""
    bare = model.rpartition("/")[2].removeprefix("ft:")
    return next((name for name, starts in _EXACT.items() if bare.startswith(starts)), None)


def helper_environ() -> dict[str, str]:
    """The environment for helper processes, with this package on the import path."""
    root = str(Path(__file__).parents[2])
    paths = filter(None, (root, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}


def main() -> None:
    """Count until standard input ends; the argument is the encoding, `TIKTOKEN_CACHE_DIR` its folder."""
    import tiktoken
    import tiktoken.load

    tiktoken.load.read_file = _refuse  # a missing or damaged file must not become a download
    encoding = tiktoken.get_encoding(sys.argv[1])
    encoding.encode_ordinary("")
    counts = (len(encoding.encode_ordinary(json.loads(line))) for line in sys.stdin.buffer)
    for line in chain(("ready",), counts):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _refuse(blobpath: str) -> bytes:
    raise FileNotFoundError(f"{blobpath} is not in the folder")


if __name__ == "__main__":
    main()
