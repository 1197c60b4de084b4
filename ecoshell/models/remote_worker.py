"""The helper process that owns litellm: JSON Lines in, JSON Lines out, so that its slow import stalls no screen.

It reads `{"environ": {…}}` (keys that were removed from the environment), `{"id", "ask": {…}, "bytes", "seconds"}`,
`{"id", "count": {…}, "seconds"}` and `{"id", "cancel": true}` from standard input and ends when that does. For each
ask it writes `{"id", "sent": true}` before anything leaves this machine, `{"id", "delta": text, "reasoning": text,
"answer": text, "unseen": bytes}` for each chunk (texts may be empty: arguments of calls other than `finish` are only
counted), and finally either `{"id", "reply": {text, reasoning, calls, message, usage, finish}}` or `{"id", "error":
{kind, address, message, status, retry_after, transient, billed}}`. An answer of more bytes or seconds than the ask
allows is an error. A count is answered by `{"id", "counted": tokens}`, null if the provider has no endpoint that counts
or does not answer. The program's argument is its memory limit in bytes.

Kinds of errors: `key` (missing or refused), `unknown` (no such model or provider), `context` (the prompt is too
long), `busy` (limits, outages, time-outs), `unreachable` (no connection), `request` (the request is rejected), `broken`
(the answer is unusable).
"""

import asyncio
import gc
import json
import os
import re
import signal
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from importlib import import_module
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn, Protocol, cast

from ecoshell.messages import FINISH
from ecoshell.models.replying import AnswerText
from ecoshell.secrecy import close_process

_ALWAYS: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "num_retries": 0,
    "max_retries": 0,  # a retry is a new reservation, which only the shell can make
    "drop_params": True,
    "_skip_mcp_handler": True,  # or a tool array makes litellm import mcp, which need not be installed
}
"""Arguments of every call."""

_ESTIMATING = frozenset(
    {
        "a2a",
        "langflow",
        "langgraph",
        "nlp_cloud",
        "petals",
        "predibase",
        "replicate",
        "sagemaker",
        "sagemaker_chat",
    }
)
"""Providers whose usage may be litellm's own count, which is not a report."""


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the shell, which cancels what it wants cancelled
    close_process()  # it receives keys
    limit_memory(int(sys.argv[1]))
    wire = _take_stdout()
    lines: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        """Pass lines on and end the process with its input; a thread works also while litellm loads."""
        try:
            for line in sys.stdin.buffer:
                lines.put(line)
        except MemoryError:
            _end_at_the_limit()
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    load_litellm()
    asyncio.run(Worker(wire).serve(lines))


def limit_memory(max_bytes: int) -> None:
    """Limit the address space of this process to `most` bytes, where the system supports it."""
    with suppress(ImportError, OSError, ValueError):  # Windows has none, macOS none that holds
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


