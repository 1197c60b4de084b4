"""A GGUF model in this process: loaded on first use, run in its own thread, cancellable between tokens.

It may have a LoRA adapter. Models of the same file share it, whatever their adapters: three roles on one base load it
once.
"""

import asyncio
import os
import sys
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock, get_native_id
from weakref import WeakValueDictionary

from ecoshell.budget import ZERO_PRICE
from ecoshell.messages import Call
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits
from ecoshell.models.call_parsing import call_json
from ecoshell.models.chat_template import ChatTemplate
from ecoshell.models.choosing import Chooser, Sampling, recommended
from ecoshell.models.engine import Engine, EngineOptions, Progress
from ecoshell.models.formats import GENERIC
from ecoshell.models.gguf import TRAINED_FOR, check_adapter, check_base, header, parameters, size_of
from ecoshell.models.kv_cache import CacheOwner
from ecoshell.models.llama import Vocabulary
from ecoshell.models.protocol import as_plain_messages
from ecoshell.models.quoting import Quoting
from ecoshell.models.replying import ReplyForm, ReplyReader

SMALL_BYTES = 300_000_000  # smaller models cannot follow a protocol that is new to them
SMALL_REPEAT_PENALTY = 1.1  # without it, small untrained models fall into loops
USUAL_CONTEXT = 8192
REFUSED_BEGINNINGS = 4  # number of first tokens excluded in turn because they start calls


