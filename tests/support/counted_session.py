"""A session of 30 steps whose provider counts with a real tokenizer and caches prefixes; prints its figures."""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import ecoshell
from ecoshell.budget import NANO, Account, Amount, Price, Rates
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.events import BudgetHeld, BudgetSettled, Event
from ecoshell.messages import Call, Message, ProviderState, ToolSchema, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits, request_bound
from ecoshell.models.chat_body import chat_body
from ecoshell.models.metered import MeteredModel
from ecoshell.models.tokens import TokenCounter, counter_for

PRICES = {
    "cache written at 1.25 x, read at 0.1 x": Price(
        Rates(*map(Decimal, ("3", "0.3", "3.75", "15", "15")))
    ),
    "cache read at 0.1 x": Price(Rates(*map(Decimal, ("3", "0.3", "3", "15", "15")))),
    "cache read at 0.5 x": Price(Rates(*map(Decimal, ("3", "1.5", "3", "15", "15")))),
    "no cache": Price(Rates(*map(Decimal, ("3", "3", "3", "15", "15")))),
}
"""Prices of the same model, by its provider's rules for caches."""
ACCOUNT = Account("s", 1, "", "", "")
STEPS = 30
MESSAGE_TOKENS = 4
TOOL_ARRAY_TOKENS = 346
REASONING_TOKENS = 150
CAP = Amount(20 * NANO, "usd")


class CountingModel:
    """A model with native tools whose provider counts the rendered messages and caches their prefixes."""

    def __init__(self, counter: TokenCounter, price: Price) -> None:
        self.traits = Traits("counting", price, 200_000, 64_000, native_tools=True, local=False)
        self._counter = counter
        self._read: list[str] = []

    def size(self, request: Request) -> PromptSize:
        bound = request_bound(request, native_tools=True)
        return PromptSize(bound // 4, bound, exact=False)

    def count(self, text: str) -> int:
        return self._counter.count(text)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Reply]:
        body = chat_body(request, native=True, family="f")
        segments = [json.dumps(body["tools"]), *(_text(message) for message in body["messages"])]
        tokens = [self._tokens(text) + MESSAGE_TOKENS for text in segments]
        tokens[0] += TOOL_ARRAY_TOKENS
        common = 0
        while (
            common < min(len(segments), len(self._read)) and segments[common] == self._read[common]
        ):
            common += 1
        self._read = segments
        cached, total = sum(tokens[:common]), sum(tokens)
        step = len(body["messages"])
        call = Call(
            "read_file",
            {"path": f"ecoshell/module_{step}.py", "start": 1, "end": 200},
            id=f"toolu_{step}",
        )
        made = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": "{}"},
        }
        thinking = [
            {"type": "thinking", "thinking": "Next I read the module.", "signature": "c2ln" * 150}
        ]
        state = ProviderState(
            "f", {"content": "Reading.", "tool_calls": [made], "thinking_blocks": thinking}
        )
        output = 60 + REASONING_TOKENS
        usage = Usage(total, output, cached, total - cached, REASONING_TOKENS)
        yield Reply("Reading.", (call,), usage, finish="tool_calls", state=state)

    def _tokens(self, text: str) -> int:
        return sum(
            self._counter.count(text[at : at + 50_000]) for at in range(0, len(text), 50_000)
        )

    async def aclose(self) -> None:
        self._counter.close()


def _text(message: dict[str, object]) -> str:
    """The text that the provider counts for a message: reasoning tokens replace the signature."""
    blocks = message.pop("thinking_blocks", None)
    return json.dumps(message, ensure_ascii=False) + (
        " reasoning" * REASONING_TOKENS if blocks else ""
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the tokens reserved for its prompt, the total reservation, and the billed usage and price."""

    held_prompt: int
    usage: Usage
    held_nano: int
    spent_nano: int


async def play(path: Path, price: Price, *, max_tokens: int = 1024) -> list[Step]:
    """Run the session under a cap and return its steps."""
    counter = counter_for("gpt-4o")
    if not counter.wait():
        raise RuntimeError("The tokenizer cannot be loaded.")
    ledger = Ledger(path)
    ledger.set_cap("s", "session", CAP)
    model = MeteredModel(CountingModel(counter, price), Gate(ledger), lambda: ACCOUNT)
    sources = sorted(
        Path(ecoshell.__file__).parent.rglob("*.py"), key=lambda file: file.stat().st_size
    )
    texts = [file.read_text(encoding="utf-8")[:8000] for file in sources[-STEPS:]]
    tools = tuple(
        ToolSchema(name, f"{name.replace('_', ' ')} in the workspace.", _SCHEMA)
        for name in (
            "read_file",
            "write_file",
            "edit_file",
            "run_command",
            "search_files",
            "list_files",
        )
    )
    messages = [
        Message("system", "You are an agent in a terminal. " * 40),
        Message("user", "Explain the package."),
    ]
    events: list[Event] = []
    for text in texts:
        reply = await model.ask(
            Request(tuple(messages), tools, tools, max_tokens=max_tokens), events.append
        )
        messages.append(Message("assistant", reply.text, reply.calls, state=reply.state))
        messages.append(Message("tool", text, reply.calls))
        (cap,) = ledger.caps("s", 1)
        if cap.spent + cap.held > cap.limit:
            raise AssertionError("over the cap")
    await model.aclose()
    ledger.close()
    reserved = [event for event in events if isinstance(event, BudgetHeld)]
    settled = [event for event in events if isinstance(event, BudgetSettled)]
    return [
        Step(
            hold.held_tokens - hold.max_tokens,
            bill.usage,
            hold.held_nano or 0,
            bill.spent_nano or 0,
        )
        for hold, bill in zip(reserved, settled, strict=True)
    ]


_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file's path, relative to the workspace."},
        "start": {"type": "integer", "description": "The first line."},
        "end": {"type": "integer", "description": "The last line."},
    },
    "required": ["path"],
}


def main() -> None:
    """Print the ratios of reserved to billed amounts."""
    for number, (rules, price) in enumerate(PRICES.items()):
        with tempfile.TemporaryDirectory() as folder:
            first, *later = asyncio.run(play(Path(folder) / "ledger.sqlite", price))
        if not number:
            tokens = [step.held_prompt / step.usage.input for step in later]
            sys.stdout.write(
                f"first step: {first.held_prompt / first.usage.input:.2f} (prompt tokens)\n"
            )
            sys.stdout.write(
                f"prompt tokens: median {statistics.median(tokens):.2f}, most {max(tokens):.2f}\n"
            )
        ratios = [step.held_nano / step.spent_nano for step in later]
        sys.stdout.write(
            f"dollars, {rules}: median {statistics.median(ratios):.2f}, most {max(ratios):.2f}\n"
        )


if __name__ == "__main__":
    main()