def load_litellm() -> None:
    """Import and configure litellm, which takes seconds."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = (
        "True"  # or it fetches its price map while being imported
    )
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # or it reads a .env file
    gc.disable()  # collections among thousands of new classes take a fifth of the import time
    try:
        litellm: Any = import_module("litellm")
        logging: Any = import_module("litellm.litellm_core_utils.litellm_logging").Logging
        openai: Any = import_module("litellm.llms.openai.common_utils").BaseOpenAILLM
    finally:
        gc.freeze()
        gc.enable()

    litellm.suppress_debug_info = True
    litellm.disable_streaming_logging = True
    litellm.callbacks = []
    litellm.success_callback = []
    litellm.failure_callback = []
    litellm.num_retries = 0
    litellm.disable_aiohttp_transport = True  # one client for all, so that its traffic is counted
    # OpenAI clients hold a key, so they are not cached; connections are kept in one HTTP client without keys.
    litellm.aclient_session = openai.get_async_http_client()
    openai.set_cached_openai_client = _do_nothing
    # litellm's own cost estimate is unused, and would load a tokenizer for 0.4 s.
    logging.response_cost_calculator = logging._response_cost_calculator = _do_nothing
    count_traffic()


def _do_nothing(*_: object, **__: object) -> None: ...


FIRST_CALL_MODULES = (
    "openai.resources",
    "anyio._backends._asyncio",
    "litellm._service_logger",
    "litellm.litellm_core_utils.default_encoding",
    "litellm.llms.anthropic.completion.transformation",
    "litellm.llms.gemini.chat.transformation",
    "litellm.llms.vertex_ai.context_caching.vertex_ai_context_caching",
    "litellm.llms.openrouter.chat.transformation",
    "litellm.llms.mistral.chat.transformation",
    "litellm.llms.ollama.chat.transformation",
    "litellm.proxy.guardrails.exception_utils",
)
"""Modules that litellm loads during the first call of a provider, which takes up to a second."""


def warm_litellm() -> None:
    """Load the modules of first calls ahead of time."""
    for module in FIRST_CALL_MODULES:
        with suppress(ImportError):
            import_module(module)


class Wire(Protocol):
    """Destination of a worker's lines."""

    def write(self, line: bytes, /) -> Any: ...

    def flush(self) -> Any: ...


def _loaded() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(eq=False)
class Worker:
    """Runs any number of asks at once; one line of output belongs to one ask."""

    _wire: Wire
    _ready: asyncio.Event = field(default_factory=_loaded)
    """Set once litellm is loaded; no ask begins before that."""
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, asyncio.Task[None]])

    async def serve(self, lines: SimpleQueue[bytes]) -> None:
        """Process lines forever."""
        while True:
            line = await asyncio.to_thread(lines.get)
            try:
                message = json.loads(line)
            except MemoryError:
                _end_at_the_limit()
            if "environ" in message:
                os.environ.update(message["environ"])
            else:
                self.take(message)

    def take(self, message: dict[str, Any]) -> None:
        """Start or cancel an ask."""
        number: int = message["id"]
        if "cancel" not in message:
            work = self._count if "count" in message else self._answer
            task = self._tasks[number] = asyncio.create_task(work(number, message))
            task.add_done_callback(lambda _: self._tasks.pop(number, None))
        elif task := self._tasks.get(number):
            task.cancel()

    @property
    def is_busy(self) -> bool:
        """Whether any ask is running."""
        return bool(self._tasks)

    def cancel(self) -> None:
        """Cancel all asks."""
        for task in self._tasks.values():
            task.cancel()

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        await self._ready.wait()
        answer, traffic = _Answer(), Traffic(message["bytes"])
        _CURRENT.set(traffic)
        deadline = asyncio.timeout(message["seconds"])
        try:
            async with deadline:
                await self._stream(number, message["ask"], answer)
            reply = {
                "text": "".join(answer.text),
                "reasoning": "".join(answer.reasoning),
                "calls": [
                    {"name": call["name"], "arguments": _without_repetition(call["arguments"])}
                    for call in answer.calls
                ],
                "message": answer.message(),
                "finish": traffic.finish(answer.finish),
                "usage": None if traffic.odd_usage else answer.usage,
            }
            self._write({"id": number, "reply": reply})
        except Exception as error:  # noqa: BLE001 - the worker's edge: one ask's failure is a line, the others go on
            if _has([*_chain(error)], MemoryError):  # the process is unreliable afterwards
                _end_at_the_limit()
            late = Unfinished(f"its answer had not ended after {message['seconds']:g} seconds")
            failure = late if deadline.expired() else error
            self._write(
                {"id": number, "error": describe(failure, began=answer.began, traffic=traffic)}
            )

    async def _count(self, number: int, message: dict[str, Any]) -> None:
        """Let the provider count a prompt; this is free and generates nothing."""
        await self._ready.wait()
        litellm: Any = import_module("litellm")
        tokens: int | None = None
        with suppress(Exception):  # without a count, the prompt is bounded by its size
            async with asyncio.timeout(message["seconds"]):
                count = await litellm.acount_tokens(**message["count"])
            tokens = None if count.tokenizer_type == "local_tokenizer" else count.total_tokens
        self._write({"id": number, "counted": tokens})

    async def _stream(self, number: int, ask: dict[str, Any], answer: "_Answer") -> None:
        litellm: Any = import_module("litellm")

        _, provider, _, _ = litellm.get_llm_provider(
            model=ask["model"], api_base=ask.get("base_url")
        )
        supported = litellm.get_supported_openai_params(
            model=ask["model"], custom_llm_provider=provider
        )
        if supported is not None and not {"max_tokens", "max_completion_tokens"} & set(supported):
            # litellm would drop the limit
            raise NoOutputLimit(
                f"{provider} takes no limit on how much is written, so no cap could hold"
            )
        self._write({"id": number, "sent": True})
        stream: Any = await litellm.acompletion(**ask, **_ALWAYS)
        answer.began = True
        try:
            async for chunk in stream:
                self._write({"id": number, **answer.take(chunk)})
                await asyncio.sleep(0)  # lets cancellation through even if a provider floods
        except Exception:
            # Errors after the end of an answer, such as an unreadable usage, do not undo it.
            if not _finish_reason(stream):
                raise
        finally:
            await stream.aclose()
        answer.close(stream)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._wire.write(json.dumps(record).encode() + b"\n")
        self._wire.flush()


