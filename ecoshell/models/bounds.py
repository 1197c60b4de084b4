"""The most tokens a prompt can be, whatever tokenizer the provider uses: what the budget gate reserves.

- Text: its length in UTF-8 bytes. A byte-level BPE (OpenAI, Llama 3, Qwen, Claude) makes at most one token of a byte,
  and so do SentencePiece models with byte fallback (Llama 2, Mistral, Gemma). Some normalise first (NFKC), which
  lengthens a few characters: the longer of the two forms counts.
- JSON (tool documents, arguments): chat templates print it anew, indented, with `\\uXXXX` for what is not ASCII and for
  `<`, `>`, `&` and `'`; the length of that longest form counts.
- `PER_MESSAGE` for the role and its delimiters: OpenAI counts 3 or 4 tokens, ChatML and Llama 3 templates 5 to 7.
- `PER_PROMPT` for what opens and closes a prompt, and for system texts that templates add by themselves (dates, names).
- `PER_TOOL_ARRAY` for a native tool array: Anthropic adds a system prompt of 264 to about 800 tokens, as the model and
  the tool choice demand; Llama and Qwen templates add 100 to 200. `PER_TOOL` for the frame of each document.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.textcalls import as_plain_messages

PER_MESSAGE = 16
PER_PROMPT = 256
PER_TOOL_ARRAY = 1024
PER_TOOL = 64

_ESCAPED = "<>&'"
_ESCAPE_GROWTH = len("\\u003c") - 1


def text_bound(text: str) -> int:
    """The most tokens a plain text can be."""
    return len(text) if text.isascii() else max(_utf8(text), _utf8(unicodedata.normalize("NFKC", text)))


def json_bound(value: Mapping[str, Any]) -> int:
    """The most tokens a JSON value can be, however a template prints it."""
    printed = json.dumps(value, indent=4)
    return len(printed) + _ESCAPE_GROWTH * sum(printed.count(sign) for sign in _ESCAPED)


def request_bound(request: Request, *, native_tools: bool) -> int:
    """The most tokens the prompt of this request can be, with tool calls of the model's own or as plain text."""
    if native_tools and request.tools:
        return prompt_bound(request.messages, request.tools)
    return prompt_bound(as_plain_messages(request))


def prompt_bound(messages: Iterable[Message], native_tools: Iterable[ToolDocument] = ()) -> int:
    """The most tokens a prompt of these messages, with this native tool array, can be."""
    bound = PER_PROMPT + sum(_message_bound(message) for message in messages)
    documents = [json_bound(tool.as_function()) for tool in native_tools]
    if documents:
        bound += PER_TOOL_ARRAY + sum(documents) + PER_TOOL * len(documents)
    return bound


def _message_bound(message: Message) -> int:
    call = message.call
    in_call = 0 if call is None else PER_MESSAGE + text_bound(call.name) + json_bound(call.arguments)
    return PER_MESSAGE + text_bound(message.text) + in_call


def _utf8(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
