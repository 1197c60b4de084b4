"""A GGUF model in this process: loaded when first needed, run in a thread of its own, cancellable between tokens.

It may wear a LoRA adapter, and shares the base with every other model of the same file (`runtime`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

from ecoshell.budget.price import ZERO_PRICE
from ecoshell.messages import ToolDocument
from ecoshell.models.base import Delta, PromptSize, Reply, Request, ScoreRequest, Scores, Traits
from ecoshell.models.choosing import Sampling
from ecoshell.models.engine import Cancelled, EngineOptions, Progress
from ecoshell.models.gguf import Utf8Stream
from ecoshell.models.gguf_header import check_adapter, check_base
from ecoshell.models.grammar import call_grammar, ending_grammar
from ecoshell.models.kvcache import Lane
from ecoshell.models.runtime import join_runtime, leave_runtime
from ecoshell.models.textcalls import as_plain_messages, parse_reply

SMALL_BYTES = 300_000_000
"""Files below this size hold models too small to follow a protocol."""
SMALL_REPEAT_PENALTY = 1.1
"""Small models fall into loops when they always take the likeliest token."""
USUAL_CONTEXT = 8192


class LocalModel:
    """A GGUF model as a `Model` and a `Scorer`; requests run one after another, and cost nothing but time."""

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
        self._small = path.stat().st_size < SMALL_BYTES
        self._runtime = join_runtime(path, self._options, self._adapter)
        self._closed = False

    @property
    def traits(self) -> Traits:
        """What is known of the model without loading it; the context may shrink to what the file allows."""
        context = self._runtime.context or self._options.context or USUAL_CONTEXT
        return Traits(self._name, ZERO_PRICE, context, None, native_tools=False, local=True, small=self._small)

    @property
    def loaded(self) -> bool:
        """Whether the tokenizer is at hand."""
        return self._runtime.counts

    async def warm(self) -> None:
        """Begin to load tokenizer and weights on the model's thread; a file that cannot be used says so when asked."""
        loading = asyncio.get_running_loop().run_in_executor(self._runtime.worker, self._runtime.engine)
        loading.add_done_callback(lambda done: done.cancelled() or done.exception())

    def size(self, request: Request) -> PromptSize:
        """Exact, by the file's own tokenizer; the first count loads it (0.7 s), so make that one in a thread."""
        count = len(self._prompt(request))
        return PromptSize(count, count, exact=True)

    def count(self, text: str) -> int:
        """Exact; the first count loads the tokenizer, as in `size`."""
        return len(self._runtime.vocabulary().tokens(text))

    def score_size(self, request: ScoreRequest) -> PromptSize:
        """Exact: the prefix once, and every context and target."""
        prefix, pairs = self._score_tokens(request)
        count = len(prefix) + sum(len(context) + len(target) for context, target in pairs)
        return PromptSize(count, count, exact=True)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Reply]:
        """Spoken text as it comes, with the usage so far, then the reply; a call's JSON is not streamed as text."""
        loop = asyncio.get_running_loop()
        feed: asyncio.Queue[Delta | None] = asyncio.Queue()
        progress = Progress()

        def say(text: str) -> None:
            loop.call_soon_threadsafe(feed.put_nowait, Delta(text, progress.usage()))

        progress.moved = lambda: say("")
        work = loop.run_in_executor(self._runtime.worker, self._generate, request, progress, say)
        work.add_done_callback(lambda _: feed.put_nowait(None))
        try:
            while (delta := await feed.get()) is not None:
                yield delta
            yield await work
        finally:
            await _stopped(work, progress)

    async def score(self, request: ScoreRequest) -> Scores:
        """Score on the model's thread; cancelling it stops between batches."""
        progress = Progress()
        work = asyncio.get_running_loop().run_in_executor(self._runtime.worker, self._score, request, progress)
        try:
            return await asyncio.shield(work)
        finally:
            await _stopped(work, progress)

    async def aclose(self) -> None:
        """Free what no other model uses; a call in progress ends first."""
        if not self._closed:
            await asyncio.wrap_future(self._leave())

    def discard(self) -> None:
        """The same without waiting for it."""
        if not self._closed:
            self._leave()

    def _leave(self) -> Future[None]:
        self._closed = True
        return self._runtime.worker.submit(leave_runtime, self._runtime, self._adapter)

    # -- on the model's thread

    def _generate(self, request: Request, progress: Progress, say: Callable[[str], None]) -> Reply:
        prompt = self._prompt(request)
        progress.check()
        engine, lane = self._runtime.engine(), Lane(request.role, self._adapter)
        text, stream = "", Utf8Stream()
        for token in engine.generate(prompt, self._sampling(request), progress, lane):
            piece = stream.feed(self._runtime.vocabulary().piece(token))
            text += piece
            say("" if _is_protocol(text) else piece)
        text += stream.finish()
        cut = progress.cut
        return parse_reply(text, request, progress.usage(), cut)

    def _score(self, request: ScoreRequest, progress: Progress) -> Scores:
        prefix, pairs = self._score_tokens(request)
        logprobs = self._runtime.engine().score(prefix, pairs, progress, Lane(request.role, self._adapter))
        return Scores(tuple(logprobs), progress.usage())

    # -- on any thread

    def _prompt(self, request: Request) -> list[int]:
        return self._runtime.template().tokens(as_plain_messages(request))

    def _score_tokens(self, request: ScoreRequest) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
        vocabulary = self._runtime.vocabulary()
        prefix = vocabulary.tokens(request.prefix, start=True)
        pairs = zip(request.contexts, request.targets, strict=True)
        return prefix, [(vocabulary.tokens(context), vocabulary.tokens(target)) for context, target in pairs]

    def _sampling(self, request: Request) -> Sampling:
        grammar, penalty = "", SMALL_REPEAT_PENALTY if self._small else 1.0
        if request.grammar:
            grammar, penalty = request.grammar, 1.0
        elif request.endings:
            grammar = ending_grammar(request.endings, request.max_tokens)
        elif request.want != "text" and request.callable_now:
            grammar, penalty = _grammar(request.callable_now, request.want), 1.0
        return Sampling(request.max_tokens, grammar, request.temperature, penalty)


async def _stopped(work: asyncio.Future[Any], progress: Progress) -> None:
    """Tell the model's thread to stop and wait until it has, which takes a token at most."""
    progress.stop.set()
    await asyncio.wait([work])
    if not work.cancelled() and isinstance(work.exception(), Cancelled):
        return  # read here, so that nobody reports it as never retrieved


def _is_protocol(text: str) -> bool:
    """Whether a reply, as far as it has come, is a call's JSON and not speech."""
    return text.lstrip().startswith(("{", "```"))


_grammars: dict[tuple[str, ...], str] = {}
_GRAMMARS_KEPT = 32


def _grammar(documents: tuple[ToolDocument, ...], want: Literal["call", "either"]) -> str:
    """The grammar for these documents, kept, as it is asked for at every step."""
    key = (want, *(document.as_text() for document in documents))
    if key not in _grammars:
        if len(_grammars) >= _GRAMMARS_KEPT:
            _grammars.clear()
        _grammars[key] = call_grammar(documents, want)
    return _grammars[key]