@dataclass(slots=True)
class _Answer:
    """The contents of one stream so far."""

    began: bool = False
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    open: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """The call that pieces of each index belong to."""
    thinking: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Anthropic's thinking blocks; the last one may lack its signature."""
    items: list[Any] = field(default_factory=list[Any])
    """OpenAI's reasoning items."""
    details: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """OpenRouter's reasoning details, whose pieces have an index."""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the provider's message, such as Gemini's thought signatures."""
    answer: AnswerText = field(default_factory=AnswerText)
    """The answer of a first call of `finish`; after other calls it does not end the turn."""
    finish: str = ""
    usage: dict[str, Any] | None = None

    def take(self, chunk: Any) -> dict[str, Any]:
        """Add one chunk; returns its text, reasoning and answer, and the bytes that are not shown."""
        if not chunk.choices:
            return {"delta": "", "reasoning": "", "answer": "", "unseen": 0}
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        text = _text_of(choice.delta.content)
        reasoning = _text_of(getattr(choice.delta, "reasoning_content", None))
        self._take_fields(choice.delta)
        self.text.append(text)
        self.reasoning.append(reasoning)
        answer, unseen = "", 0
        for part in choice.delta.tool_calls or ():
            # A piece belongs to the call of its index, unless it starts another: some servers number every call 0 and
            # distinguish calls only by their IDs.
            index, identifier = part.index or 0, part.id or ""
            call = self.open.get(index)
            name = part.function.name or ""
            if call is None or (name and call["name"] and identifier and identifier != call["id"]):
                call = self.open[index] = {
                    "id": identifier,
                    "name": "",
                    "arguments": "",
                    "fields": {},
                }
                self.calls.append(call)
            call["id"] = call["id"] or identifier
            for source in (part, part.function):
                call["fields"] |= _plain(getattr(source, "provider_specific_fields", None)) or {}
            call["name"] += (
                "" if name == call["name"] else name
            )  # some servers repeat it with every piece
            call["arguments"] += part.function.arguments or ""
            unseen += len(name) + len(part.function.arguments or "")
            if call is self.calls[0] and call["name"] == FINISH:
                answer += self.answer.feed(part.function.arguments or "")
        return {"delta": text, "reasoning": reasoning, "answer": answer, "unseen": unseen}

    def _take_fields(self, delta: Any) -> None:
        """Add opaque fields that the provider expects back with its message."""
        for block in _plain(getattr(delta, "thinking_blocks", None)) or ():
            if block.get("type") == "redacted_thinking":
                self.thinking.append(block)
                continue
            if (
                not self.thinking
                or self.thinking[-1].get("signature")
                or "data" in self.thinking[-1]
            ):
                self.thinking.append({"type": "thinking", "thinking": "", "signature": ""})
            self.thinking[-1]["thinking"] += block.get("thinking") or ""
            self.thinking[-1]["signature"] = block.get("signature") or ""
        self.items += _plain(getattr(delta, "reasoning_items", None)) or ()
        for piece in _plain(getattr(delta, "reasoning_details", None)) or ():
            self._take_detail(piece)
        fields: dict[str, Any] = _plain(getattr(delta, "provider_specific_fields", None)) or {}
        for name, value in fields.items():
            earlier = None if name in _CUMULATIVE_FIELDS else self.fields.get(name)
            both_lists = isinstance(earlier, list) and isinstance(value, list)
            self.fields[name] = (
                [*cast("list[Any]", earlier), *cast("list[Any]", value)] if both_lists else value
            )

    def _take_detail(self, piece: dict[str, Any]) -> None:
        """Add a piece of a reasoning detail: texts of one index are joined, its other fields replaced."""
        detail_so_far = next(
            (detail for detail in self.details if detail.get("index") == piece.get("index")), None
        )
        if detail_so_far is None or piece.get("index") is None:
            self.details.append(piece)
            return
        for name, value in piece.items():
            joined = (
                name in ("text", "summary", "data")
                and isinstance(value, str)
                and isinstance(detail_so_far.get(name), str)
            )
            detail_so_far[name] = detail_so_far[name] + value if joined else value

    def message(self) -> dict[str, Any]:
        """The assistant message as the provider expects it back, in litellm's form."""
        message: dict[str, Any] = {"content": "".join(self.text) or None}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {
                        "name": call["name"],
                        "arguments": _without_repetition(call["arguments"]),
                    },
                    **({"provider_specific_fields": call["fields"]} if call["fields"] else {}),
                }
                for call in self.calls
            ]
        signed = [block for block in self.thinking if block.get("signature") or "data" in block]
        optional = {
            "thinking_blocks": signed,
            "reasoning_items": self.items,
            "provider_specific_fields": {
                k: v for k, v in self.fields.items() if k not in _DERIVED_FIELDS
            },
            "reasoning_details": self.details,
            "reasoning_content": "".join(self.reasoning),
        }
        if self.details:
            optional["reasoning"] = optional["reasoning_content"]
        return message | {name: value for name, value in optional.items() if value}

    def close(self, stream: Any) -> None:
        """Check that the stream is complete, and take its usage.

        litellm treats a closed connection as an end and invents a finish reason; only a received one counts. Raises
        Unfinished, or BadBody if nothing was received.
        """
        finish = _finish_reason(stream)
        if finish in ("", "error"):
            if finish or any(self.text) or any(self.reasoning) or self.calls:
                raise Unfinished("the stream ended before the answer did")
            raise BadBody("its answer is not a stream of chat chunks")
        self.finish = self.finish or finish
        self.usage = _reported_usage(stream)


