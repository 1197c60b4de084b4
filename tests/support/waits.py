"""A clock for retries that only advances by waiting, so that tests never really wait."""

import asyncio

from ecoshell.models.retrying import RetryPolicy


class Waits:
    """Records the pauses; `policy` makes retries use this clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def policy(self, seconds: float) -> RetryPolicy:
        return RetryPolicy(seconds, sleep=self.sleep, clock=lambda: self.now)
