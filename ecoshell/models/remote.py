"""Remote models: any name litellm knows, called through a process that owns litellm (remote_process)."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any

from ecoshell.budget import PriceBook
from ecoshell.errors import ModelError, ModelMissing, closest_words
from ecoshell.images import image_tokens, images_in, without_images
from ecoshell.models import (
    ArrivingCall,
    Delta,
    PromptSize,
    Reply,
    Request,
    Traits,
    request_bound,
    text_bound,
)
from ecoshell.models.chat_body import chat_body, is_cached, mark_for_cache
from ecoshell.models.effort import add_effort
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.formats import HERMES, REASONING_TAGS
from ecoshell.models.keys import Keys
from ecoshell.models.local_models import LOCAL
from ecoshell.models.prompt_counts import MARGIN
from ecoshell.models.protocol import as_plain_messages
from ecoshell.models.remote_errors import model_error, shown_message
from ecoshell.models.remote_process import RemoteProcess
from ecoshell.models.remote_replies import is_anthropic, reply_of, sent_back
from ecoshell.models.replying import ReplyForm, ReplyReader, load_readers
from ecoshell.models.servers import PROVIDERS, download_command
from ecoshell.models.tokens import counter_for
from ecoshell.models.tool_search import search_tool

SILENCE = 600.0  # maximum seconds without data; some providers send nothing while a model reasons
_SECONDS_PER_TOKEN = 2.0  # maximum for slow local servers, in addition to the silence
_BYTES_PER_TOKEN, _SPARE_BYTES, _MAX_BYTES = 1 << 14, 1 << 23, 1 << 27
"""Limits of an answer on the network; some providers repeat sources or the whole text with each token."""

_NO_KEY = "none"  # sent to the user's own servers without a key, because clients require one
_PUBLISHED_ENCODINGS = frozenset({"openai", "azure"})  # names determine the tiktoken encoding
_COUNTING_PROVIDERS = frozenset({"anthropic"})
"""Providers with a free endpoint that counts a prompt; litellm needs a further package for Gemini's, and the prompts of
OpenAI's models are counted here."""
_COUNT_SECONDS = 5.0
_NAME_HELP = (
    "Write the provider first: openai/NAME, ollama/NAME, …; "
    "`ecoshell models PART` searches the known names."
)
_TOKENS_PER_MESSAGE = 3
_TOKENS_PER_PROMPT = 3  # added by OpenAI to the texts; other templates differ slightly


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The user's settings of a remote model; None means the price book decides."""

    base_url: str | None = None  # address of an OpenAI-compatible server; None is the provider's
    native_tools: bool | None = None
    context: int | None = None
    set_context: int | None = None  # what Ollama is asked to provide; None leaves it to the server
    vision: bool | None = None
    tool_search: bool | None = None  # whether deferred tools are used; None: by model
    silence: float = SILENCE
    deadline: float | None = None  # of the answer; None derives it from `max_tokens`


_AS_KNOWN = RemoteOptions()
_OLLAMA = ("ollama", "ollama_chat")
"""Ollama cuts the beginning of prompts that exceed the context of a request."""
_SIZE_IN_NAME = re.compile(
    r"(?<![a-z0-9.])(?:(\d+)x)?(\d+\.\d+(?=b)|\d+(?=b)|\d{2,}(?=m))([bm])(?![a-z0-9])"
)
"""A parameter count in a name; `1m` would be a context."""
_SIZE_UNITS = {"b": 10**9, "m": 10**6}


