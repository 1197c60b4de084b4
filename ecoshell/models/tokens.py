"""Counting tokens offline: exact where a model's own tokenizer is at hand, estimated where not, and it says which.

tiktoken takes 0.3 to 0.7 s to load an encoding and holds the interpreter for up to 0.2 s of that, so it runs in a small
helper process (`main`) and no screen waits for it. Its files are those in litellm's package; nothing is fetched.
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
"""Beginnings of the names of the models that use an encoding, the more telling ones first."""

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""The hash of an encoding's address is its file's name in every tiktoken cache; the address itself is never asked."""

_LONGEST = 64_000
"""Characters; longer texts are estimated, since counting them would take longer than a frame."""
_REMEMBERED = 4096


class TokenCounter:
    """Counts with a tiktoken encoding in a helper process; estimates until that is ready, and for very long texts.

    `own` says whether the encoding is the model's own. The process starts at the first count and ends with `close`, or
    by itself when this one ends. Without an encoding everything is estimated.
    """

    def __init__(self, encoding: str = "", folder: Path | None = None, *, own: bool = False) -> None:
        self.name = encoding or "bytes / 4"
        """What does the counting."""
        self._folder = folder
        self._own = own
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._broken = folder is None
        self._lock = threading.Lock()
        self._counted = lru_cache(maxsize=_REMEMBERED)(self._asked)

    @property
    def exact(self) -> bool:
        """Whether counts come, at this moment, from the model's own tokenizer."""
        return self._own and self._ready.is_set() and not self._broken

    @property
    def pid(self) -> int | None:
        """The helper process's number, once it was started."""
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
        """Start, and wait until counts are exact; False when that cannot be had."""
        self.start()
        return not self._broken and self._ready.wait(seconds) and not self._broken

    def count(self, text: str) -> int:
        """Tokens of the text; special tokens written out in it count as the plain text they are."""
        counted = self._encoded(text)
        return estimate(text) if counted is None else counted

    def exact_count(self, text: str) -> int | None:
        """Tokens of the text by the model's own tokenizer; None where that cannot count it now."""
        return self._encoded(text) if self._own else None

    def _encoded(self, text: str) -> int | None:
        self.start()
        if not self._ready.is_set() or self._broken or len(text) > _LONGEST:
            return None
        try:
            with self._lock:
                return self._counted(text)
        except (OSError, ValueError):  # the process is gone
            self._broken = True
            return None

    def _asked(self, text: str) -> int:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ValueError("there is no process")
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

    `hosted` is false for a model at an address of the user's own, whose name says nothing about its tokenizer.
    litellm's package has the file of each encoding that is asked for here.
    """
    own = encoding_of(model) if hosted else None
    litellm = importlib.util.find_spec("litellm")
    if litellm and litellm.origin:
        folder = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
        for encoding in dict.fromkeys((own or "cl100k_base", "cl100k_base")):
            file_name = sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
            if (folder / file_name).is_file():
                return TokenCounter(encoding, folder, own=encoding == own)
    return TokenCounter()


def encoding_of(model: str) -> str | None:
    """The tiktoken encoding a model is known to use; None when its tokenizer is not one of OpenAI's, or not known."""
    bare = model.rpartition("/")[2].removeprefix("ft:")
    return next((name for name, starts in _EXACT.items() if bare.startswith(starts)), None)


def helper_environ() -> dict[str, str]:
    """This process's environment, with this package on the import path."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}


def main() -> None:
    """Count until standard input ends; the only argument names the encoding, `TIKTOKEN_CACHE_DIR` its folder."""
    import tiktoken
    import tiktoken.load

    tiktoken.load.read_file = _refuse  # a missing or damaged file must not become a download
    encoding = tiktoken.get_encoding(sys.argv[1])
    encoding.encode_ordinary("")
    counts = (len(encoding.encode_ordinary(json.loads(line))) for line in sys.stdin.buffer)
    for told in chain(("ready",), counts):
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()


def _refuse(blobpath: str) -> bytes:
    raise FileNotFoundError(f"{blobpath} is not in the folder")


if __name__ == "__main__":
    main()
