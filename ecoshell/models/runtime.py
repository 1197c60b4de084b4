"""One GGUF file as this process runs it: its tokenizer, weights and caches, and the thread they are used on.

Models that name the same file share it, whatever their adapters: three roles on one base load it once.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from weakref import WeakValueDictionary

from ecoshell.models.chat_template import ChatTemplate
from ecoshell.models.choosing import Sampling, recommended
from ecoshell.models.engine import Engine, EngineOptions
from ecoshell.models.gguf import Vocabulary


class Runtime:
    """A base model in use; tokenizer and template serve any thread, the engine only `worker`'s."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        """Nothing is loaded yet."""
        self.worker = ThreadPoolExecutor(1, thread_name_prefix=f"model {path.stem}")
        self._path = path
        self._options = options
        self._opening = Lock()
        self.users: Counter[Path | None] = Counter()
        """Models that use this, by their adapter; kept by `join_runtime` and `leave_runtime`."""
        self._vocabulary: Vocabulary | None = None
        self._template: ChatTemplate | None = None
        self._engine: Engine | None = None

    @property
    def counts(self) -> bool:
        """Whether the tokenizer is at hand."""
        return self._vocabulary is not None

    @property
    def context(self) -> int | None:
        """Tokens of the context, once the weights are loaded."""
        return self._engine.context if self._engine else None

    def vocabulary(self) -> Vocabulary:
        """The tokenizer, loaded when first needed."""
        with self._opening:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._path)
            return self._vocabulary

    def template(self) -> ChatTemplate:
        """The chat template."""
        if self._template is None:
            self._template = ChatTemplate(self.vocabulary())
        return self._template

    def sampling(self) -> Sampling:
        """How the file, or else its family, recommends to choose tokens."""
        return recommended(self.vocabulary())

    def engine(self) -> Engine:
        """The weights with their caches, loaded when first needed; on the worker's thread alone."""
        if self._engine is None:
            self._engine = Engine(self._path, self.vocabulary(), self._options)
        return self._engine

    def free(self, adapter: Path | None, *, last: bool) -> None:
        """Free an adapter, and everything when this was the last use; on the worker's thread alone."""
        if last:
            if self._engine is not None:
                self._engine.close()
            if self._vocabulary is not None:
                self._vocabulary.close()
            self._engine = self._vocabulary = self._template = None
        elif self._engine is not None and adapter is not None and not self.users[adapter]:
            self._engine.drop_adapter(adapter)


_Key = tuple[int, int, int, EngineOptions]
_running: "WeakValueDictionary[_Key, Runtime]" = WeakValueDictionary()
_sharing = Lock()


def join_runtime(path: Path, options: EngineOptions, adapter: Path | None) -> Runtime:
    """The runtime of a file, shared with the models that use it now; `leave_runtime` gives it back."""
    stat = path.stat()
    key = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, options)  # a file that was replaced is another
    with _sharing:
        runtime = _running.get(key)
        if runtime is None:
            runtime = _running[key] = Runtime(path, options)
        runtime.users[adapter] += 1
        return runtime


def leave_runtime(runtime: Runtime, adapter: Path | None) -> None:
    """Give a runtime back; the last user's leaving frees it. On its worker's thread alone."""
    with _sharing:
        runtime.users[adapter] -= 1
        last = runtime.users.total() == 0
        for key in [key for key, running in _running.items() if last and running is runtime]:
            del _running[key]  # from here on nobody joins it
    runtime.free(adapter, last=last)
    if last:
        runtime.worker.shutdown(wait=False)