def named_parameters(name: str) -> int | None:
    """The parameter count in a model's name, such as `ollama/qwen2.5-coder:1.5b`; None if it has none."""
    sizes = (
        int(factor or 1) * float(count) * _SIZE_UNITS[unit]
        for factor, count, unit in _SIZE_IN_NAME.findall(name.casefold())
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
        usual = facts.native_tools if facts is not None else not name.startswith("hosted_vllm/")
        native_tools = usual if options.native_tools is None else options.native_tools
        prefix, slash, _ = name.partition("/")
        provider = "openai" if options.base_url else facts.provider if facts else ""
        self._provider = prefix if slash else provider  # litellm's provider name; empty if unknown
        own_server = options.base_url is not None
        wanted = options.tool_search if native_tools else False
        self._search = search_tool(self._provider, name, own_server=own_server, wanted=wanted)
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
        self._set_context = options.set_context if self._provider in _OLLAMA else None
        self._silence = options.silence
        self._deadline = options.deadline
        on_own_server = self._provider in PROVIDERS and own_server
        self._shared = bool(keys.variables(self._provider)) or on_own_server
        """Whether calls need only a key; other providers sign in with environment variables."""
        self._counter = counter_for(name, hosted=not own_server)

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
            text, fix = (
                f"There is no API key for {self.traits.name}.",
                self._keys.how_to_give(self._provider),
            )
            missing = ModelMissing(text, fix=fix, billed=False, key=True)
            missing.model = self.traits.name
            raise missing
        return key or _NO_KEY

    async def warm(self, ahead: Request | None = None) -> None:
        """Start loading litellm, the tokenizer and the libraries for parsing replies; returns at once."""
        self._counter.start()
        asyncio.get_running_loop().run_in_executor(None, load_readers)
        await self._process.warm(shared=self._shared)

    async def load(self) -> None:
        """Return when litellm is loaded; raises ModelMissing if the model is not available."""
        if not self._process.has_loaded(shared=self._shared):
            await asyncio.to_thread(self.check)
            await self._process.load(shared=self._shared)

    def count(self, text: str) -> int:
        """Tokens of a plain text; an estimate if `size` is inexact."""
        return self._counter.count(text)

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt; exact with the model's own tokenizer and without a native tool array."""
        request = self._visible_request(request)
        native = self._calls_natively(request)
        messages = request.messages if native else as_plain_messages(request)
        texts = [message.text for message in messages]
        if native:
            made = (message.calls for message in messages if message.speaker == "assistant")
            texts += [call.signature() for calls in made for call in calls]
            tools = (tool for tool in request.tools if self._search is None or not tool.deferred)
            texts += [schema.entry for schema in tools]
        images = [*images_in(messages)]
        count = _TOKENS_PER_MESSAGE * len(messages) + _TOKENS_PER_PROMPT
        count += sum(map(self._counter.count, texts)) + sum(map(image_tokens, images))
        model = self.traits.name
        bound = request_bound(request, native_tools=self.traits.native_tools, model=model)
        if self._provider in _PUBLISHED_ENCODINGS:
            bound -= sum(self._beyond_count(message.text) for message in messages)
        exact = self._counter.exact and not native and not images
        cache_writes = not self._marks_cache or is_cached(request)  # Anthropic bills marked prompts
        return PromptSize(min(count, bound), bound, exact=exact, cache_writes=cache_writes)

    def _calls_natively(self, request: Request) -> bool:
        return self.traits.native_tools and bool(request.tools)

    def _chat_body(self, request: Request) -> dict[str, Any]:
        native = self._calls_natively(request)
        return chat_body(request, native=native, family=self.family, search=self._search)

    def _visible_request(self, request: Request) -> Request:
        """The request, without images if the model is known to have no vision."""
        has_images = any(message.images for message in request.messages)
        if self.traits.vision is not False or not has_images:
            return request
        return replace(request, messages=without_images(request.messages))

    def _beyond_count(self, text: str) -> int:
        """The difference between a text's byte bound and its exact count with a margin; 0 without an exact count."""
        counted = self._counter.exact_count(text)
        return 0 if counted is None else max(0, text_bound(text) - counted - counted // MARGIN - 1)

    @property
    def _marks_cache(self) -> bool:
        return is_anthropic(self._provider, self.traits.name)

    async def count_prompt(self, request: Request) -> int | None:
        """The prompt's tokens as the provider's free endpoint counts them; None if it has none or does not answer."""
        if self._provider not in _COUNTING_PROVIDERS:
            return None
        body = self._chat_body(self._visible_request(request))
        body = {name: body[name] for name in ("messages", "tools") if name in body}
        key = await asyncio.to_thread(self.check)
        body |= {"model": self.traits.name, "api_key": key, "api_base": self._base_url}
        return await self._process.count(body, seconds=_COUNT_SECONDS, shared=self._shared)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Call the provider; closing the iterator closes the connection."""
        request = self._visible_request(request)
        body = self._request_body(request)
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
                    call = ArrivingCall(**line["call"]) if "call" in line else None
                    yield Delta("", unseen=line["unseen"], call=call)
                    if line["answer"]:
                        yield Delta(line["answer"], answer=True)
                elif "reply" in line:
                    for delta in reader.finish():
                        yield delta
                    yield self._reply(line["reply"], request)
                else:
                    raise await self._error(line["error"])

    def _request_body(self, request: Request) -> dict[str, Any]:
        """The arguments of litellm's call without the key."""
        body, name = self._chat_body(request), self.traits.name
        has_deferred = any(tool.get("defer_loading") for tool in body.get("tools", ()))
        if self._provider == "openai" and has_deferred and "responses/" not in name:
            # Only this API searches tools.
            name = f"openai/responses/{name.removeprefix('openai/')}"
        if self._marks_cache:
            mark_for_cache(body, request)
        if self._base_url and not name.startswith(f"{self._provider}/"):
            name = f"{self._provider}/{name}"  # the user's own servers are assumed to use OpenAI's protocol
        body |= {"model": name, "max_tokens": request.max_tokens, "timeout": self._silence}
        if "responses/" in name:  # reasoning comes back encrypted, and the provider stores nothing
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if self._base_url:
            body["base_url"] = self._base_url
        elif self._provider in ("openai", "azure"):
            body["prompt_cache_key"] = cache_key(body)
        if self._set_context:
            body["num_ctx"] = self._set_context
        if request.temperature is not None:
            body["temperature"] = request.temperature
        add_effort(body, request, name, self._facts)
        return body

    @property
    def family(self) -> str:
        """The provider family that accepts this model's opaque fields: a provider at one address."""
        return f"{self._provider} {self._base_url}" if self._base_url else self._provider

    async def aclose(self) -> None:
        """Close the tokenizer; the helper process is shared and is closed by its owner."""
        self._counter.close()

    def _reply(self, record: Mapping[str, Any], request: Request) -> Reply:
        name, own_server = self.traits.name, self._base_url is not None
        message = sent_back(record["message"], self._provider, name, own_server=own_server)
        native = self._calls_natively(request)
        return reply_of(record, request, message, self.family, native=native)

    async def _error(self, record: Mapping[str, Any]) -> ModelError:
        if record["kind"] == "unknown":
            reason = shown_message(record, self._keys)
            return await asyncio.to_thread(self._unknown, reason, billed=bool(record["billed"]))
        return model_error(record, self.traits.name, self._provider, self._keys)

    def _unknown(self, reason: str = "", *, billed: bool = False) -> ModelMissing:
        """The error for an unknown model, with similar names; slow, because it searches thousands of names."""
        name = self.traits.name
        near = closest_words(name, {EMBEDDED, *self._book.names()} - {name})
        hint = f"Did you mean {', '.join(near)}?" if near else _NAME_HELP
        if self._base_url and self._provider not in PROVIDERS:
            place = f"base_url = {self._base_url}"
            hint = f"Check the name and {place}: the address of most servers ends in /v1."
        if name.endswith(".gguf"):
            hint = f"A file on this machine is named {LOCAL}{name}."
        elif download := download_command(self._provider, name.partition("/")[2]):
            hint = f"Download it with {download}, or choose another model with /model."
        message = f"There is no model {name}." + (
            f" ({reason.removesuffix('.')})" if reason else ""
        )
        return ModelMissing(message, fix=hint, billed=billed)


def cache_key(body: Mapping[str, Any]) -> str:
    """OpenAI's prompt cache key, the same for all prompts with these tools and system messages."""
    system = [message["content"] for message in body["messages"] if message["role"] == "system"]
    prefix = [body.get("tools"), system]
    return f"ecoshell-{sha1(json.dumps(prefix).encode(), usedforsecurity=False).hexdigest()[:16]}"