_CUMULATIVE_FIELDS = frozenset({"tool_results", "tool_search_items"})
"""Fields that litellm repeats whole with each addition."""
_DERIVED_FIELDS = frozenset({"thinking_blocks", "reasoning_content", "refusal"})
"""Fields litellm repeats from elsewhere in the message."""


def _text_of(content: Any) -> str:
    """Text of a delta; some servers send a list of parts."""
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        texts: list[Any] = [part["text"] if _is_text(part) else part for part in parts]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("text"), str)


def _plain(value: Any) -> Any:
    """A value of litellm as plain JSON; None if that is impossible."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    dump = getattr(value, "model_dump", None)
    value = dump(exclude_none=True) if dump else value
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return None


def _without_repetition(arguments: str) -> str:
    """The arguments without their repetition, which litellm adds for models that it cannot stream (gpt-5-pro)."""
    half = arguments[: len(arguments) // 2]
    return half if arguments == half * 2 else arguments


def _finish_reason(stream: Any) -> str:
    """The finish reason sent by the provider; empty if none."""
    return (
        getattr(stream, "received_finish_reason", None)
        or getattr(stream, "intermittent_finish_reason", None)
        or ""
    )


def _reported_usage(stream: Any) -> dict[str, Any] | None:
    """The largest usage figures sent by the provider; None if it sent none.

    litellm always ends with a usage chunk, counted by itself if the provider sent none. The provider's reports are on
    the chunks before it. Several reports are cumulative, so the largest counts. litellm includes cached and written
    tokens in the prompt's for every provider. Some servers count reasoning only in the total.
    """
    if getattr(stream, "custom_llm_provider", None) in _ESTIMATING:
        return None
    largest: dict[str, Any] = {}
    for chunk in getattr(stream, "chunks", ()):
        usage = getattr(chunk, "usage", None)
        if usage is None:
            continue
        prompt = getattr(usage, "prompt_tokens_details", None)
        output = getattr(usage, "completion_tokens_details", None)
        written = (
            getattr(prompt, "cache_creation_tokens", None)
            or getattr(prompt, "cache_write_tokens", None)
            or getattr(usage, "cache_creation_input_tokens", None)
        )
        report = {
            "input": usage.prompt_tokens,
            "output": max(usage.completion_tokens, usage.total_tokens - usage.prompt_tokens),
            "cached": getattr(prompt, "cached_tokens", None) or 0,
            "cache_write": written or 0,
            "reasoning": getattr(output, "reasoning_tokens", None) or 0,
        }
        for name, count in report.items():
            highest = largest.setdefault(name, count)
            if isinstance(count, int) and not (isinstance(highest, int) and highest >= count):
                largest[name] = count
    return largest or None


OUT_OF_MEMORY = "it reached its memory limit"
clients: set[int] = set()
"""Descriptors of connected clients, which receive the reason when the process ends."""


def end_process(why: str) -> NoReturn:
    """End the process; ecoshell shows the reason and starts another one when needed."""
    os.write(2, f"\n{why}\n".encode())
    for client in clients:
        with suppress(OSError):
            os.write(client, json.dumps({"ended": why}).encode() + b"\n")
    os._exit(1)


def _end_at_the_limit() -> NoReturn:
    end_process(OUT_OF_MEMORY)


def _take_stdout() -> BinaryIO:
    """Reserve standard output for the protocol; other output goes to standard error."""
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return wire


# -- traffic: limits the data received for one ask, and detects whether it can cost money
#
# Bytes are counted on arrival, before parsing, so all of them count: comments, empty chunks, half a line, the text of
# an error. They are counted again after decompression.

REFUSALS = frozenset({400, 401, 403, 404, 413, 422, 429})
"""Statuses that certainly precede any work. Others may follow billed work, as a gateway's 502 usually does."""

