"""A process that calls unreliable models within the caps; the test starts several and kills some.

The provider appends each bill in nano-dollars to a separate file before it sends a reply or fails. The process prints
`called` for each attempt and a JSON object with the counts at the end.
"""

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from ecoshell.budget import Account, Price, Rates, Tier
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import BudgetError, ModelError, ModelMissing, ModelUnavailable
from ecoshell.events import Event
from ecoshell.images import image_tokens, images_in
from ecoshell.messages import Call, Image, Message, ProviderState, ToolSchema, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits, request_bound
from ecoshell.models.chat_body import chat_body
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy

LONG = Tier(20_000, Rates(*map(Decimal, ("6", "0.6", "7.5", "22.5", "22.5"))))
PRICES = {
    "main": Price(Rates(*map(Decimal, ("3", "0.3", "3.75", "15", "15"))), (LONG,)),
    "spare": Price(Rates(*map(Decimal, ("1", "0.1", "1", "5", "8"))), request=Decimal("0.0005")),
}
MOODS = (
    "fine",
    "fine",
    "fine",
    "fine",
    "reasoning",
    "silent",
    "busy",
    "down",
    "reset",
    "cut",
    "gone",
)
TOOL = ToolSchema(
    "read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)


class UnreliableModel:
    """Bills correctly, and replies, reports usage and fails at random."""

    def __init__(self, name: str, chance: random.Random, bills: Path, counts: Counter[str]) -> None:
        self.traits = Traits(name, PRICES[name], 200_000, 4_000, native_tools=True, local=False)
        self._chance = chance
        self._bills = bills
        self._counts = counts
        self._reasoned: dict[str, int] = {}

    def size(self, request: Request) -> PromptSize:
        bound = request_bound(request, native_tools=True)
        return PromptSize(bound // 4, bound, exact=False)

    def count(self, text: str) -> int:
        return len(text) // 4

    async def stream(self, request: Request) -> AsyncIterator[Delta | Reply]:
        print("called", flush=True)
        chance, mood = self._chance, self._chance.choice(MOODS)
        self._counts[mood] += 1
        if mood == "busy":
            raise ModelUnavailable("429", billed=False, retry_after=chance.choice([None, 1, 500]))
        if mood == "gone" and self.traits.name == "main":
            raise ModelMissing("The key was refused.", key=True)
        usage, state = self._used(request, reasoning=mood == "reasoning")
        self._bill(usage)
        await asyncio.sleep(0)  # the process may be killed here
        if mood in ("down", "reset"):
            raise ModelUnavailable("503" if mood == "down" else "connection reset")
        yield Delta("I read ")
        if mood == "cut":
            raise ModelUnavailable("the stream broke off")
        call = Call("read_file", {"path": "a.py"}, id=f"call{chance.randrange(10**9)}")
        yield Reply(
            "I read it.",
            (call,),
            None if mood == "silent" else usage,
            finish="tool_calls",
            state=state,
        )

    def _used(self, request: Request, *, reasoning: bool) -> tuple[Usage, ProviderState | None]:
        chance, body = self._chance, chat_body(request, native=True, family=self.traits.name)
        prompt = (
            300
            + len(json.dumps(body["tools"])) // 3
            + sum(map(image_tokens, images_in(request.messages)))
        )
        for message in body["messages"]:
            text = f"{message.get('content') or ''}{message.get('tool_calls') or ''}"
            prompt += (
                5
                + len(text.encode()) * 2 // 3
                + self._reasoned.get(str(message.get("thinking_blocks")), 0)
            )
        output = chance.randint(1, request.max_tokens)
        if not reasoning:
            cached = chance.randint(0, prompt)
            return Usage(prompt, output, cached, chance.randint(0, prompt - cached)), None
        blocks = [{"thinking": "…", "signature": str(chance.randrange(10**9))}]
        self._reasoned[str(blocks)] = (
            output  # counts in full when it is sent back, even if its text is short
        )
        state = ProviderState(
            self.traits.name, {"content": "I read it.", "thinking_blocks": blocks}
        )
        return Usage(prompt, output, reasoning=output), state

    def _bill(self, usage: Usage) -> None:
        with self._bills.open("a") as file:
            file.write(f"{PRICES[self.traits.name].cost(usage)}\n")

    async def aclose(self) -> None:
        """Nothing is open."""


async def spend(
    gate: Gate, chance: random.Random, session: str, attempts: int, bills: Path
) -> Counter[str]:
    """Run conversations with growing prompts, retries and a fallback model for this many attempts."""
    counts: Counter[str] = Counter()
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    retry = RetryPolicy(8, sleep=sleep, clock=lambda: now)
    turn = 0
    while sum(counts[mood] for mood in set(MOODS)) < attempts:
        turn += 1
        account = Account(session, turn, "single", "", "step")
        unreliable = [UnreliableModel(name, chance, bills, counts) for name in PRICES]
        models = [
            MeteredModel(model, gate, lambda account=account: account, retry=retry)
            for model in unreliable
        ]
        await _converse(models, chance, counts)
    return counts


async def _converse(
    models: list[MeteredModel], chance: random.Random, counts: Counter[str]
) -> None:
    """Run a turn until its last step or until a cap ends it."""
    opening = Message("user", "x" * chance.randint(1, 3000), images=_images(chance, counts))
    messages = [Message("system", "You help. " * 50), opening]
    events: list[Event] = []
    for _ in range(12):
        request = Request(
            tuple(messages), (TOOL,), (TOOL,), max_tokens=chance.choice([64, 1024, 16_384])
        )
        try:
            aside = await models[0].set_aside(partial(replace, request, max_tokens=100), slack=2000)
            try:
                reply = await models[0].ask(request, events.append)
            finally:
                await models[0].release(aside)
        except BudgetError:
            counts["refused"] += 1
            await asyncio.sleep(0.01)  # until the test raises the cap
            return
        except ModelError:
            models = models[1:] + models[:1]  # the other model takes over
            continue
        if chance.random() < 0.1:
            messages = [messages[0], Message("user", "A summary. " * 20)]
            counts["compacted"] += 1
        elif reply.call is not None:
            messages.append(Message("assistant", reply.text, reply.calls, state=reply.state))
            images = _images(chance, counts)
            messages.append(
                Message("tool", "line\n" * chance.randint(1, 400), reply.calls, images=images)
            )


def _images(chance: random.Random, counts: Counter[str]) -> tuple[Image, ...]:
    """Usually none, else one or two of random size."""
    sizes = [
        (chance.randint(1, 8000), chance.randint(1, 8000))
        for _ in range(chance.choice([0, 0, 0, 0, 1, 2]))
    ]
    counts["images"] += len(sizes)
    return tuple(
        Image("photo.png", "image/png", "iVBORw0KGgo=", width, height) for width, height in sizes
    )


def main(ledger_path: str, bills: str, seed: str, attempts: str) -> None:
    ledger = Ledger(Path(ledger_path), busy_seconds=60)
    chance = random.Random(int(seed))
    counts = asyncio.run(
        spend(Gate(ledger), chance, f"s{seed}.{os.getpid()}", int(attempts), Path(bills))
    )
    ledger.close()
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
