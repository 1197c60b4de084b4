"""A process whose agent delegates at random, with random costs; the test kills it and starts it again.

The provider appends each bill in nano-dollars to a separate file before it replies. The process prints each event of
a subagent as a line of JSON, after its events are on disk.
"""

import asyncio
import json
import random
import sys
from collections.abc import AsyncGenerator
from decimal import Decimal
from pathlib import Path

from ecoshell import Agent
from ecoshell.budget import Price, Rates
from ecoshell.errors import EcoshellError, ModelUnavailable
from ecoshell.events import SubagentFinished, SubagentStarted, to_json
from ecoshell.messages import Call, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits, request_bound
from ecoshell.options import Options

PRICE = Price(Rates(*map(Decimal, ("3", "0.3", "3.75", "15", "15"))))
BUDGETS = ("", "", "0.02", "0.08", "0.3", "50")
TURNS = 10_000


class Delegator:
    """Delegates, counts texts and answers at random; sends bills, and forgets to report some."""

    def __init__(self, chance: random.Random, bills: Path) -> None:
        self.traits = Traits("delegator", PRICE, 200_000, 2_000, native_tools=True, local=False)
        self._chance = chance
        self._bills = bills

    def size(self, request: Request) -> PromptSize:
        bound = request_bound(request, native_tools=True)
        return PromptSize(bound // 4, bound, exact=False)

    def count(self, text: str) -> int:
        return len(text) // 4

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        chance, bound = self._chance, self.size(request).bound
        usage = Usage(input=bound // 3, output=chance.randint(1, request.max_tokens))
        with self._bills.open("a") as file:
            file.write(f"{PRICE.cost(usage)}\n")
        await asyncio.sleep(chance.choice([0, 0, 0.01]))  # the process may be killed here
        if chance.random() < 0.03:
            raise ModelUnavailable("503")
        yield Delta("Well. ")
        calls = (
            ()
            if request.purpose == "answer"
            else self._calls({tool.name for tool in request.tools})
        )
        yield Reply("Well.", calls, None if chance.random() < 0.05 else usage)

    def _calls(self, tools: set[str]) -> tuple[Call, ...]:
        chance = self._chance
        if "task" in tools and chance.random() < 0.6:
            return tuple(
                Call(
                    "task",
                    {"instructions": f"Do {chance.random()}.", "budget": chance.choice(BUDGETS)},
                )
                for _ in range(chance.randint(1, 4))
            )
        if "task" not in tools and chance.random() < 0.3:
            return (Call("tool_register", {"tool_name": "task"}),)
        if chance.random() < 0.5:
            return (Call("list_files", {"path": "."}),)
        return ()

    async def aclose(self) -> None: ...


async def delegate(home: str, bills: str, seed: str, session: str) -> None:
    options = Options(
        workspace=Path(home), resume=session or None, budget=None if session else "2", max_steps=6
    )
    async with Agent(
        Delegator(random.Random(int(seed)), Path(bills)), home=home, options=options
    ) as agent:
        print(json.dumps({"session": agent.session}), flush=True)
        for _ in range(TURNS):
            try:
                async for event in agent.stream("Delegate!"):
                    if isinstance(event, SubagentStarted | SubagentFinished):
                        print(json.dumps(to_json(event)), flush=True)
            except EcoshellError as error:
                print(json.dumps({"error": str(error)}), flush=True)
            print(json.dumps({"status": agent.outcome.status}), flush=True)


if __name__ == "__main__":
    asyncio.run(delegate(*sys.argv[1:]))
