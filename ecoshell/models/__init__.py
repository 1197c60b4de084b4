"""Models by name: what every model is to the rest of ecoshell. Local, remote and scripted ones stand beside it."""

import json
import unicodedata
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast, runtime_checkable

from ecoshell.budget import Price
from ecoshell.images import image_bound
from ecoshell.messages import Call, Message, ProviderState, ToolDocument, Usage
from ecoshell.options import Effort

Purpose = Literal["step", "answer", "repair", "rank", "judge", "compact", "sample"]

PER_MESSAGE = 16
PER_PROMPT = 256
PER_TOOL_ARRAY = 1024
PER_TOOL = 64
PER_TOOL_SEARCH = 512
"""The provider's own search tool, and what it tells the model of it."""

CAPABLE_PARAMETERS = 7_000_000_000
"""Weights from which on a model needs no aids."""
_ESCAPED = "<>&'"
_ESCAPE_GROWTH = len("\\u003c") - 1


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a model before it is asked anything; unknown is None."""

    name: str
    price: Price | None
    """None when unknown; a model that costs nothing has a price of zero."""
    context: int | None
    max_output: int | None
    native_tools: bool
    """Takes a tool array and answers with tool calls of its own; otherwise calls are JSON in the text."""
    local: bool
    calls_undeclared: bool = False
    """Whether a call may name a tool that the array does not hold: its calls are read from what it writes."""
    small: bool = False
    """Of the smallest: it writes no summary, and words nothing that is done."""
    trained: str = ""
    """The role in which it was trained on what the shell asks (`ecoshell train umi`), and needs no reminders."""
    parameters: int | None = None
    """How many weights it has."""
    vision: bool | None = None
    """Whether it accepts images; None is unknown, and they are sent."""
    reasons: bool | None = None
    """Whether it can reason before it answers; None is unknown."""
    defers_tools: bool = False
    """Whether its provider loads deferred tools by a search of its own."""

    @property
    def capable(self) -> bool:
        """Whether the model is neither known nor named to be small: it gets no small-model aids."""
        return not self.small and (self.parameters is None or self.parameters >= CAPABLE_PARAMETERS)

    @property
    def forgetful(self) -> bool:
        """Whether it is told nothing of earlier turns: it was trained on single ones, and would quote their results."""
        return self.small and bool(self.trained)


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Tokens of a prompt: the best count, whether it is exact, and a bound no provider's tokenizer passes."""

    count: int
    bound: int
    exact: bool
    cache_writes: bool = True
    """Whether the provider may write a part of the prompt to its cache, at a rate of its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """One ask of a model.

    `tools` is the array the model sees; `callable_now` are the documents a call may name at this moment (a grammar is
    built from them, a native answer is validated against them). `want` says whether a call must, may or must not come.
    A wanted text may have to end with one of `endings`, or be of a `grammar` (GBNF): a local model is held to that,
    others are told so in `messages`. `role` is who asks; the metered model fills it in, and a local model keeps a cache
    for each. `task` is what a message at the end is, or ends with, that this ask alone is told: what stands before it
    is sent again, so that is what a provider should keep in its cache.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolDocument, ...] = ()
    callable_now: tuple[ToolDocument, ...] = ()
    want: Literal["call", "either", "text"] = "either"
    several: bool = False
    """Whether several calls may come although `want` is `call`; with `either` they always may."""
    max_tokens: int = 1024
    min_tokens: int = 16
    """With room for less output than this the call is of no use."""
    temperature: float | None = 0.0
    """0 takes the likeliest token; None is what the model's file, its family or its provider recommends."""
    purpose: Purpose = "step"
    endings: tuple[str, ...] = ()
    grammar: str = ""
    role: str = ""
    task: str = ""
    effort: Effort = "auto"
    """How much the model reasons; filled in by the metered model."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of streamed text; `usage` is what the call took so far, where the model itself counts it exactly."""

    text: str
    usage: Usage | None = None
    reasoning: bool = False
    """Whether the text is thinking before the answer, which is shown folded and never sent back."""
    answer: bool = False
    """Whether the text is the answer in a call of `finish`, which is there whole in the reply's call."""
    unseen: int = 0
    """Bytes of a call that came meanwhile and are told with the reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished answer of a model: text, calls in the order they are to be made, and the usage if it was reported.

    `fault` is set when the first call attempted cannot be used (broken JSON, arguments against the schema); it says
    what is wrong in words the model can act on. Calls after one that cannot be used are left out, as they may rest on
    it.
    """

    text: str
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    fault: str = ""
    cut: bool = False
    """Whether `max_tokens` ended it."""
    attempt: Call | None = None
    """The call that was attempted, where it can be read and not be used."""
    reasoning: str = ""
    """Reasoning text before the answer; never part of `text`."""
    finish: str = field(default="", compare=False)
    """Why the model stopped: `stop`, `tool_calls`, `length`, `content_filter`, `refusal` or `malformed_call` (Gemini
    could not read its own call); empty if unknown."""
    state: ProviderState | None = field(default=None, compare=False, repr=False)
    """What the provider expects back with the next request."""
    group: str = field(default="", compare=False)
    """Identifies the reply within a session."""

    @property
    def call(self) -> Call | None:
        """The first of the calls."""
        return self.calls[0] if self.calls else None


