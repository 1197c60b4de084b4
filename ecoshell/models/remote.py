"""Remote models: any name litellm knows, asked through the helper process that owns litellm (remote_worker)."""

import asyncio
import difflib
import itertools
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from ecoshell.budget import PriceBook
from ecoshell.errors import ContextExceeded, ModelBroken, ModelError, ModelMissing, ModelUnavailable, ModelUnreachable
from ecoshell.messages import Call, ProviderState, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits, request_bound
from ecoshell.models.context_limits import stated_limit
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.formats import HERMES, REASONING_TAGS, Attempt, spoken
from ecoshell.models.keys import Keys
from ecoshell.models.protocol import (
    CUT,
    as_plain_messages,
    chat_body,
    mark_for_cache,
    parse_reply,
    read_call,
    safe_name,
    without_reasoning,
)
from ecoshell.models.replying import ReplyForm, ReplyReader, load_readers
from ecoshell.models.servers import is_loopback, program_of
from ecoshell.models.tokens import counter_for, helper_environ
from ecoshell.secrecy import taken

SILENCE = 120.0
"""Seconds a provider may be silent."""
_SECONDS_PER_TOKEN = 2.0
"""What an answer may take beside the longest silence before it and after it; a person's own machine can be slow."""
_BYTES_PER_TOKEN, _SPARE_BYTES, _MOST_BYTES = 1 << 14, 1 << 23, 1 << 27
"""What an answer may come to on the network: some providers repeat their sources, or all they said, with each token."""

_NO_KEY = "none"
"""What a server at an address of the user's own is sent when there is no key; clients insist on sending one."""
_CALLS_END = ("}", "]", "```", ">")
"""How a text ends whose end is a call."""
_FILTERED = "[The provider's content filter ended this reply.]"
_HOW_NAMES_ARE = (
    "Write the provider first: openai/NAME, ollama/NAME, …; `ecoshell models PART` searches the known names."
)
_LONGEST_MESSAGE = 600
"""Characters of what a provider says that are shown; some answer with whole web pages."""
_COUNTED_PER_MESSAGE = 3
_COUNTED_PER_PROMPT = 3
"""What OpenAI counts besides the texts; other templates differ by a token or two."""
_LINE_LIMIT = 1 << 26
"""Bytes; a reply is one line, and a long one is still a few megabytes."""
_MEMORY = 4 << 30
"""Bytes of address space; litellm with a few asks at once takes less than half."""
_GRACE = 60.0
"""Seconds after an ask's deadline by which the process must have said so; it may first have to load litellm."""
_LAST_WORDS = 2048

Line = Mapping[str, Any]


