"""The helper process that owns litellm: JSON Lines in, JSON Lines out, so that its slow import stalls no screen.

It reads `{"environ": {…}}` (keys that were removed from the environment), `{"id", "ask": {…}, "bytes", "seconds"}`,
`{"id", "count": {…}, "seconds"}` and `{"id", "cancel": true}` from standard input and ends when that does. For each
ask it writes `{"id", "sent": true}` before anything leaves this machine, `{"id", "delta": text, "reasoning": text,
"answer": text, "unseen": bytes}` for each chunk (texts may be empty: arguments of calls other than `finish` are only
counted; `"call": {name, path, lines}` tells when a long one has grown), and finally either `{"id", "reply": {text,
reasoning, calls, message, usage, finish}}` or `{"id", "error": {…}}` (see `failures`). An answer of more bytes or
seconds than the ask allows is an error. A count is answered by `{"id", "counted": tokens}`, null if the provider has no
endpoint that counts or does not answer. The program's argument is its memory limit in bytes.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

from ecoshell.models.failures import NoOutputLimit, Unfinished, causes, describe
from ecoshell.models.streamed_answer import StreamedAnswer, finish_reason
from ecoshell.models.traffic import Traffic, count_traffic, current_traffic
from ecoshell.secrecy import close_process

LINE_LIMIT = 1 << 27  # bytes of one ask, images included
_ALWAYS: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "num_retries": 0,
    "max_retries": 0,  # a retry is a new reservation, which only the shell can make
    "drop_params": True,
    "_skip_mcp_handler": True,  # or a tool array makes litellm import mcp, which need not be installed
}
"""Arguments of every call."""
_FIRST_CALL_MODULES = """
openai.resources anyio._backends._asyncio litellm._service_logger litellm.litellm_core_utils.default_encoding
litellm.llms.anthropic.completion.transformation litellm.llms.gemini.chat.transformation
litellm.llms.vertex_ai.context_caching.vertex_ai_context_caching litellm.llms.openrouter.chat.transformation
litellm.llms.mistral.chat.transformation litellm.llms.ollama.chat.transformation
litellm.proxy.guardrails.exception_utils
"""
FIRST_CALL_MODULES = _FIRST_CALL_MODULES.split()  # they take litellm up to a second
OUT_OF_MEMORY = "it reached its memory limit"
clients: set[int] = set()  # descriptors of clients, which receive the reason at the end


def main() -> None:
    """Serve until standard input ends."""
    # Ctrl-C is for the shell, which cancels what it wants cancelled.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    close_process()  # it receives keys
    limit_memory(int(sys.argv[1]))
    asyncio.run(_serve_standard_input(_take_stdout()))


async def _serve_standard_input(output: BinaryIO) -> None:
    def write(line: bytes) -> None:
        output.write(line)
        output.flush()

    reader, ready = asyncio.StreamReader(limit=LINE_LIMIT), asyncio.Event()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load(ready))
        await Worker(write, ready).serve(reader)
        os._exit(0)


def limit_memory(max_bytes: int) -> None:
    """Limit the address space of this process, where the system supports it."""
    with suppress(ImportError, OSError, ValueError):  # Windows has none, macOS none that holds
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


async def load(ready: asyncio.Event) -> None:
    """Load litellm in a thread and set the event; ends the process if that fails."""
    try:
        await asyncio.to_thread(load_litellm)
    except Exception as error:  # noqa: BLE001 - without litellm the process is useless
        end_process(f"{type(error).__name__}: {error}")
    ready.set()


def load_litellm() -> None:
    """Import and configure litellm, which takes seconds."""
    # Otherwise it fetches its price map while being imported, and reads a .env file.
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
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


def warm_litellm() -> None:
    """Load the modules of first calls ahead of time."""
    for module in FIRST_CALL_MODULES:
        with suppress(ImportError):
            import_module(module)


@dataclass(eq=False)
class Worker:
    """Runs any number of asks at once; one line of output belongs to one ask."""

    _send: Callable[[bytes], object]  # writes a line
    _ready: asyncio.Event  # set once litellm is loaded; no ask begins before that
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, asyncio.Task[None]])

    async def serve(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "environ" in message:
                    os.environ.update(message["environ"])
                else:
                    self.take(message)
        except (MemoryError, ValueError):  # or the line is too long
            end_process()

    def take(self, message: dict[str, Any]) -> None:
        number: int = message["id"]
        if "cancel" not in message:
            work = self._answer
            if "count" in message or "load" in message:
                work = self._count if "count" in message else self._load
            task = self._tasks[number] = asyncio.create_task(work(number, message))
            task.add_done_callback(lambda _: self._tasks.pop(number, None))
        elif task := self._tasks.get(number):
            task.cancel()

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        await self._ready.wait()
        answer, traffic = StreamedAnswer(), Traffic(message["bytes"])
        current_traffic.set(traffic)
        deadline = asyncio.timeout(message["seconds"])
        try:
            async with deadline:
                await self._stream(number, message["ask"], answer)
            reply = answer.reply()
            reply["finish"] = traffic.finish(reply["finish"])
            if traffic.odd_usage:
                reply["usage"] = None
            self._write({"id": number, "reply": reply})
        except Exception as error:  # noqa: BLE001 - the worker's edge: one ask's failure is a line, the others continue
            if any(isinstance(cause, MemoryError) for cause in causes(error)):
                end_process()  # it is unreliable afterwards
            late = Unfinished(f"its answer had not ended after {message['seconds']:g} seconds")
            failure = late if deadline.expired() else error
            record = describe(failure, began=answer.began, traffic=traffic)
            self._write({"id": number, "error": record})

    async def _load(self, number: int, _message: dict[str, Any]) -> None:
        """Say when litellm is loaded."""
        await self._ready.wait()
        self._write({"id": number, "loaded": True})

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

    async def _stream(self, number: int, ask: dict[str, Any], answer: StreamedAnswer) -> None:
        litellm: Any = import_module("litellm")
        model = ask["model"]
        _, provider, _, _ = litellm.get_llm_provider(model=model, api_base=ask.get("base_url"))
        fields = litellm.get_supported_openai_params(model=model, custom_llm_provider=provider)
        if fields is not None and not {"max_tokens", "max_completion_tokens"} & set(fields):
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
            if not finish_reason(stream):
                raise
        finally:
            await stream.aclose()
        answer.close(stream)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._send(json.dumps(record).encode() + b"\n")


def end_process(why: str = OUT_OF_MEMORY) -> NoReturn:
    """End the process; ecoshell shows the reason and starts another one when needed."""
    os.write(2, f"\n{why}\n".encode())
    for client in clients:
        with suppress(OSError):
            os.write(client, json.dumps({"ended": why}).encode() + b"\n")
    os._exit(1)


def _take_stdout() -> BinaryIO:
    """Reserve standard output for the protocol; other output goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


if __name__ == "__main__":
    main()