@runtime_checkable
class Model(Protocol):
    """A model. `stream` yields deltas and, last, the reply; closing the iterator cancels the call between tokens.

    One that is slow to load may also have `async warm(ahead)`, which begins to and returns at once, and `loaded`,
    whether counting is quick by now; `ahead` is a request that may come, or None. One that shares what others use may
    have `discard()`, which lets go of that without waiting.

    Raises ModelMissing, ModelUnavailable or ModelBroken.
    """

    @property
    def traits(self) -> Traits: ...

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt this request becomes, protocol and tool array included."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a plain text."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]: ...

    async def aclose(self) -> None: ...


# -- as lists of models show them

HERE = "this machine"
"""The provider of models that run in this process."""


def size(count: int | None) -> str:
    """A number of bytes, as files are told of; empty where it is not known."""
    for unit, bytes_of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count is not None and count >= bytes_of:
            return f"{count / bytes_of:.{1 if count < 100 * bytes_of else 0}f} {unit}"
    return "" if count is None else f"{count} bytes"


Kind = Literal["embedded", "file", "server", "remote", "hub"]
"""What runs it: this process, from the package or a file; a server here or elsewhere; nothing until it is pulled."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model that could be talked with; unknown is None, sizes are tokens."""

    name: str
    provider: str
    ready: bool | None
    """Whether it could be asked now: installed, or with a key; None for a provider that signs in otherwise."""
    context: int | None
    max_output: int | None
    price: Price | None
    barred: str = ""
    """Why no call goes to it under a cap; empty when it may be called."""
    missing: str = ""
    """What to do so that it is ready; empty when nothing is known to be missing."""
    address: str = ""
    """The user's own server it is asked at, which needs no key; empty for the provider's."""
    at_hand: bool = True
    """Whether it is on this machine, recommended, in the settings, barred, or of a provider with a key."""
    kind: Kind = "remote"
    path: Path | None = None
    size_bytes: int | None = None
    place: str = ""
    """Whose it is where that is not said by the provider: `LM Studio`, `Ollama: qwen3:4b`."""

    @property
    def local(self) -> bool:
        """Whether it runs on this machine."""
        return self.provider == HERE

    @property
    def state(self) -> str:
        """How it stands, in a word or two."""
        if self.barred:
            return "blocked"
        if self.kind == "hub":
            return "to pull"
        if self.kind == "server":
            return "running"
        if self.local:
            return "installed" if self.ready else "not installed"
        if self.address:
            return "own server"
        return {True: "has a key", False: "no key", None: "?"}[self.ready]


# -- what a prompt weighs