class RemoteProcess:
    """Starts the helper process when it is first needed, again after it died, and carries asks to it.

    Belongs to the event loop that first used it. The process ends with `aclose`, and by itself when this one does or
    when it needs more than `memory` bytes; it is ended when an ask is not over `grace` seconds after its time.
    """

    def __init__(self, *, memory: int = _MEMORY, grace: float = _GRACE) -> None:
        self._memory = memory
        self._grace = grace
        self._numbers = itertools.count(1)
        self._child: _Child | None = None
        self._starting = asyncio.Lock()

    async def warm(self) -> "_Child":
        """Start the process where it is not alive, so that litellm is loaded by the time it is asked."""
        async with self._starting:
            if self._child is None or not self._child.alive:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "ecoshell.models.remote_worker"),  # `-P`: not from the current folder
                    str(self._memory),
                    env=helper_environ(),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=PIPE,
                    limit=_LINE_LIMIT,
                    start_new_session=True,  # so that Ctrl-C and a closing terminal reach it only through us
                )
                self._child = _Child(process)
                self._child.write({"environ": taken()})  # over the pipe: in its environment any program could read them
            return self._child

    async def ask(self, body: Mapping[str, Any], *, most: int, seconds: float) -> AsyncGenerator[Line, None]:
        """The worker's lines for one ask, down to its reply or error; closing this early cancels the ask.

        The answer may come to `most` bytes on the network, and take this many seconds from its first to its last. When
        the process is gone, the last line says so. One that is stuck, so that it does not even say that an ask's time
        is over, is ended.
        """
        child = await self.warm()
        number, inbox = next(self._numbers), asyncio.Queue[Line]()
        child.inboxes[number] = inbox
        last = asyncio.get_running_loop().call_later(seconds + self._grace, child.die, b"it no longer answered")
        try:
            child.write({"id": number, "ask": body, "bytes": most, "seconds": seconds})
            if child.process.stdin is not None:
                try:
                    await child.process.stdin.drain()
                except ConnectionError:
                    child.die()
            while True:
                line = await inbox.get()
                yield line
                if "reply" in line or "error" in line:
                    return
        finally:
            last.cancel()
            child.sent.discard(number)
            if child.inboxes.pop(number, None) is not None and child.alive:
                child.write({"id": number, "cancel": True})

    @property
    def pid(self) -> int | None:
        """The process's number, while it lives."""
        return self._child.process.pid if self._child is not None and self._child.alive else None

    async def aclose(self) -> None:
        """End the process, which holds nothing that needs saving; asks under way end with an error."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.process.wait()
            await asyncio.gather(*child.readers, return_exceptions=True)


class _Child:
    """One life of the helper process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.alive = True
        self.inboxes: dict[int, asyncio.Queue[Line]] = {}
        self.sent: set[int] = set()
        self._last_words = b""
        self.readers = (asyncio.create_task(self._read()), asyncio.create_task(self._listen()))

    def write(self, record: Line) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

    async def _read(self) -> None:
        """Hand each line to its ask, until there are no more; whatever ends this, no ask is left waiting."""
        try:
            while self.process.stdout is not None and (text := await self.process.stdout.readline()):
                line = json.loads(text)
                number = line.get("id")
                if not isinstance(number, int) or number not in self.inboxes:
                    continue
                if "sent" in line:
                    self.sent.add(number)
                    continue
                ends = "reply" in line or "error" in line
                inbox = self.inboxes.pop(number) if ends else self.inboxes[number]
                inbox.put_nowait(line)
        finally:
            self.die()

    async def _listen(self) -> None:
        """Keep the end of what the process prints, for the case that it dies."""
        if self.process.stderr is not None:
            while piece := await self.process.stderr.read(_LAST_WORDS):
                self._last_words = (self._last_words + piece)[-_LAST_WORDS:]

    def die(self, words: bytes = b"") -> None:
        """Tell every ask under way that its process is gone; those that had been sent may have been billed."""
        self.alive = False
        self.kill()
        said = (words or self._last_words).decode("utf-8", "replace").strip().rpartition("\n")[2]
        message = "the helper process for remote models ended" + (f": {said}" if said else "")
        for number, inbox in self.inboxes.items():
            error = {"kind": "busy", "message": message, "status": None, "billed": number in self.sent}
            inbox.put_nowait({"id": number, "error": error})
        self.inboxes.clear()

    def kill(self) -> None:
        if self.process.returncode is not None:
            return
        # Process.kill would reap a process that has just ended, and asyncio, which waits for it too, would complain.
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """What the user says of a remote model; where that is None, the price book is asked."""

    base_url: str | None = None
    """Address of an OpenAI-compatible server; None is the provider's own."""
    native_tools: bool | None = None
    context: int | None = None
    silence: float = SILENCE
    deadline: float | None = None
    """Seconds until the whole answer must be there; None is as many as `max_tokens` can explain."""


_AS_KNOWN = RemoteOptions()
_NAMED_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+\.\d+(?=b)|\d+(?=b)|\d{2,}(?=m))([bm])(?![a-z0-9])")
"""Weights in a name; `1m` would be a context."""
_SENDABLE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NAMED_SCALES = {"b": 10**9, "m": 10**6}


def named_parameters(name: str) -> int | None:
    """How many weights a model has by its name, such as `ollama/qwen2.5-coder:1.5b`; None where that does not say."""
    sizes = (int(one[1] or 1) * float(one[2]) * _NAMED_SCALES[one[3]] for one in _NAMED_SIZE.finditer(name.casefold()))
    return max(map(round, sizes), default=None)


