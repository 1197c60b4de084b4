"""Models with fixed replies from a JSON Lines file, for tests and demonstrations.

Each line is one reply: `{"text": "…", "call": {"name": "…", "arguments": {…}}, "usage": {"input": …, "cached": …,
"output": …}}`, with a text, a call or both, or with several `calls`. A missing usage is counted: a token is four bytes
of UTF-8, rounded up. A prompt's bound is its bytes plus eight for each message.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ecoshell.budget import ZERO_PRICE, Price
from ecoshell.errors import ModelBroken, ModelMissing, UsageError
from ecoshell.messages import Call, Usage
from ecoshell.models import Delta, PromptSize, Reply, Request, Traits
from ecoshell.models.protocol import schema_fault
from ecoshell.paths import is_special

_BYTES_PER_TOKEN = 4
_MESSAGE_TOKENS = 8
_CONTEXT = 128_000
_NAME = "Give script:FILE.jsonl."
_SHAPE = 'Each line is one JSON object such as {"text": "Hello."} or {"call": {"name": "read_file", "arguments": {}}}.'
_CALL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "arguments": {"type": "object"}},
    "required": ["name"],
    "additionalProperties": False,
}
_COUNT_NAMES = ("input", "cached", "cache_write", "output", "reasoning")
_LINE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "call": {**_CALL_SCHEMA, "type": ["object", "null"]},
        "calls": {"type": "array", "items": _CALL_SCHEMA},
        "usage": {
            "type": ["object", "null"],
            "properties": {name: {"type": "integer", "minimum": 0} for name in _COUNT_NAMES},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
    "anyOf": [{"required": ["text"]}, {"required": ["call"]}, {"required": ["calls"]}],
}


class ScriptModel:
    """A model whose replies are the lines of a file, in order. Without a price it is free.

    Raises ModelMissing for an unreadable file, and UsageError with file and line for an invalid script.
    """

    def __init__(self, file: Path, *, name: str = "", price: Price | None = None) -> None:
        if is_special(file):
            raise ModelMissing(f"The script {file} is not a regular file.", fix=_NAME)
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"{file} is not UTF-8 text: {error.reason}.", fix=_SHAPE) from error
        except OSError as error:
            text = f"The script {file} cannot be read: {error.strerror or error}."
            raise ModelMissing(text, fix=_NAME) from error
        lines = enumerate(text.split("\n"), 1)
        place = f"{file}, line"
        self._lines = [_reply(line, f"{place} {at}") for at, line in lines if line.strip()]
        self._next = 0
        self.traits = Traits(
            name=name or f"script:{file}",
            price=ZERO_PRICE if price is None else price,
            context=_CONTEXT,
            max_output=None,
            native_tools=True,
            local=True,
        )

    def count(self, text: str) -> int:
        """Tokens of a text, from its bytes."""
        return -(-_bytes(text) // _BYTES_PER_TOKEN)

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt, from the bytes of its messages and tools."""
        pieces = [message.text for message in request.messages]
        made = (message.calls for message in request.messages if message.speaker == "assistant")
        pieces += [call.signature() for calls in made for call in calls]
        pieces += [tool.entry for tool in request.tools]
        total = _bytes("".join(pieces))
        framing = _MESSAGE_TOKENS * (len(request.messages) + len(request.tools))
        return PromptSize(count=-(-total // _BYTES_PER_TOKEN), bound=total + framing, exact=False)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the next line word by word, cut at `max_tokens`."""
        if self._next == len(self._lines):
            text = f"{self.traits.name} has only {len(self._lines)} replies"
            text, fix = f"{text}, and another one was requested.", "Add a line to the script."
            raise ModelBroken(text, fix=fix, billed=False)
        line, self._next = self._lines[self._next], self._next + 1
        prompt = self.size(request).count
        words, size = list[str](), 0  # incremental, so that a long line is counted once
        for word in re.findall(r"[^ ]* |[^ ]+", line.text):
            size += _bytes(word)
            output = -(-size // _BYTES_PER_TOKEN)
            if output > request.max_tokens:
                break
            words.append(word)
            yield Delta(word, Usage(input=prompt, output=output))
            await asyncio.sleep(0)  # allows cancellation
        text = "".join(words)
        cut = text != line.text
        calls = "".join(call.signature() for call in line.calls)
        usage = line.usage or Usage(input=prompt, output=self.count(text + calls))
        output = min(usage.output, request.max_tokens)  # no model exceeds the limit
        usage = replace(usage, output=output, reasoning=min(usage.reasoning, output))
        yield Reply(text, () if cut else line.calls, usage, cut=cut, finish="length" if cut else "")

    async def aclose(self) -> None:
        """Do nothing, because nothing is open."""


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _reply(text: str, where: str) -> Reply:
    """Parse a line as a reply; raises UsageError with the line's position."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON ({error}).", fix=_SHAPE) from error
    if fault := schema_fault(line, _LINE_SCHEMA):
        raise UsageError(f"{where} is not a reply: {fault}.", fix=_SHAPE)
    calls = line.get("calls") or filter(None, [line.get("call")])
    return Reply(
        line.get("text", ""),
        tuple(Call(call["name"], call.get("arguments", {})) for call in calls),
        Usage(**line["usage"]) if line.get("usage") is not None else None,
    )
