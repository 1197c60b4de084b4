"""A GGUF model in this process: loaded when first needed, run in a thread of its own, cancellable between tokens.

It may wear a LoRA adapter. Models that name the same file share it, whatever their adapters: three roles on one base
load it once.
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
from typing import Any
from weakref import WeakValueDictionary

from ecoshell.budget import ZERO_PRICE
from ecoshell.messages import Call
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits
from ecoshell.models.chat_template import ChatTemplate
from ecoshell.models.choosing import Chooser, Sampling, recommended
from ecoshell.models.engine import CacheOwner, Cancelled, Engine, EngineOptions, Progress
from ecoshell.models.formats import GENERIC, call_json
from ecoshell.models.gguf import TRAINED_FOR, check_adapter, check_base, header, parameters, size_of
from ecoshell.models.llama import Vocabulary
from ecoshell.models.protocol import as_plain_messages
from ecoshell.models.replying import Quoting, ReplyForm, ReplyReader

SMALL_BYTES = 300_000_000
"""Files below this size, all their parts together, hold models too small to follow a protocol not trained on."""
SMALL_REPEAT_PENALTY = 1.1
"""Small models fall into loops when they always take the likeliest token, unless they were taught what to say."""
USUAL_CONTEXT = 8192
REFUSED_BEGINNINGS = 4
"""Beginnings of calls that are refused, one token each, where only text is wanted."""


class LocalModel:
    """A GGUF model as a `Model`; requests run one after another, and cost nothing but time."""

    def __init__(
        self, path: Path, *, name: str = "", adapter: Path | None = None, options: EngineOptions | None = None
    ) -> None:
        """Nothing is loaded yet; raises ModelMissing or ModelBroken when the files cannot be what they are named as."""
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
        key = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, self._options)  # a file that was replaced is another
        with _sharing:
            runtime = _running.get(key)
            if runtime is None:
                runtime = _running[key] = _Runtime(path, self._options)
            runtime.users[self._adapter] += 1
        self._runtime = runtime
        self._closed = False

    @property
    def traits(self) -> Traits:
        """What is known of the model without loading it; the context may shrink to what the file allows."""
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
        """Whether the tokenizer is at hand."""
        return self._runtime.loaded_vocabulary is not None

    async def warm(self, ahead: Request | None = None) -> None:
        """Begin to load tokenizer and weights on the model's thread; a file that cannot be used says so when asked.

        What is expected to be asked is read then, until a model of the same file is asked anything.
        """
        progress = self._runtime.ahead

        def work() -> None:
            engine = self._runtime.engine()
            if ahead is not None:
                engine.read(self._prompt(ahead), progress, CacheOwner(ahead.role, self._adapter))

        loading = asyncio.get_running_loop().run_in_executor(self._runtime.worker, work)
        loading.add_done_callback(lambda done: done.cancelled() or done.exception())

    def size(self, request: Request) -> PromptSize:
        """Exact, by the file's own tokenizer; the first count loads it (0.7 s), so make that one in a thread."""
        count = len(self._prompt(request))
        return PromptSize(count, count, exact=True)

    def count(self, text: str) -> int:
        """Exact; the first count loads the tokenizer, as in `size`."""
        return len(self._runtime.vocabulary().tokens(text))

    def exchange(self, request: Request, said: str, call: Call | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens of a prompt, and of a reply to it with its end: what a model is trained on."""
        vocabulary = self._runtime.vocabulary()
        if call is not None:
            form = self._runtime.template().form if request.tools else GENERIC
            schema = next((tool.parameters for tool in request.tools if tool.name == call.name), None)
            written = form.write(call.name, call_json(call), parameters=schema)
            said = f"{said}\n{written}" if said else written
        end = vocabulary.tokens(vocabulary.start_and_end()[1], special=True)
        return tuple(self._prompt(request)), (*vocabulary.tokens(said), *end)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Spoken text as it comes, with the usage so far, then the reply; of a call only the answer of `finish`."""
        quoting = Quoting(request) if self._trained else None
        loop = asyncio.get_running_loop()
        feed: asyncio.Queue[Delta | None] = asyncio.Queue()
        progress = Progress()

        def say(piece: Delta) -> None:
            loop.call_soon_threadsafe(feed.put_nowait, replace(piece, usage=progress.usage()))

        progress.moved = lambda: say(Delta(""))
        self._runtime.read_no_further()
        work = loop.run_in_executor(self._runtime.worker, self._generate, request, progress, say)
        work.add_done_callback(lambda _: feed.put_nowait(None))
        try:
            while (delta := await feed.get()) is not None:
                yield delta if quoting is None or delta.reasoning else replace(delta, text=quoting.feed(delta.text))
            reply = await work
            if quoting is not None:
                yield Delta(quoting.end())
                whole = Quoting(request)
                reply = replace(reply, text=whole.feed(reply.text) + whole.end())
            yield reply
        finally:
            await _stopped(work, progress)

    async def aclose(self) -> None:
        """Free what no other model uses; a call in progress ends first."""
        if (leaving := self.discard()) is not None:
            await asyncio.wrap_future(leaving)

    def discard(self) -> Future[None] | None:
        """The same without waiting for it; None where that was done before."""
        if self._closed:
            return None
        self._closed = True
        self._runtime.read_no_further()
        return self._runtime.worker.submit(self._runtime.leave, self._adapter)

    # -- on the model's thread

    def _generate(self, request: Request, progress: Progress, say: Callable[[Delta], None]) -> Reply:
        prompt, template = self._prompt(request), self._runtime.template()
        calls = template.form if request.tools else GENERIC  # the template was told of no others
        # before an answer that has a grammar of its own, a few words, nothing is reasoned
        closed = request.grammar or request.endings or request.effort == "off"
        tags = None if closed else template.reasoning_tags
        form = ReplyForm(calls, tags, inside=template.opens_reasoning and tags is not None)
        progress.check()
        reader, begun = self._read(prompt, request, form, progress, say, ())
        while reader.refused and len(begun) < REFUSED_BEGINNINGS:
            progress.input = 0  # the prompt is the same one, and evaluated
            reader, begun = self._read(prompt, request, form, progress, say, begun)
        reply = reader.reply(progress.usage(), cut=progress.cut)
        return replace(reply, finish="length") if progress.cut else reply

    def _read(
        self,
        prompt: list[int],
        request: Request,
        form: ReplyForm,
        progress: Progress,
        say: Callable[[Delta], None],
        never: tuple[int, ...],
    ) -> tuple[ReplyReader, tuple[int, ...]]:
        """Read a reply that begins with none of some tokens; returns these and what it did begin with."""
        engine, vocabulary = self._runtime.engine(), self._runtime.vocabulary()
        reader = ReplyReader(request, form)
        cut = (vocabulary.tokens(marker, special=True) for marker in (*form.calls.markers, *(form.tags or ())))
        markers = {tokens[0] for tokens in cut if len(tokens) == 1}  # control tokens that are part of a reply's text
        text = getincrementaldecoder("utf-8")("replace")  # a character may span tokens
        sampling = recommended(vocabulary) if request.temperature is None else Sampling(request.temperature)
        if self.traits.small and not self._trained:
            sampling = replace(sampling, repeat_penalty=SMALL_REPEAT_PENALTY)
        chooser = Chooser(vocabulary, sampling, "" if reader.reasons else reader.held)
        chooser.never_first += never
        room, owner, begun = request.max_tokens - progress.output, CacheOwner(request.role, self._adapter), never
        try:
            if request.want == "text" and request.tools and form.calls.opens:
                marker = vocabulary.tokens(form.calls.opens, special=True)
                chooser.never += marker if len(marker) == 1 else ()  # no call is begun, as far as one token begins it
            for token in engine.generate(prompt, chooser, room, progress, owner):
                begun = (*never, token) if begun == never else begun
                progress.reasoning += reader.reasons
                shown = reader.feed(text.decode(vocabulary.piece(token, special=token in markers)), chooser)
                for piece in shown or [Delta("")]:
                    say(piece)
                if reader.over:
                    break
                if reader.reasons and progress.reasoning == reader.most_reasoning and form.tags:
                    chooser.forced.extend(vocabulary.tokens(f"\n{form.tags[1]}\n\n", special=True))
            shown = reader.feed(text.decode(b"", final=True), chooser)
        finally:
            chooser.close()
        for piece in (*shown, *reader.finish()):
            say(piece)
        return reader, begun

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
        if template.opens_reasoning and (request.grammar or request.endings or request.effort == "off"):
            tokens += self._runtime.vocabulary().tokens(f"\n{end}\n\n", special=True)
        elif request.effort == "off":  # as templates write it that have a switch for this
            tokens += self._runtime.vocabulary().tokens(f"{begin}\n\n{end}\n\n", special=True)
        return tokens


async def _stopped(work: asyncio.Future[Any], progress: Progress) -> None:
    """Tell the model's thread to stop and wait until it has, which takes a token at most."""
    progress.stop.set()
    await asyncio.wait([work])
    if not work.cancelled() and isinstance(work.exception(), Cancelled):
        return  # read here, so that nobody reports it as never retrieved


# -- what models of one file share


class _Runtime:
    """A GGUF file as this process runs it; tokenizer and template serve any thread, the engine only `worker`'s."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        """Nothing is loaded yet."""
        idle = options.idle and sys.platform == "linux"  # only Linux has a priority for each thread
        self.worker = ThreadPoolExecutor(
            1,
            thread_name_prefix=f"model {path.stem}",
            # at 19 it could not even be stopped on a busy machine
            initializer=(lambda: os.setpriority(os.PRIO_PROCESS, get_native_id(), 10)) if idle else None,
        )
        self._path = path
        self._options = options
        self._opening = Lock()
        self.users: Counter[Path | None] = Counter()
        """Models that use this, by their adapter."""
        self.loaded_vocabulary: Vocabulary | None = None
        self.loaded_engine: Engine | None = None
        self._template: ChatTemplate | None = None
        self.ahead = Progress()
        """Of what is read before it is asked for."""

    def read_no_further(self) -> None:
        """Let what is asked go before what is read ahead."""
        self.ahead.stop.set()
        self.ahead = Progress()

    def vocabulary(self) -> Vocabulary:
        """The tokenizer, loaded when first needed."""
        with self._opening:
            if self.loaded_vocabulary is None:
                self.loaded_vocabulary = Vocabulary(self._path)
            return self.loaded_vocabulary

    def template(self) -> ChatTemplate:
        """The chat template."""
        if self._template is None:
            self._template = ChatTemplate(self.vocabulary())
        return self._template

    def engine(self) -> Engine:
        """The weights with their caches, loaded when first needed; on the worker's thread alone."""
        if self.loaded_engine is None:
            self.loaded_engine = Engine(self._path, self.vocabulary(), self._options)
        return self.loaded_engine

    def leave(self, adapter: Path | None) -> None:
        """One user less, which frees an adapter, and all where it was the last; on the worker's thread alone."""
        with _sharing:
            self.users[adapter] -= 1
            last = self.users.total() == 0
            for key in [key for key, running in _running.items() if last and running is self]:
                del _running[key]  # from here on nobody joins it
        if not last:
            if self.loaded_engine is not None and adapter is not None and not self.users[adapter]:
                self.loaded_engine.drop_adapter(adapter)
            return
        if self.loaded_engine is not None:
            self.loaded_engine.close()
        if self.loaded_vocabulary is not None:
            self.loaded_vocabulary.close()
        self.loaded_engine = self.loaded_vocabulary = self._template = None
        self.worker.shutdown(wait=False)


_Key = tuple[int, int, int, EngineOptions]
_running: "WeakValueDictionary[_Key, _Runtime]" = WeakValueDictionary()
"""Those of this process, shared by the models that use them now."""
_sharing = Lock()