class RemoteModel:
    """A model of a provider, or of any server that speaks OpenAI's protocol at an address of the user's own."""

    def __init__(
        self,
        name: str,
        *,
        book: PriceBook,
        keys: Keys,
        process: RemoteProcess,
        options: RemoteOptions = _AS_KNOWN,
    ) -> None:
        """Nothing is started yet; `check` says whether the model can be had."""
        known = book.facts(name)
        native_tools = known is not None and known.native_tools
        self.traits = Traits(
            name=name,
            price=book.price(name),
            context=options.context or (known.context if known else None),
            max_output=known.max_output if known else None,
            native_tools=native_tools if options.native_tools is None else options.native_tools,
            local=False,
            parameters=named_parameters(name),
        )
        self._book = book
        self._keys = keys
        self._process = process
        self._base_url = options.base_url
        self._silence = options.silence
        self._deadline = options.deadline
        prefix, slash, _ = name.partition("/")
        self._provider = prefix if slash else "openai" if options.base_url else known.provider if known else ""
        """As litellm calls it; empty when it cannot be told."""
        self._counter = counter_for(name, hosted=options.base_url is None)

    def check(self) -> str | None:
        """The key to send, if any; may block on the keyring.

        Raises ModelMissing, before any process is started, when the name says no provider, or a key that is needed is
        missing.
        """
        if not self._provider:
            raise self._unknown()
        if not self._keys.variables(self._provider):
            return _NO_KEY if self._base_url else None
        key = self._keys.find(self._provider)
        if key is None and self._base_url is None:
            message = f"There is no API key for {self.traits.name}."
            raise ModelMissing(message, fix=self._keys.how_to_give(self._provider), billed=False, key=True)
        return key or _NO_KEY

    async def warm(self, ahead: Request | None = None) -> None:
        """Have litellm, the tokenizer and what reads replies loaded by the time they are needed; returns at once."""
        self._counter.start()
        asyncio.get_running_loop().run_in_executor(None, load_readers)
        await self._process.warm()

    def count(self, text: str) -> int:
        """Tokens of a plain text; an estimate when `size` says so."""
        return self._counter.count(text)

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt; exact when the tokenizer is the model's own and no native tool array goes along."""
        native = self.traits.native_tools and bool(request.tools)
        messages = request.messages if native else as_plain_messages(request)
        texts = [message.text for message in messages]
        if native:
            texts += [call.signature() for message in messages for call in message.calls]
            texts += [document.entry for document in request.tools]
        count = sum(map(self._counter.count, texts)) + _COUNTED_PER_MESSAGE * len(messages) + _COUNTED_PER_PROMPT
        bound = request_bound(request, native_tools=self.traits.native_tools)
        return PromptSize(min(count, bound), bound, exact=self._counter.exact and not native)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Ask the provider; closing the iterator closes the connection."""
        native = self.traits.native_tools and bool(request.tools)
        body, name = chat_body(request, native=native, family=self.family), self.traits.name
        if "claude" in name and self._provider.startswith(("anthropic", "bedrock", "vertex_ai")):
            mark_for_cache(body, request)
        if self._base_url and not name.startswith(f"{self._provider}/"):
            name = f"{self._provider}/{name}"  # a server of the user's own is taken to speak OpenAI's protocol
        body |= {"model": name, "max_tokens": request.max_tokens, "timeout": self._silence}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if self._base_url:
            body["base_url"] = self._base_url
        if key := await asyncio.to_thread(self.check):
            body["api_key"] = key
        named = request if request.want != "text" else replace(request, callable_now=())
        reader = ReplyReader(named, ReplyForm(HERMES, REASONING_TAGS[0], elsewhere=True))
        most = min(_BYTES_PER_TOKEN * request.max_tokens + _SPARE_BYTES, _MOST_BYTES)
        seconds = self._deadline or 2 * self._silence + _SECONDS_PER_TOKEN * request.max_tokens
        async with aclosing(self._process.ask(body, most=most, seconds=seconds)) as lines:
            async for line in lines:
                if "delta" in line:
                    if line["reasoning"]:
                        yield Delta(line["reasoning"], reasoning=True)
                    for piece in reader.feed(line["delta"]) if line["delta"] else ():
                        yield piece
                    yield Delta("", unseen=line["unseen"])
                    if line["answer"]:
                        yield Delta(line["answer"], answer=True)
                elif "reply" in line:
                    for piece in reader.finish():
                        yield piece
                    yield self._reply(line["reply"], request)
                else:
                    raise await self._error(line["error"])

    @property
    def family(self) -> str:
        """Who understands what this provider sends with a reply: the provider, at one address."""
        return f"{self._provider} {self._base_url}" if self._base_url else self._provider

    async def aclose(self) -> None:
        """Let the tokenizer go; the helper process serves other models too and is closed by whoever made it."""
        self._counter.close()

    def _reply(self, record: Mapping[str, Any], request: Request) -> Reply:
        usage, counts = None, record["usage"]
        if counts and counts["input"] and all(type(count) is int and count >= 0 for count in counts.values()):
            usage = Usage(**counts)  # what no call can have is no report
        cut, text = record["finish"] == "length", record["text"]
        if record["finish"] == "content_filter":
            text = f"{text}\n\n{_FILTERED}".strip()
        native = self.traits.native_tools and bool(request.tools)
        names = {document.name for document in (*request.callable_now, *request.tools)}
        state, finish = ProviderState(self.family, record["message"]), record["finish"]
        if not (native and record["calls"]):
            reasoning, text = without_reasoning(text)
            reply = parse_reply(text, request, usage, cut, spoken(text))
            if reply.attempt and native and reply.attempt.name not in names and not text.rstrip().endswith(_CALLS_END):
                reply = Reply(text, usage=usage, cut=cut)  # it tells what a call looks like, and goes on
            calls = reply.calls or reply.fault  # calls written as text are not the provider's
            return replace(
                reply, reasoning=record["reasoning"] or reasoning, finish=finish, state=None if calls else state
            )
        reasoning, text = without_reasoning(text)
        calls = self._native_calls(record["calls"], record["message"]["tool_calls"], request)
        fault = ""
        if cut and calls[-1].fault:  # the call that was being written when the reply ended
            fault, calls = ("", calls[:-1]) if len(calls) > 1 else (CUT, ())
            record["message"]["tool_calls"] = record["message"]["tool_calls"][: len(calls)]
        reasoning = record["reasoning"] or reasoning
        return Reply(text, calls, usage, fault, cut, reasoning=reasoning, finish=finish, state=state)

    @staticmethod
    def _native_calls(
        records: Sequence[Mapping[str, Any]], made: Sequence[dict[str, Any]], request: Request
    ) -> tuple[Call, ...]:
        """All calls of a reply, those that cannot run with their fault; `made` are the same as they are sent back.

        Arguments that are no JSON object are sent back as an empty one, because providers refuse a history with them.
        """
        documents = (*request.callable_now, *request.tools)
        offered = {document.name for document in documents}
        calls: list[Call] = []
        ids: set[str] = set()
        for record, sent in zip(records, made, strict=True):
            call = read_call(Attempt(record["name"], record["arguments"] or "{}"), documents)
            if call.name not in offered:  # whoever runs the call knows which names come near
                call = replace(call, fault="")
            if not call.arguments and not _is_json_object(sent["function"]["arguments"]):
                sent["function"]["arguments"] = "{}"
            if not sent["id"] or sent["id"] in ids:  # each result needs an ID of its own
                sent["id"] = f"{sent['id'] or 'call'}_{len(calls)}"
            ids.add(sent["id"])
            call = replace(call, id=sent["id"])
            if not _SENDABLE_NAME.fullmatch(record["name"]):
                sent["function"]["name"] = safe_name(call.name)
            calls.append(call)
        return tuple(calls)

    async def _error(self, record: Mapping[str, Any]) -> ModelError:
        """The failure the worker describes, in the shell's terms and without any key."""
        name, kind, billed = self.traits.name, record["kind"], bool(record["billed"])
        said = self._keys.redact(record["message"])
        said = said if len(said) <= _LONGEST_MESSAGE else f"{said[: _LONGEST_MESSAGE - 1]}…"
        if kind == "unknown":
            return await asyncio.to_thread(self._unknown, said, billed=billed)
        if kind == "key":
            variables = self._keys.variables(self._provider)
            fix = self._keys.how_to_give(self._provider) if variables else "Check how you sign in to this provider."
            return ModelMissing(f"{name} refused the API key: {said}", fix=fix, billed=billed, key=True)
        if kind == "unreachable":  # on this machine a server is not running, else there may be no network
            address: str = record["address"]
            program, start = program_of(self._provider)
            if not is_loopback(address.rpartition(":")[0].strip("[]")):
                fix = "Is this machine online? Try again, or choose a model on it with /model."
                return ModelUnreachable(f"{name} cannot be reached at {address}.", fix=fix, billed=billed)
            who, begin = program or f"The server of {name}", f"Start it with {start}" if start else "Start it"
            fix = f"{begin}, or choose another model with /model."
            return ModelUnreachable(f"{who} does not answer on {address}.", fix=fix, billed=billed)
        if kind == "busy":
            return ModelUnavailable(
                f"{name} did not answer: {said}", fix="Try again, or choose another model.", billed=billed
            )
        if kind == "context":
            return ContextExceeded(
                f"The prompt is too long for {name}: {said}",
                limit=stated_limit(record["message"]),
                fix="Start a new session, give fewer or shorter texts, or choose a model with a larger context.",
                billed=billed,
            )
        if kind == "request":
            return ModelBroken(f"{name} refuses the request: {said}", fix="Choose another model.", billed=billed)
        return ModelBroken(f"{name} gave an answer that cannot be used: {said}", fix="Ask again.", billed=billed)

    def _unknown(self, said: str = "", *, billed: bool = False) -> ModelMissing:
        """No such model; names that look like it come along, sought among thousands, so this takes a while."""
        name = self.traits.name
        near = difflib.get_close_matches(name, (EMBEDDED, *self._book.names()), n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else _HOW_NAMES_ARE
        return ModelMissing(f"There is no model {name}." + (f" ({said})" if said else ""), fix=hint, billed=billed)


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
