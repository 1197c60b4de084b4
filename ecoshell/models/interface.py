"""What every model is to the rest of ecoshell: its traits, a request to it, and its reply."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from ecoshell.budget import Price
from ecoshell.messages import Call, Message, ProviderState, ToolSchema, Usage
from ecoshell.options import Effort

Purpose = Literal["step", "answer", "repair", "rank", "judge", "compact", "sample"]

_COUNT_MARGIN = 4
"""Divisor of the margin for the tokenizer of another model."""
CAPABLE_PARAMETERS = 7_000_000_000  # such a model gets no small-model aids


@dataclass(frozen=True, slots=True)
class Traits:
    """Facts about a model that are known before its first call; unknown is None."""

    name: str
    price: Price | None  # a free model has a price of zero
    context: int | None
    max_output: int | None
    native_tools: bool  # whether it takes a tool array; otherwise calls are JSON in text
    local: bool
    calls_undeclared: bool = False  # whether it can call tools outside the array
    small: bool = False  # whether it is too small to write summaries and approval texts
    trained: str = ""  # the role it was trained for; such a model needs no reminders
    parameters: int | None = None  # number of parameters
    vision: bool | None = None  # whether it accepts images; if unknown, images are sent
    reasons: bool | None = None  # whether it can reason before it answers
    defers_tools: bool = False  # whether its provider can search for deferred tools and load them

    @property
    def capable(self) -> bool:
        """Whether it gets no small-model aids: neither its facts nor its name say that it is small."""
        return not self.small and (self.parameters is None or self.parameters >= CAPABLE_PARAMETERS)

    @property
    def forgetful(self) -> bool:
        """Whether it gets no earlier turns: it was trained on single turns and would quote their results."""
        return self.small and bool(self.trained)


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Tokens of a prompt: the best count, whether that is exact, and an upper bound for any tokenizer."""

    count: int
    bound: int
    exact: bool
    cache_writes: bool = True  # whether the provider may bill cache writes for the prompt

    @property
    def cautious_count(self) -> int:
        """The count, with a margin if it is inexact, for limits that a provider enforces."""
        margin = 0 if self.exact else self.count // _COUNT_MARGIN
        return max(self.count, min(self.bound, self.count + margin))


@dataclass(frozen=True, slots=True)
class Request:
    """One model call.

    `tools` is the tool array. `callable_now` are the tools that may be called: grammars are built from them, and native
    calls are validated against them. `want` says whether a call is required, allowed or excluded. A text may have to
    end with one of `endings` or match a `grammar` (GBNF): decoding of local models is constrained to that, other models
    are instructed in `messages`. `role` is filled in by the metered model; local models keep one cache per role. `task`
    is the end of the last message, if only this call has it; caches should keep the prompt before it.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    callable_now: tuple[ToolSchema, ...] = ()
    want: Literal["call", "either", "text"] = "either"
    several: bool = False  # whether `want="call"` allows several; `either` always does
    max_tokens: int = 1024
    min_tokens: int = 16  # smallest useful output limit
    repeatable: bool = False  # whether a reply that is cut may be asked for again with more room
    temperature: float | None = 0.0  # 0 takes the likeliest token; None is the model's default
    purpose: Purpose = "step"
    endings: tuple[str, ...] = ()
    grammar: str = ""
    role: str = ""
    task: str = ""
    effort: Effort = "auto"  # filled in by the metered model


@dataclass(frozen=True, slots=True)
class ArrivingCall:
    """A long call while its arguments stream: the tool, the file that it names (or empty), and its lines so far."""

    name: str
    path: str
    lines: int


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of streamed text, with the call's usage so far if the model counts it exactly."""

    text: str
    usage: Usage | None = None
    reasoning: bool = False  # whether the text is reasoning
    answer: bool = False  # whether it is part of the answer in a call of `finish`
    unseen: int = 0  # bytes of calls received with this piece
    call: ArrivingCall | None = None  # a call that has grown noticeably


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply: text, calls in their order, and the usage if it was reported.

    `fault` is set if the first call is unusable (broken JSON, arguments against the schema) and explains the error to
    the model. Calls after an unusable one are dropped, because they may depend on it.
    """

    text: str
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    fault: str = ""
    cut: bool = False  # whether the output limit ended it
    attempt: Call | None = None  # the unusable call, if it is readable
    reasoning: str = ""  # never part of `text`
    finish: str = field(default="", compare=False)
    """Why the model stopped: `stop`, `tool_calls`, `length`, `content_filter`, `refusal`, `malformed_call` (Gemini
    could not read its own call) or `endless` (it was cut off beyond `max_tokens`); empty if unknown."""
    state: ProviderState | None = field(default=None, compare=False, repr=False)
    """For the next request to the provider."""
    group: str = field(default="", compare=False)  # ID of the reply within a session

    @property
    def call(self) -> Call | None:
        return self.calls[0] if self.calls else None


@runtime_checkable
class Model(Protocol):
    """A model. `stream` yields deltas and finally the reply; closing the iterator cancels the call between tokens.

    Models that load slowly may have `async warm(ahead)`, which starts loading for a likely request (or None) and
    returns at once, and `loaded`, which says whether counting is fast. Models that share resources may have
    `discard()`, which releases them without waiting.

    Raises ModelMissing, ModelUnavailable or ModelBroken.
    """

    @property
    def traits(self) -> Traits: ...

    def size(self, request: Request) -> PromptSize:
        """Tokens of the request's prompt, tool array included."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a plain text."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]: ...

    async def aclose(self) -> None: ...
