"""Remote models: any name litellm knows, called through a process that owns litellm (remote_process)."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any

from ecoshell.budget import PriceBook
from ecoshell.errors import (
    ContextExceeded,
    ModelBroken,
    ModelError,
    ModelMissing,
    ModelUnavailable,
    ModelUnreachable,
    closest_words,
)
from ecoshell.images import image_tokens, images_in, without_images
from ecoshell.messages import Call, ProviderState, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits, request_bound, text_bound
from ecoshell.models.context_limits import stated_limit
from ecoshell.models.effort import add_effort
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.formats import HERMES, REASONING_TAGS, Attempt, format_of_text
from ecoshell.models.keys import Keys
from ecoshell.models.prompt_counts import MARGIN
from ecoshell.models.protocol import (
    CUT,
    as_plain_messages,
    chat_body,
    is_cached,
    mark_for_cache,
    parse_reply,
    read_call,
    safe_name,
    without_reasoning,
)
from ecoshell.models.remote_process import RemoteProcess
from ecoshell.models.replying import ReplyForm, ReplyReader, load_readers
from ecoshell.models.servers import PROVIDERS, is_loopback, program_of
from ecoshell.models.tokens import counter_for
from ecoshell.models.tool_search import is_server_call, search_tool

SILENCE = 600.0
"""Maximum seconds without data; some providers send nothing while a model reasons."""
_SECONDS_PER_TOKEN = 2.0
"""Maximum time per output token, for slow local servers; the silence before and after the answer comes on top."""
_BYTES_PER_TOKEN, _SPARE_BYTES, _MAX_BYTES = 1 << 14, 1 << 23, 1 << 27
"""Limits of an answer on the network; some providers repeat sources or the whole text with each token."""

_NO_KEY = "none"
"""Sent to the user's own servers without a key, because clients require one."""
_PUBLISHED_ENCODINGS = frozenset({"openai", "azure"})
"""Providers whose models' names determine the tiktoken encoding."""
_COUNTING_PROVIDERS = frozenset({"anthropic"})
"""Providers with a free endpoint that counts a prompt; litellm needs a further package for Gemini's, and the prompts of
OpenAI's models are counted here."""
_COUNT_SECONDS = 5.0
_CALLS_END = ("}", "]", "```", ">")
"""Endings of texts that end with a call."""
_FINISH_NOTES = {
    "content_filter": "[The provider's content filter ended this reply.]",
    "refusal": "[The model refused to answer.]",
}
_NAME_HELP = (
    "Write the provider first: openai/NAME, ollama/NAME, …; "
    "`ecoshell models PART` searches the known names."
)
_STATUS_MEANINGS = {
    402: " (payment required)",
    429: " (too many requests)",
    500: " (internal error)",
    502: " (bad gateway)",
    503: " (unavailable)",
    504: " (gateway timeout)",
    529: " (overloaded)",
}
_MAX_MESSAGE_CHARS = 600
"""Characters of a provider's message that are shown; some send whole web pages."""
_TOKENS_PER_MESSAGE = 3
_TOKENS_PER_PROMPT = 3
"""Tokens that OpenAI counts in addition to the texts; other templates differ slightly."""


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The user's settings of a remote model; None means the price book decides."""

    base_url: str | None = None
    """Address of an OpenAI-compatible server; None is the provider's."""
    native_tools: bool | None = None
    context: int | None = None
    vision: bool | None = None
    tool_search: bool | None = None
    """Whether the provider loads deferred tools; None decides by the model."""
    silence: float = SILENCE
    deadline: float | None = None
    """Maximum seconds of the whole answer; None derives it from `max_tokens`."""


_AS_KNOWN = RemoteOptions()
_SIZE_IN_NAME = re.compile(
    r"(?<![a-z0-9.])(?:(\d+)x)?(\d+\.\d+(?=b)|\d+(?=b)|\d{2,}(?=m))([bm])(?![a-z0-9])"
)
"""A parameter count in a name; `1m` would be a context."""
_SENDABLE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SIZE_UNITS = {"b": 10**9, "m": 10**6}


def named_parameters(name: str) -> int | None:
    """The parameter count in a model's name, such as `ollama/qwen2.5-coder:1.5b`; None if it has none."""
    sizes = (
        int(match[1] or 1) * float(match[2]) * _SIZE_UNITS[match[3]]
        for match in _SIZE_IN_NAME.finditer(name.casefold())
    )
    return max(map(round, sizes), default=None)