def estimate(text: str) -> int:
    """Tokens of a text without a tokenizer: a quarter of its bytes, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def text_bound(text: str) -> int:
    """The most tokens a plain text can be."""
    if text.isascii():
        return len(text)
    return max(len(form.encode("utf-8", "replace")) for form in (text, unicodedata.normalize("NFKC", text)))


def json_bound(value: Mapping[str, Any]) -> int:
    """The most tokens a JSON value can be, however a template prints it."""
    printed = json.dumps(value, indent=4)
    return len(printed) + _ESCAPE_GROWTH * sum(printed.count(sign) for sign in _ESCAPED)


def request_bound(request: Request, *, native_tools: bool, model: str = "") -> int:
    """The most tokens the prompt of this request can be, with tool calls of the model's own or as plain text.

    The budget gate reserves them, whatever tokenizer the provider uses:

    - Text: its length in UTF-8 bytes. A byte-level BPE (OpenAI, Llama 3, Qwen, Claude) makes at most one token of a
      byte, and so do SentencePiece models with byte fallback (Llama 2, Mistral, Gemma). Some normalise first
      (NFKC), which lengthens a few characters: the longer of the two forms counts.
    - JSON (tool documents, arguments): chat templates print it anew, indented, with `\\uXXXX` for what is not ASCII
      and for `<`, `>`, `&` and `'`; the length of that longest form counts.
    - What a provider expects back with its reply (thinking, signatures, reasoning items): the bytes of its texts.
    - Deferred tools: in full, whether they are loaded or not, as the provider may load them while it answers; and
      once more for each search in the history that loaded them.
    - Images: `image_bound`, for the `model` of this name.
    - `PER_MESSAGE` for the role and its delimiters: OpenAI counts 3 or 4 tokens, ChatML and Llama 3 templates 5 to
      7.
    - `PER_PROMPT` for what opens and closes a prompt, and for system texts that templates add by themselves (dates,
      names).
    - `PER_TOOL_ARRAY` for a native tool array: Anthropic adds a system prompt of 264 to about 800 tokens, as the
      model and the tool choice demand; Llama and Qwen templates add 100 to 200. `PER_TOOL` for the frame of each
      document.
    """
    messages, tools = request.messages, request.tools
    if not native_tools or not tools:
        from ecoshell.models.protocol import as_plain_messages

        messages, tools = as_plain_messages(request), ()
    bound = PER_PROMPT
    for message in messages:
        bound += PER_MESSAGE + text_bound(message.text) + sum(image_bound(image, model) for image in message.images)
        for call in message.calls:
            bound += PER_MESSAGE + text_bound(call.name) + json_bound(call.arguments) + text_bound(shown_id(call))
        bound += 0 if message.state is None else state_bound(message.state, tools)
    if tools:
        bound += PER_TOOL_ARRAY + PER_TOOL * len(tools) + sum(json_bound(tool.as_function()) for tool in tools)
        bound += PER_TOOL_SEARCH if any(tool.deferred for tool in tools) else 0
    return bound


def shown_id(call: Call) -> str:
    """The call's ID as the model reads it: litellm appends Gemini's thought signature, and takes it off again."""
    return call.id.partition("__thought__")[0]


def state_bound(state: ProviderState, tools: Sequence[ToolDocument] = ()) -> int:
    """The most tokens the opaque fields of a reply (thinking, signatures, reasoning items) can be when sent back.

    Where they refer to some of the tools, the provider puts the schemas in their place.
    """
    from ecoshell.models.protocol import safe_name
    from ecoshell.models.tool_search import is_server_call, loaded_names, search_items

    fields = [value for name, value in state.message.items() if name not in ("content", "tool_calls")]
    calls: Any = state.message.get("tool_calls") or ()
    bound = sum(map(_leaves_bound, (*fields, *(call.get("provider_specific_fields") for call in calls))))
    bound += sum(PER_MESSAGE + json_bound(call["function"]) for call in calls if is_server_call(call))
    if items := search_items(state):
        return bound + sum(PER_TOOL + json_bound(item) for item in items)
    if loaded := [*loaded_names(state.message)]:
        schemas = {safe_name(tool.name): PER_TOOL + json_bound(tool.as_function()) for tool in tools}
        bound += sum(schemas.get(name, 0) for name in loaded)
    return bound


def _leaves_bound(value: Any) -> int:
    """The bound of all texts in a JSON value."""
    if isinstance(value, str):
        return text_bound(value)
    if isinstance(value, Mapping):
        return sum(map(_leaves_bound, cast("Mapping[str, Any]", value).values()))
    return sum(map(_leaves_bound, cast("list[Any]", value))) if isinstance(value, list) else 0
