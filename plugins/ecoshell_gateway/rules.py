"""Rules of a run: allowed models, a cheaper model near the cap, limits per request and minute, and a loop guard."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase

from ecoshell.budget import Amount, CapState, Hold, amount_text
from ecoshell_gateway.errors import Refused
from ecoshell_gateway.protocols import RequestFacts

_MINUTE = 60.0
_REMEMBERED_CONVERSATIONS = 16


@dataclass(frozen=True, slots=True)
class Below:
    """Use `model` when less than `share` of a cap of the run is left."""

    share: Decimal
    model: str


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The rules that a user chose."""

    allowed: tuple[str, ...] = ()
    """Names or patterns of models; all are allowed if it is empty."""
    below: Below | None = None
    max_request: Amount | None = None
    per_minute: Amount | None = None
    requests_per_minute: int | None = None
    loop_steps: int | None = None
    """How many repetitions of a step pause the run."""


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The last request of a conversation: its messages, what it added, and how often that was added in a row."""

    messages: tuple[bytes, ...]
    step: tuple[bytes, ...]
    repeats: int


class LoopGuard:
    """Recognizes an agent that repeats one step while its context grows.

    A step is what a request adds to an earlier request of its conversation, without IDs and numbers.
    """

    def __init__(self) -> None:
        self._conversations: deque[_Conversation] = deque(maxlen=_REMEMBERED_CONVERSATIONS)

    def check(self, facts: RequestFacts, limit: int) -> None:
        """Raise Refused when a step is repeated `limit` times in a row; the next request is allowed again."""
        messages = tuple(part.digest for part in facts.prompt.parts if part.step)
        steps = tuple(part.step for part in facts.prompt.parts if part.step)
        earlier = max(
            (
                entry
                for entry in self._conversations
                if messages[: len(entry.messages)] == entry.messages
            ),
            key=lambda entry: len(entry.messages),
            default=None,
        )
        if earlier is None or len(earlier.messages) == len(messages):
            if earlier is None:
                self._conversations.append(_Conversation(messages, (), 0))
            return
        step = steps[len(earlier.messages) :]
        repeats = earlier.repeats + 1 if step == earlier.step else 1
        is_loop = repeats >= limit
        self._conversations.remove(earlier)
        self._conversations.append(_Conversation(messages, step, 0 if is_loop else repeats))
        if is_loop:
            text = f"loop guard: the last {limit} requests repeat one step while the context grows, so this one was"
            raise Refused(
                "cap",
                f"{text} not sent. The cap is unchanged; the next request is sent (--loop-guard).",
            )


@dataclass(slots=True)
class Rules:
    """Applies the rules of one run."""

    options: RuleOptions = field(default_factory=RuleOptions)
    clock: Callable[[], float] = time.monotonic
    _recent: deque[tuple[float, Hold]] = field(default_factory=deque[tuple[float, Hold]])
    _loops: LoopGuard = field(default_factory=LoopGuard)

    @property
    def needs_caps(self) -> bool:
        """Whether the choice of the model depends on the caps."""
        return self.options.below is not None

    @property
    def max_request_nano(self) -> int | None:
        """The cap of each request, in nano-dollars."""
        return None if self.options.max_request is None else self.options.max_request.value

    def model_for(self, model: str, caps: Sequence[CapState]) -> str:
        """Return the model to use: another one when little is left of a cap."""
        below = self.options.below
        if below is None:
            return model
        is_low = any(cap.left < below.share * cap.limit for cap in caps if cap.scope == "session")
        return below.model if is_low else model

    def check(self, facts: RequestFacts) -> None:
        """Raise Refused if a rule forbids the request."""
        allowed = self.options.allowed
        if allowed and not any(fnmatchcase(facts.model, pattern) for pattern in allowed):
            names = ", ".join(allowed)
            raise Refused(
                "cap", f"{facts.model} is not allowed under this cap. Allowed: {names} (--allow)."
            )
        self._check_minute()
        if self.options.loop_steps is not None:
            self._loops.check(facts, self.options.loop_steps)

    def count(self, hold: Hold) -> None:
        """Count a reserved request for the limits per minute."""
        if self.options.per_minute is not None or self.options.requests_per_minute is not None:
            self._recent.append((self.clock(), hold))

    def _check_minute(self) -> None:
        now = self.clock()
        while self._recent and now - self._recent[0][0] >= _MINUTE:
            self._recent.popleft()
        limit, requests = self.options.per_minute, self.options.requests_per_minute
        wait = 1 if not self._recent else max(1, int(_MINUTE - (now - self._recent[0][0])) + 1)
        if requests is not None and len(self._recent) >= requests:
            raise Refused(
                "rate", f"cap of {requests:,} requests per minute reached.", retry_after=wait
            )
        if limit is not None:
            holds = [hold for _, hold in self._recent]
            used = sum(hold.amount(limit.unit) for hold in holds)
            if used >= limit.value:
                text = f"cap of {limit} per minute reached, {amount_text(used, limit.unit)} reserved in that time."
                raise Refused("rate", text, retry_after=wait)