_MAX_ERROR_BYTES = 1 << 16
"""Maximum bytes that are read of an error response."""
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_WINDOW_BITS = 47
"""For zlib: gzip or deflate."""
_UNUSUAL_USAGE = re.compile(
    rb"""(?<!\\)"(?:
        (?:prompt|completion|input|output|total|cached|reasoning|cache_(?:read|write|creation)(?:_input)?
            |prompt_cache_(?:hit|miss))_tokens
        |(?:input|output|total|cache(?:Read|Write)(?:Input)?)Tokens
        |(?:prompt|candidates|total|thoughts|cachedContent)TokenCount
        |(?:prompt_)?eval_count
    )"\s{0,9}:\s{0,9}(?:[tf"NI\[-]|\d{1,20}[.eE]|\d{10})""",
    re.VERBOSE,
)
"""A token count that is not an integer from 0 to 999,999,999. Searched in the raw data, because litellm converts
`true`, `"7"` and 7.0 to integers."""
_FINISH = re.compile(
    rb'(?<!\\)"(?:finishReason|finish_reason|stop_reason)"\s{0,9}:\s{0,9}"([A-Za-z_]{1,40})"'
)
_REFUSAL = re.compile(rb'(?<!\\)"refusal"\s{0,9}:\s{0,9}"[^"]')
_UNKNOWN_FINISHES = {
    "refusal": "refusal",
    "pause_turn": "length",
    "model_context_window_exceeded": "length",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
    "MISSING_THOUGHT_SIGNATURE": "malformed_call",
}
"""Finish reasons that litellm turns into `stop`."""
CONNECT = 3.0
"""Seconds until a connection must be established."""
_OVERLAP_BYTES = 128
"""Bytes that are kept between pieces, enough to match across two of them."""


