"""When a model call that failed is tried again, and how long to wait before."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ecoshell.errors import ModelUnavailable
from ecoshell.events.figures import duration
from ecoshell.options import RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with jitter, up to a time limit; the provider's Retry-After is respected."""

    seconds: float = RETRY_SECONDS  # no attempt starts later; 0 turns retries off
    first_pause: float = 1.0
    longest_pause: float = 30.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    def pause(self, failures: int, retry_after: float | None) -> float:
        """Seconds to wait after this many failures."""
        longest = min(self.first_pause * 2 ** (failures - 1), self.longest_pause)
        if retry_after is None:
            return longest * random.uniform(0.5, 1.0)
        return retry_after + random.uniform(0.0, 0.1) * min(longest, retry_after)


@dataclass(slots=True)
class Retries:
    """The attempts of one model call."""

    policy: RetryPolicy
    failures: int = 0
    _first_failure: float = 0.0

    def next_pause(self, error: ModelUnavailable) -> float | None:
        """Seconds to wait before the next attempt; None when this failure is final, and then the error says why."""
        policy = self.policy
        if self.failures == 0:
            self._first_failure = policy.clock()
        self.failures += 1
        if not error.transient or error.shown or policy.seconds <= 0:
            return None
        pause = policy.pause(self.failures, error.retry_after)
        elapsed = policy.clock() - self._first_failure
        if elapsed + pause <= policy.seconds:
            return pause
        if error.retry_after is not None and error.retry_after > policy.seconds:
            wait = f"The provider asks to wait {duration(error.retry_after)} (Retry-After)"
            limit = f"[models] retry_seconds = {policy.seconds:g}"
            error.message += f" {wait}, longer than {limit} allows."
        else:
            tries = "1 attempt" if self.failures == 1 else f"{self.failures} attempts"
            error.message += f" Gave up after {tries} in {duration(elapsed)}."
        return None

    def notice(self, error: ModelUnavailable, pause: float) -> str:
        """What the user reads while the call waits."""
        remaining = max(0.0, self.policy.seconds - (self.policy.clock() - self._first_failure))
        cause = "the provider asks to wait" if error.retry_after else "waiting"
        return (
            f"{error.message} Retrying (attempt {self.failures + 1}): {cause} {duration(pause)}; "
            f"gives up after {duration(remaining)} more."
        )