class LocalModel:
    """A GGUF model as a `Model`; requests run one after another and are free."""

    def __init__(
        self,
        path: Path,
        *,
        name: str = "",
        adapter: Path | None = None,
        options: EngineOptions | None = None,
    ) -> None:
        """Checks the files without loading them; raises ModelMissing or ModelBroken."""
        check_base(path)
        if adapter is not None:
            check_adapter(adapter, path)
        self._path = path
        self._adapter = adapter and adapter.resolve()
        self._name = name or (f"local:{path}+{adapter}" if adapter else f"local:{path}")
        self._options = options or EngineOptions()
        self._trained = "" if adapter is None else header(adapter).get(TRAINED_FOR, "")
        self._small = size_of(path) < SMALL_BYTES
        self._parameters = parameters(path)
        stat = path.stat()
        key = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, self._options)  # detects replaced files
        with _sharing:
            runtime = _running.get(key)
            if runtime is None:
                runtime = _running[key] = _Runtime(path, self._options)
            runtime.users[self._adapter] += 1
        self._runtime = runtime
        self._closed = False

    @property
    def traits(self) -> Traits:
        """Facts without loading the model; its context may turn out smaller."""
        engine = self._runtime.loaded_engine
        context = engine.context if engine else self._options.context or USUAL_CONTEXT
        return Traits(
            self._name,
            ZERO_PRICE,
            context,
            None,
            native_tools=True,
            local=True,
            calls_undeclared=True,
            small=self._small,
            trained=self._trained,
            parameters=self._parameters,
            vision=False,
        )

    @property
    def loaded(self) -> bool:
        """Whether the tokenizer is loaded."""
        return self._runtime.loaded_vocabulary is not None

    async def warm(self, ahead: Request | None = None) -> None:
        """Start loading tokenizer and weights on the model's thread; errors are reported by the first call.

        Then evaluate the prompt of the expected request, until any model of the file gets a call.
        """
        progress = self._runtime.ahead

        def work() -> None:
            engine = self._runtime.engine()
            if ahead is not None:
                engine.read(self._prompt(ahead), progress, CacheOwner(ahead.role, self._adapter))

        loading = asyncio.get_running_loop().run_in_executor(self._runtime.worker, work)
        loading.add_done_callback(lambda done: done.cancelled() or done.exception())

    def size(self, request: Request) -> PromptSize:
        """Exact; the first count loads the tokenizer (0.7 s), so call it in a thread."""
        count = len(self._prompt(request))
        return PromptSize(count, count, exact=True)

    def count(self, text: str) -> int:
        """Exact; the first count loads the tokenizer, as in `size`."""
        return len(self._runtime.vocabulary().tokens(text))

    def exchange(
        self, request: Request, text: str, call: Call | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens of a prompt and of a reply with its end token, for training."""
        vocabulary = self._runtime.vocabulary()
        if call is not None:
            form = self._runtime.template().form if request.tools else GENERIC
            schemas = {tool.name: tool.parameters for tool in request.tools}
            written = form.write(call.name, call_json(call), parameters=schemas.get(call.name))
            text = f"{text}\n{written}" if text else written
        end = vocabulary.tokens(vocabulary.start_and_end()[1], special=True)
        return tuple(self._prompt(request)), (*vocabulary.tokens(text), *end)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream text with the usage so far, then the reply; of calls, only the answer of `finish` is streamed."""
        quoting = Quoting(request) if self._trained else None
        loop = asyncio.get_running_loop()
        feed: asyncio.Queue[Delta | None] = asyncio.Queue()
        progress = Progress()

        def emit(piece: Delta) -> None:
            loop.call_soon_threadsafe(feed.put_nowait, replace(piece, usage=progress.usage()))

        progress.moved = lambda: emit(Delta(""))
        self._runtime.read_no_further()
        work = loop.run_in_executor(self._runtime.worker, self._generate, request, progress, emit)
        work.add_done_callback(lambda _: feed.put_nowait(None))
        try:
            while (delta := await feed.get()) is not None:
                if quoting is not None and not delta.reasoning:
                    delta = replace(delta, text=quoting.feed(delta.text))
                yield delta
            reply = await work
            if quoting is not None:
                yield Delta(quoting.end())
                quoting_reply = Quoting(request)
                reply = replace(reply, text=quoting_reply.feed(reply.text) + quoting_reply.end())
            yield reply
        finally:
            progress.stop.set()
            await asyncio.wait([work])  # until its end, at most one token later
            if not work.cancelled():
                work.exception()  # marks it as retrieved

    async def aclose(self) -> None:
        """Free what no other model uses, after the running call."""
        if (leaving := self.discard()) is not None:
            await asyncio.wrap_future(leaving)

    def discard(self) -> Future[None] | None:
        """Like `aclose` without waiting; None if it was closed before."""
        if self._closed:
            return None
        self._closed = True
        self._runtime.read_no_further()
        return self._runtime.worker.submit(self._runtime.leave, self._adapter)

    # -- on the model's thread

    def _generate(
        self, request: Request, progress: Progress, emit: Callable[[Delta], None]
    ) -> Reply:
        prompt, template = self._prompt(request), self._runtime.template()
        calls = template.form if request.tools else GENERIC
        # short answers with their own grammar need no reasoning
        closed = request.grammar or request.endings or request.effort == "off"
        tags = None if closed else template.reasoning_tags
        form = ReplyForm(calls, tags, inside=template.opens_reasoning and tags is not None)
        progress.check()
        reader, first_tokens = self._read(prompt, request, form, progress, emit, ())
        while reader.refused and len(first_tokens) < REFUSED_BEGINNINGS:
            progress.input = 0  # the same prompt is already evaluated
            reader, first_tokens = self._read(prompt, request, form, progress, emit, first_tokens)
        reply = reader.reply(progress.usage(), cut=progress.cut)
        return replace(reply, finish="length") if progress.cut else reply

    def _read(
        self,
        prompt: list[int],
        request: Request,
        form: ReplyForm,
        progress: Progress,
        emit: Callable[[Delta], None],
        never: tuple[int, ...],
    ) -> tuple[ReplyReader, tuple[int, ...]]:
        """Generate a reply without the `never` tokens at its start; returns them and its actual first token."""
        engine, vocabulary = self._runtime.engine(), self._runtime.vocabulary()
        reader = ReplyReader(request, form)
        marks = (*form.calls.markers, *(form.tags or ()))
        encoded = (vocabulary.tokens(mark, special=True) for mark in marks)
        # Control tokens that belong to a reply's text.
        markers = {tokens[0] for tokens in encoded if len(tokens) == 1}
        text = getincrementaldecoder("utf-8")("replace")  # a character may span tokens
        warmth = request.temperature
        sampling = recommended(vocabulary) if warmth is None else Sampling(warmth)
        if self.traits.small and not self._trained:
            sampling = replace(sampling, repeat_penalty=SMALL_REPEAT_PENALTY)
        chooser = Chooser(vocabulary, sampling, "" if reader.reasons else reader.held)
        chooser.never_first += never
        room, first_tokens = request.max_tokens - progress.output, never
        owner = CacheOwner(request.role, self._adapter)
        if request.want == "text" and request.tools and form.calls.opens:
            marker = vocabulary.tokens(form.calls.opens, special=True)
            chooser.never += marker if len(marker) == 1 else ()  # excludes calls
        for token in engine.generate(prompt, chooser, room, progress, owner):
            first_tokens = (*never, token) if first_tokens == never else first_tokens
            progress.reasoning += reader.reasons
            piece = vocabulary.piece(token, special=token in markers)
            for delta in reader.feed(text.decode(piece), chooser) or [Delta("")]:
                emit(delta)
            if reader.over:
                break
            if reader.reasons and progress.reasoning == reader.most_reasoning and form.tags:
                chooser.forced.extend(vocabulary.tokens(f"\n{form.tags[1]}\n\n", special=True))
        deltas = reader.feed(text.decode(b"", final=True), chooser)
        for piece in (*deltas, *reader.finish()):
            emit(piece)
        return reader, first_tokens

    # -- on any thread

    def _prompt(self, request: Request) -> list[int]:
        template = self._runtime.template()
        if request.tools and template.form is not GENERIC:
            tokens = template.tokens(request.messages, request.tools)
        else:
            tokens = template.tokens(as_plain_messages(request))
        if template.reasoning_tags is None:
            return tokens
        begin, end = template.reasoning_tags
        is_brief = request.grammar or request.endings or request.effort == "off"
        if template.opens_reasoning and is_brief:
            tokens += self._runtime.vocabulary().tokens(f"\n{end}\n\n", special=True)
        elif request.effort == "off":  # as templates with a switch write it
            tokens += self._runtime.vocabulary().tokens(f"{begin}\n\n{end}\n\n", special=True)
        return tokens


# -- shared by models of one file


class _Runtime:
    """A GGUF file in this process; tokenizer and template are thread-safe, the engine belongs to the worker thread."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        def lower_priority() -> None:  # with 19 it could not even be stopped on a busy machine
            if options.idle and sys.platform == "linux":  # only Linux has priorities of threads
                os.setpriority(os.PRIO_PROCESS, get_native_id(), 10)

        name = f"model {path.stem}"
        self.worker = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=lower_priority)
        self._path = path
        self._options = options
        self._opening = Lock()
        self.users: Counter[Path | None] = Counter()  # number of models by adapter
        self.loaded_vocabulary: Vocabulary | None = None
        self.loaded_engine: Engine | None = None
        self._template: ChatTemplate | None = None
        self.ahead = Progress()  # progress of the prompt that is evaluated ahead

    def read_no_further(self) -> None:
        """Cancel evaluation ahead, in favour of calls."""
        self.ahead.stop.set()
        self.ahead = Progress()

    def vocabulary(self) -> Vocabulary:
        """The tokenizer, loaded on first use."""
        with self._opening:
            if self.loaded_vocabulary is None:
                self.loaded_vocabulary = Vocabulary(self._path)
            return self.loaded_vocabulary

    def template(self) -> ChatTemplate:
        if self._template is None:
            self._template = ChatTemplate(self.vocabulary())
        return self._template

    def engine(self) -> Engine:
        """The weights with their caches, loaded on first use; only on the worker thread."""
        if self.loaded_engine is None:
            self.loaded_engine = Engine(self._path, self.vocabulary(), self._options)
        return self.loaded_engine

    def leave(self, adapter: Path | None) -> None:
        """Remove a user; frees unused adapters, and everything after the last user. Only on the worker thread."""
        with _sharing:
            self.users[adapter] -= 1
            last = self.users.total() == 0
            for key in [key for key, running in _running.items() if last and running is self]:
                del _running[key]  # no further model can join
        if not last:
            if self.loaded_engine is not None and adapter is not None and not self.users[adapter]:
                self.loaded_engine.drop_adapter(adapter)
            return
        if self.loaded_engine is not None:
            self.loaded_engine.close()
        self.loaded_engine = self.loaded_vocabulary = self._template = None
        self.worker.shutdown(wait=False)


_Key = tuple[int, int, int, EngineOptions]
_running: "WeakValueDictionary[_Key, _Runtime]" = WeakValueDictionary()  # loaded files
_sharing = Lock()