class BadBody(Exception):
    """The response is not an answer, is too long, or has an unsupported encoding."""


@dataclass(slots=True)
class Traffic:
    """The traffic of one ask; `left` bytes of answer are still allowed."""

    left: int
    sent: bool = False
    """Whether anything was sent through httpx, as nearly all providers do."""
    unrefused: int = 0
    """Sent requests that were not certainly rejected before any work."""
    unreached: str = ""
    """The last address (host:port) that could not be connected to."""
    odd_usage: bool = False
    """Whether a token count was invalid."""
    retry_after: float | None = None
    """Seconds the provider asked to wait, in the headers of its last refusal."""
    sent_finish: str = ""
    """The provider's own last finish reason, which litellm turns into `stop` if unknown."""
    refusal: bool = False
    """Whether OpenAI sent a refusal, which litellm drops."""

    async def body(
        self, pieces: AsyncIterable[bytes], encoding: str, *, refused: bool
    ) -> AsyncIterator[bytes]:
        """The body of a response, counted before and after decompression; of an error only the beginning."""
        if encoding not in ("identity", *_PACKED):
            raise BadBody(f"it used the encoding {encoding[:80]!r}, which was not requested")
        unpack = zlib.decompressobj(_WINDOW_BITS).decompress if encoding in _PACKED else None
        sent_bytes, tail, lines = 0, b"", StreamLines()
        async for piece in pieces:
            self._take(len(piece))
            room = min(self.left, _MAX_ERROR_BYTES) if refused else self.left
            try:
                text = unpack(piece, room + 1) if unpack else piece
            except zlib.error as error:
                raise BadBody(f"its answer is not in the stated encoding {encoding!r}") from error
            self._take(len(text))
            tail = (tail + text)[-len(text) - _OVERLAP_BYTES :]
            self.odd_usage = self.odd_usage or _UNUSUAL_USAGE.search(tail) is not None
            self.refusal = self.refusal or _REFUSAL.search(tail) is not None
            for reason in _FINISH.finditer(tail):
                self.sent_finish = reason[1].decode()
            yield text if refused else lines.feed(text)
            sent_bytes += len(text)
            if refused and sent_bytes > _MAX_ERROR_BYTES:
                return
        yield lines.end()

    def finish(self, reason: str) -> str:
        """The finish reason: litellm's `reason`, unless it hides the provider's own."""
        if reason != "stop":
            return reason
        return "refusal" if self.refusal else _UNKNOWN_FINISHES.get(self.sent_finish, reason)

    def _take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise BadBody(
                "it sent far more data than an answer of this length needs, and was cut off"
            )


_UNUSUAL_CONTENT = re.compile(
    rb"""(?<!\\)"(?:content"\s{0,9}:\s{0,9}\[|refusal"\s{0,9}:\s{0,9}")"""
)
"""Content as a list of parts, or a refusal: litellm drops both from a stream of chat chunks."""


