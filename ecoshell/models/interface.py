"""What every model is to the rest of ecoshell: its traits, a request to it, and its reply."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from ecoshell.budget import Price
from ecoshell.messages import Call, Message, ProviderState, ToolDocument, Usage
from ecoshell.options import Effort

Purpose = Literal["step", "answer", "repair", "rank", "judge", "compact", "sample"]

CAPABLE_PARAMETERS = 7_000_000_000
"""A model with at least this many parameters gets no small-model aids."""


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