class RemoteModel:
    """A model of a provider, or of the user's own server with OpenAI's protocol."""

    def __init__(
        self,
        name: str,
        *,
        book: PriceBook,
        keys: Keys,
        process: RemoteProcess,
        options: RemoteOptions = _AS_KNOWN,
    ) -> None:
        """Starts nothing; `check` says whether the model is available."""
        facts = book.facts(name)
        # Nearly all current models have tool calls; vLLM rejects them unless it was started with a parser.
        native_tools = (
            facts.native_tools if facts is not None else not name.startswith("hosted_vllm/")
        )
        native_tools = native_tools if options.native_tools is None else options.native_tools
        prefix, slash, _ = name.partition("/")
        self._provider = (
            prefix if slash else "openai" if options.base_url else facts.provider if facts else ""
        )
        """litellm's provider name; empty if unknown."""
        own_server = options.base_url is not None
        search = search_tool(
            self._provider, name, own_server=own_server, wanted=options.tool_search
        )
        self._search = search if native_tools else None
        self.traits = Traits(
            name=name,
            price=book.price(name),
            context=options.context or (facts.context if facts else None),
            max_output=facts.max_output if facts else None,
            native_tools=native_tools,
            local=False,
            parameters=named_parameters(name),
            vision=options.vision if options.vision is not None or facts is None else facts.vision,
            reasons=facts.reasons if facts else None,
            defers_tools=self._search is not None,
        )
        self._facts = facts
        self._book = book
        self._keys = keys
        self._process = process
        self._base_url = options.base_url
        self._silence = options.silence
        self._deadline = options.deadline
        on_own_server = self._provider in PROVIDERS and options.base_url is not None
        self._shared = bool(keys.variables(self._provider)) or on_own_server
        """Whether calls need only a key; other providers sign in with environment variables."""
        self._counter = counter_for(name, hosted=options.base_url is None)

    def check(self) -> str | None:
        """The key to send, if any; may block on the keyring.

        Raises ModelMissing, before any process is started, if the provider is unknown or a required key is missing.
        """
        if not self._provider:
            raise self._unknown()
        if not self._keys.variables(self._provider):
            return _NO_KEY if self._base_url else None
        key = self._keys.find(self._provider)
        if key is None and self._base_url is None:
            message = f"There is no API key for {self.traits.name}."
            missing = ModelMissing(
                message, fix=self._keys.how_to_give(self._provider), billed=False, key=True
            )
            missing.model = self.traits.name
            raise missing
        return key or _NO_KEY

    async def warm(self, ahead: Request | None = None) -> None:
        """Start loading litellm, the tokenizer and the libraries for parsing replies; returns at once."""
        self._counter.start()
        asyncio.get_running_loop().run_in_executor(None, load_readers)
        await self._process.warm(shared=self._shared)

    def count(self, text: str) -> int:
        """Tokens of a plain text; an estimate if `size` is inexact."""
        return self._counter.count(text)

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt; exact with the model's own tokenizer and without a native tool array."""
        request = self._visible_request(request)
        native = self.traits.native_tools and bool(request.tools)
        messages = request.messages if native else as_plain_messages(request)
        texts = [message.text for message in messages]
        if native:
            texts += [call.signature() for message in messages for call in message.calls]
            tools = (tool for tool in request.tools if self._search is None or not tool.deferred)
            texts += [schema.entry for schema in tools]
        count = (
            sum(map(self._counter.count, texts))
            + _TOKENS_PER_MESSAGE * len(messages)
            + _TOKENS_PER_PROMPT
        )
        images = [*images_in(messages)]
        count += sum(map(image_tokens, images))
        bound = request_bound(
            request, native_tools=self.traits.native_tools, model=self.traits.name
        )
        if self._provider in _PUBLISHED_ENCODINGS:
            bound -= sum(self._beyond_count(message.text) for message in messages)
        exact = self._counter.exact and not native and not images
        return PromptSize(
            min(count, bound), bound, exact=exact, cache_writes=self._cache_writes(request)
        )

    def _visible_request(self, request: Request) -> Request:
        """The request, without images if the model is known to have no vision."""
        if self.traits.vision is not False or not any(
            message.images for message in request.messages
        ):
            return request
        return replace(request, messages=without_images(request.messages))

    def _beyond_count(self, text: str) -> int:
        """The difference between a text's byte bound and its exact count with a margin; 0 without an exact count."""
        counted = self._counter.exact_count(text)
        return 0 if counted is None else max(0, text_bound(text) - counted - counted // MARGIN - 1)

    def _cache_writes(self, request: Request) -> bool:
        """Whether the provider may bill cache writes; for Anthropic's models only if the request has cache marks."""
        return not self._marks_cache or is_cached(request)

    @property
    def _marks_cache(self) -> bool:
        return is_anthropic(self._provider, self.traits.name)

    async def count_prompt(self, request: Request) -> int | None:
        """The prompt's tokens as the provider's free endpoint counts them; None if it has none or does not answer."""
        if self._provider not in _COUNTING_PROVIDERS:
            return None
        request = self._visible_request(request)
        native = self.traits.native_tools and bool(request.tools)
        body = chat_body(request, native=native, family=self.family, search=self._search)
        body = {name: body[name] for name in ("messages", "tools") if name in body}
        body |= {
            "model": self.traits.name,
            "api_key": await asyncio.to_thread(self.check),
            "api_base": self._base_url,
        }
        return await self._process.count(body, seconds=_COUNT_SECONDS, shared=self._shared)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Call the provider; closing the iterator closes the connection."""
        request = self._visible_request(request)
        native = self.traits.native_tools and bool(request.tools)
        body = chat_body(request, native=native, family=self.family, search=self._search)
        name = self.traits.name
        if self._provider == "openai" and any(
            tool.get("defer_loading") for tool in body.get("tools", ())
        ):
            name = _responses_name(name)  # only this API searches tools
        if self._marks_cache:
            mark_for_cache(body, request)
        if self._base_url and not name.startswith(f"{self._provider}/"):
            name = f"{self._provider}/{name}"  # the user's own servers are assumed to use OpenAI's protocol
        body |= {"model": name, "max_tokens": request.max_tokens, "timeout": self._silence}
        if "responses/" in name:  # reasoning comes back encrypted, and the provider stores nothing
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if self._provider in ("openai", "azure") and not self._base_url:
            body["prompt_cache_key"] = cache_key(body)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        add_effort(body, request, name, self._facts)
        if self._base_url:
            body["base_url"] = self._base_url
        if key := await asyncio.to_thread(self.check):
            body["api_key"] = key
        parsed_request = request if request.want != "text" else replace(request, callable_now=())
        reader = ReplyReader(parsed_request, ReplyForm(HERMES, REASONING_TAGS[0], is_remote=True))
        max_bytes = min(_BYTES_PER_TOKEN * request.max_tokens + _SPARE_BYTES, _MAX_BYTES)
        seconds = self._deadline or 2 * self._silence + _SECONDS_PER_TOKEN * request.max_tokens
        async with aclosing(
            self._process.ask(body, max_bytes=max_bytes, seconds=seconds, shared=self._shared)
        ) as lines:
            async for line in lines:
                if "delta" in line:
                    if line["reasoning"]:
                        yield Delta(line["reasoning"], reasoning=True)
                    for delta in reader.feed(line["delta"]) if line["delta"] else ():
                        yield delta
                    yield Delta("", unseen=line["unseen"])
                    if line["answer"]:
                        yield Delta(line["answer"], answer=True)
                elif "reply" in line:
                    for delta in reader.finish():
                        yield delta
                    yield self._reply(line["reply"], request)
                else:
                    raise await self._error(line["error"])

    @property
    def family(self) -> str:
        """The provider family that accepts this model's opaque fields: a provider at one address."""
        return f"{self._provider} {self._base_url}" if self._base_url else self._provider

    async def aclose(self) -> None:
        """Close the tokenizer; the helper process is shared and is closed by its owner."""
        self._counter.close()

    def _reply(self, record: Mapping[str, Any], request: Request) -> Reply:
        usage, counts = None, record["usage"]
        if (
            counts
            and counts["input"]
            and all(type(count) is int and count >= 0 for count in counts.values())
        ):
            usage = Usage(**counts)  # implausible usage is discarded
        cut, text = record["finish"] == "length", record["text"]
        note = _FINISH_NOTES.get(record["finish"], "")
        # The text of a refusal is the answer.
        if note and not (text and record["finish"] == "refusal"):
            text = f"{text}\n\n{note}".strip()
        native = self.traits.native_tools and bool(request.tools)
        names = {schema.name for schema in (*request.callable_now, *request.tools)}
        message = sent_back(
            record["message"],
            self._provider,
            self.traits.name,
            own_server=self._base_url is not None,
        )
        state, finish = ProviderState(self.family, message), record["finish"]
        own = [
            at for at, call in enumerate(message.get("tool_calls", ())) if not is_server_call(call)
        ]
        if not (native and own):
            reasoning, text = without_reasoning(text)
            reply = parse_reply(text, request, usage, cut, format_of_text(text))
            if (
                reply.attempt
                and native
                and reply.attempt.name not in names
                and not text.rstrip().endswith(_CALLS_END)
            ):
                reply = Reply(text, usage=usage, cut=cut)  # an example of a call inside a text
            calls = reply.calls or reply.fault  # the provider does not know calls written as text
            return replace(
                reply,
                reasoning=record["reasoning"] or reasoning,
                finish=finish,
                state=None if calls else state,
            )
        reasoning, text = without_reasoning(text)
        calls = self._native_calls(
            [record["calls"][at] for at in own], [message["tool_calls"][at] for at in own], request
        )
        fault = ""
        if cut and calls[-1].fault:  # the incomplete last call
            fault, calls = ("", calls[:-1]) if len(calls) > 1 else (CUT, ())
            message["tool_calls"] = [
                call for at, call in enumerate(message["tool_calls"]) if at != own[-1]
            ]
        reasoning = record["reasoning"] or reasoning
        return Reply(
            text, calls, usage, fault, cut, reasoning=reasoning, finish=finish, state=state
        )

    @staticmethod
    def _native_calls(
        records: Sequence[Mapping[str, Any]], made: Sequence[dict[str, Any]], request: Request
    ) -> tuple[Call, ...]:
        """All calls of a reply, with faults if they cannot run; `made` are the same calls as they are sent back.

        Arguments that are not a JSON object are sent back as an empty object, because providers reject them.
        """
        schemas = (*request.callable_now, *request.tools)
        offered = {schema.name for schema in schemas}
        calls: list[Call] = []
        ids: set[str] = set()
        for record, sent in zip(records, made, strict=True):
            call = read_call(Attempt(record["name"], record["arguments"] or "{}"), schemas)
            if call.name not in offered:  # the executor suggests similar names
                call = replace(call, fault="")
            if not call.arguments and not _is_json_object(sent["function"]["arguments"]):
                sent["function"]["arguments"] = "{}"
            if not sent["id"] or sent["id"] in ids:  # each result needs a unique ID
                sent["id"] = f"{sent['id'] or 'call'}_{len(calls)}"
            ids.add(sent["id"])
            call = replace(call, id=sent["id"])
            if not _SENDABLE_NAME.fullmatch(record["name"]):
                sent["function"]["name"] = safe_name(call.name)
            calls.append(call)
        return tuple(calls)

    async def _error(self, record: Mapping[str, Any]) -> ModelError:
        """The error for a failure reported by the worker, without keys."""
        name, kind, billed = self.traits.name, record["kind"], bool(record["billed"])
        message = self._keys.redact(record["message"])
        message = (
            message
            if len(message) <= _MAX_MESSAGE_CHARS
            else f"{message[: _MAX_MESSAGE_CHARS - 1]}…"
        )
        if kind == "unknown":
            return await asyncio.to_thread(self._unknown, message, billed=billed)
        if kind == "key":
            variables = self._keys.variables(self._provider)
            fix = (
                self._keys.how_to_give(self._provider)
                if variables
                else "Check how you sign in to this provider."
            )
            return ModelMissing(
                f"{name} refused the API key: {message}", fix=fix, billed=billed, key=True
            )
        if kind == "unreachable":  # a local server is not running, or there is no network
            address: str = record["address"]
            program, start = program_of(self._provider)
            if not is_loopback(address.rpartition(":")[0].strip("[]")):
                fix = "Is this machine online? Try again, or choose a model on it with /model."
                return ModelUnreachable(
                    f"{name} cannot be reached at {address}.", fix=fix, billed=billed
                )
            server, start_hint = (
                program or f"The server of {name}",
                f"Start it with {start}" if start else "Start it",
            )
            fix = f"{start_hint}, or choose another model with /model."
            return ModelUnreachable(
                f"{server} does not answer on {address}.", fix=fix, billed=billed
            )
        if kind == "busy":
            status: int | None = record["status"]
            meaning = _STATUS_MEANINGS.get(status or 0, "")
            return ModelUnavailable(
                f"{name} failed with HTTP {status}{meaning}: {message}"
                if status
                else f"{name} did not answer: {message}",
                fix="Ask again later, choose another model with /model, or name one in [models] fallback.",
                billed=billed,
                transient=record["transient"],
                retry_after=record.get("retry_after"),
            )
        if kind == "context":
            return ContextExceeded(
                f"The prompt is too long for {name}: {message}",
                limit=stated_limit(record["message"]),
                fix="Start a new session, give fewer or shorter texts, or choose a model with a larger context.",
                billed=billed,
            )
        if kind == "request":
            return ModelBroken(
                f"{name} refuses the request: {message}", fix="Choose another model.", billed=billed
            )
        return ModelBroken(
            f"{name} gave an answer that cannot be used: {message}", fix="Ask again.", billed=billed
        )

    def _unknown(self, reason: str = "", *, billed: bool = False) -> ModelMissing:
        """The error for an unknown model, with similar names; slow, because it searches thousands of names."""
        name = self.traits.name
        near = closest_words(name, (EMBEDDED, *self._book.names()))
        hint = f"Did you mean {', '.join(near)}?" if near else _NAME_HELP
        return ModelMissing(
            f"There is no model {name}." + (f" ({reason})" if reason else ""),
            fix=hint,
            billed=billed,
        )


def cache_key(body: Mapping[str, Any]) -> str:
    """OpenAI's prompt cache key, the same for all prompts with these tools and system messages."""
    prefix = [
        body.get("tools"),
        [message["content"] for message in body["messages"] if message["role"] == "system"],
    ]
    return f"ecoshell-{sha1(json.dumps(prefix).encode(), usedforsecurity=False).hexdigest()[:16]}"


def _responses_name(name: str) -> str:
    """The model's name at OpenAI's Responses API."""
    return name if "responses/" in name else f"openai/responses/{name.removeprefix('openai/')}"


_ANTHROPIC_HOSTS = ("anthropic", "azure_ai", "bedrock", "vertex_ai")
_GEMINI = ("gemini", "vertex_ai")
_RESPONSES_FIELDS = ("openai_responses_replay", "tool_search_items")


def is_anthropic(provider: str, name: str) -> bool:
    """Whether a model takes Anthropic's fields: cache marks and thinking blocks."""
    return "claude" in name and provider.startswith(_ANTHROPIC_HOSTS)


def sent_back(
    message: Mapping[str, Any], provider: str, name: str, *, own_server: bool
) -> dict[str, Any]:
    """The fields of a reply that its provider accepts back; litellm passes on all keys, and some are rejected."""
    sent_keys = {"content", "tool_calls"}
    fields: Mapping[str, Any] = message.get("provider_specific_fields") or {}
    if is_anthropic(provider, name):
        sent_keys |= {"thinking_blocks"}
        fields = {key: value for key, value in fields.items() if key == "tool_results"}
    elif provider in _GEMINI:
        # Calls have their own signatures; only that of the text is sent with the message.
        made: Sequence[Mapping[str, Mapping[str, Any]]] = message.get("tool_calls") or ()
        signed = [
            call.get("provider_specific_fields", {}).get("thought_signature") for call in made
        ]
        text_signatures = [
            signature
            for signature in fields.get("thought_signatures") or ()
            if signature not in signed
        ]
        fields = {"thought_signatures": text_signatures} if text_signatures else {}
    elif provider == "openrouter":
        sent_keys |= {"reasoning", "reasoning_details"}
    elif provider in ("openai", "azure") and not own_server:
        sent_keys |= {"reasoning_items"}
        fields = {
            key: value for key, value in fields.items() if key in (*_RESPONSES_FIELDS, "phase")
        }
    else:
        sent_keys |= {"reasoning_content", "reasoning_items"}
        fields = {key: value for key, value in fields.items() if key in _RESPONSES_FIELDS}
    sent = {key: value for key, value in message.items() if key in sent_keys}
    return sent | {"provider_specific_fields": dict(fields)} if fields else sent


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