@dataclass(slots=True)
class StreamLines:
    """Converts lists of content parts and refusals in a stream of chat chunks to text.

    All other data passes unchanged and without delay; only a line that may contain either is buffered.
    """

    _waiting: bytes = b""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; returns the data that is ready."""
        if not self._waiting and not _UNUSUAL_CONTENT.search(piece) and piece.endswith(b"\n"):
            return piece
        text = self._waiting + piece
        lines, newline, self._waiting = text.rpartition(b"\n")
        return b"\n".join(map(_with_text_content, lines.split(b"\n"))) + newline if newline else b""

    def end(self) -> bytes:
        """The buffered rest at the end of the stream."""
        text, self._waiting = self._waiting, b""
        return _with_text_content(text)


def _with_text_content(line: bytes) -> bytes:
    """A line of a stream with its content as text; other lines are returned unchanged."""
    prefix, _, data = line.partition(b"data:")
    if prefix or not _UNUSUAL_CONTENT.search(line):
        return line
    try:
        chunk = json.loads(data)
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if isinstance(delta.get("content"), list):
                delta["content"] = _text_of(delta["content"])
            if isinstance(delta.get("refusal"), str) and not delta.get("content"):
                delta["content"] = delta.pop("refusal")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return line
    return b"data: " + json.dumps(chunk).encode()


_CURRENT: ContextVar[Traffic | None] = ContextVar("traffic", default=None)
"""The traffic of the current task's ask."""


def count_traffic() -> None:
    """Let all httpx clients of this process count the traffic of their asks."""
    import httpx

    class Body(httpx.AsyncByteStream):
        def __init__(self, response: httpx.Response, traffic: Traffic) -> None:
            self._inner = cast("httpx.AsyncByteStream", response.stream)
            encoding = (
                response.headers.pop("Content-Encoding", "identity").strip().lower()
            )  # or httpx would decompress it
            self._pieces = traffic.body(self._inner, encoding, refused=not response.is_success)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._pieces

        async def aclose(self) -> None:
            await self._inner.aclose()

    send = httpx.AsyncHTTPTransport.handle_async_request

    async def counted(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        traffic = _CURRENT.get()
        if traffic is None:
            return await send(self, request)
        request.headers["Accept-Encoding"] = "identity"
        limits = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {
            **limits,
            "connect": min(limits.get("connect") or CONNECT, CONNECT),
        }
        traffic.sent = True
        traffic.unrefused += 1
        try:
            response = await send(self, request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            traffic.unrefused -= 1
            port = request.url.port or {"http": 80}.get(request.url.scheme, 443)
            traffic.unreached = f"{request.url.host}:{port}"
            raise
        traffic.unreached = ""
        traffic.unrefused -= response.status_code in REFUSALS
        response.headers.pop("Set-Cookie", None)  # otherwise asks with another key would send it
        traffic.retry_after = (
            None if response.is_success else retry_after(response.headers, time.time())
        )
        response.stream = Body(response, traffic)
        return response

    httpx.AsyncHTTPTransport.handle_async_request = counted


# -- failures

_MAX_MESSAGE_CHARS = 20_000
"""Characters; ecoshell shortens the message after removing keys, because half of a key would not be recognised."""
_WRAPPINGS = re.compile(r"^(?:litellm\.\w+:\s*|\w*Error:\s*|\w+Exception - )+")


_DURATION = re.compile(
    r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII
)
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"', re.ASCII)
"""Gemini's wait, in the body of the error."""
_LIMITS = ("requests", "tokens")
_OUT_OF_CREDIT = re.compile(
    r"insufficient_quota|credit balance|exceeded your current quota|billing", re.IGNORECASE
)
"""Messages of providers, also with status 429, for which waiting does not help."""


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by Retry-After (seconds or an HTTP date), or until the reset of an exhausted limit."""
    with suppress(KeyError, ValueError):
        return _plain_seconds(headers["retry-after-ms"]) / 1000
    if header := headers.get("retry-after", ""):
        with suppress(ValueError):
            return _plain_seconds(header)
        with suppress(TypeError, ValueError, OverflowError):
            return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    resets: list[float] = []
    for limit in _LIMITS:
        duration = _DURATION.fullmatch(headers.get(f"x-ratelimit-reset-{limit}", ""))
        if headers.get(f"x-ratelimit-remaining-{limit}") == "0" and duration and duration.group():
            hours, minutes, seconds, milliseconds = (float(part or 0) for part in duration.groups())
            resets.append(hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)
    return max(resets, default=None)


def _plain_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


class Unfinished(Exception):
    """The stream ended early, or the answer missed its deadline."""


class NoOutputLimit(Exception):
    """The provider has no parameter for an output limit."""


def describe(error: Exception, *, began: bool, traffic: Traffic) -> dict[str, Any]:
    """The failure as a record; `began` says whether the provider had started to answer."""
    import httpx
    from litellm.exceptions import AuthenticationError, BadRequestError

    chain = list(_chain(error))
    # litellm invents a status for failures without one, so only httpx's counts
    status = next(
        (link.response.status_code for link in chain if isinstance(link, httpx.HTTPStatusError)),
        None,
    )
    cause = next((link for link in chain if isinstance(link, BadBody)), error)
    message = str(cause).partition("Original exception:")[0].partition("Traceback (most recent")[0]
    # without httpx traffic, nothing can be billed if litellm itself rejected the request
    unsent = _has(chain, NoOutputLimit) or isinstance(error, (BadRequestError, AuthenticationError))
    delay = _RETRY_DELAY.search(str(cause))
    return {
        "kind": "unreachable" if traffic.unreached else _kind(chain, status),
        "address": traffic.unreached,
        "message": _WRAPPINGS.sub("", message).strip()[:_MAX_MESSAGE_CHARS] or type(cause).__name__,
        "status": status,
        "retry_after": float(delay[1])
        if delay and traffic.retry_after is None
        else traffic.retry_after,
        "transient": (status is None or status in _TRANSIENT or status >= 500)
        and status not in _LASTING
        and not (status == 429 and _OUT_OF_CREDIT.search(str(cause))),
        "billed": began or traffic.unrefused > 0 or not (traffic.sent or unsent),
    }


_BUSY = (402, 408, 409, 425, 429, *range(500, 1000))
_TRANSIENT = frozenset({408, 409, 425, 429})
_LASTING = frozenset({501, 505})
_STATUS_KINDS = {
    **dict.fromkeys(_BUSY, "busy"),
    401: "key",
    403: "key",
    404: "unknown",
    413: "context",
}


def _kind(chain: list[BaseException], status: int | None) -> str:
    import httpx
    import openai
    from litellm.exceptions import (
        AuthenticationError,
        BadRequestError,
        ContextWindowExceededError,
        MidStreamFallbackError,
        Timeout,
    )

    first = chain[0]
    is_stream_error = any(type(link) is openai.APIError for link in chain)
    rules = (
        (_has(chain, BadBody), "broken"),
        (isinstance(first, ContextWindowExceededError), "context"),
        (status is not None, _STATUS_KINDS.get(status or 0, "request")),
        ("LLM Provider NOT provided" in str(first), "unknown"),
        (_has(chain, AuthenticationError), "key"),
        (
            _has(
                chain, Unfinished, httpx.TransportError, OSError, openai.APIConnectionError, Timeout
            ),
            "busy",
        ),
        (isinstance(first, MidStreamFallbackError) and "ended before" in str(first), "busy"),
        (is_stream_error, "busy"),
        (isinstance(first, (NoOutputLimit, BadRequestError)), "request"),
    )
    return next((kind for holds, kind in rules if holds), "broken")


def _has(chain: list[BaseException], *classes: type[BaseException]) -> bool:
    return any(isinstance(link, classes) for link in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; litellm wraps errors several times."""
    ids: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in ids:
        ids.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


if __name__ == "__main__":
    main()
