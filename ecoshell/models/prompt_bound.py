"""Upper bounds on the tokens of a prompt, which the budget gate reserves, whatever tokenizer the provider uses."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ecoshell.images import image_bound
from ecoshell.messages import Call, ProviderState, ToolSchema
from ecoshell.models.interface import Request

PER_MESSAGE = 16
PER_PROMPT = 256
PER_TOOL_ARRAY = 1024
PER_TOOL = 64
PER_TOOL_SEARCH = 512  # the provider's own search tool and its instructions
_ESCAPED = "<>&'"
_ESCAPE_GROWTH = len("\\u003c") - 1


def estimate(text: str) -> int:
    """Estimated tokens of a text: a quarter of its bytes, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def text_bound(text: str) -> int:
    """The maximum tokens of a plain text."""
    if text.isascii():
        return len(text)
    forms = (text, unicodedata.normalize("NFKC", text))
    return max(len(form.encode("utf-8", "replace")) for form in forms)


def json_bound(value: Mapping[str, Any]) -> int:
    """The maximum tokens of a JSON value, for any chat template."""
    printed = json.dumps(value, indent=4)
    return len(printed) + _ESCAPE_GROWTH * sum(printed.count(sign) for sign in _ESCAPED)


def request_bound(request: Request, *, native_tools: bool, model: str = "") -> int:
    """The maximum tokens of a request's prompt, with native tool calls or as plain text.

    It holds for any tokenizer:

    - Text: its length in UTF-8 bytes. A byte-level BPE (OpenAI, Llama 3, Qwen, Claude) makes at most one token of a
      byte, and so do SentencePiece models with byte fallback (Llama 2, Mistral, Gemma). Some tokenizers apply NFKC
      first, which lengthens a few characters; the longer form counts.
    - JSON (tool schemas, arguments): chat templates may indent it and escape `<`, `>`, `&`, `'` and all non-ASCII
      characters as `\\uXXXX`; the length of that form counts.
    - Opaque fields of replies (thinking, signatures, reasoning items): the bytes of their texts.
    - Deferred tools: in full, because the provider may load them during the call, and once more for each search in the
      history that loaded them.
    - Images: `image_bound` of the named model.
    - `PER_MESSAGE` for the role and its delimiters: OpenAI counts 3 or 4 tokens, ChatML and Llama 3 templates 5 to
      7.
    - `PER_PROMPT` for the start and end of a prompt, and for system texts that templates add (dates, names).
    - `PER_TOOL_ARRAY` for a native tool array: Anthropic adds a system prompt of 264 to about 800 tokens, depending on
      model and tool choice; Llama and Qwen templates add 100 to 200. `PER_TOOL` for the frame of each schema.
    """
    messages, tools = request.messages, request.tools
    if not native_tools or not tools:
        from ecoshell.models.protocol import as_plain_messages

        messages, tools = as_plain_messages(request), ()
    bound = PER_PROMPT
    for message in messages:
        bound += PER_MESSAGE + text_bound(message.text)
        bound += sum(image_bound(image, model) for image in message.images)
        for call in message.calls:
            bound += PER_MESSAGE + text_bound(call.name) + text_bound(shown_id(call))
            if message.speaker == "assistant":  # a result only names its call
                bound += json_bound(call.arguments)
        bound += 0 if message.state is None else state_bound(message.state, tools)
    if tools:
        bound += PER_TOOL_ARRAY + sum(map(_tool_bound, tools))
        bound += PER_TOOL_SEARCH if any(tool.deferred for tool in tools) else 0
    return bound


def _tool_bound(tool: ToolSchema) -> int:
    return PER_TOOL + json_bound(tool.as_function())


def shown_id(call: Call) -> str:
    """The call's ID without Gemini's thought signature, which litellm appends and removes."""
    return call.id.partition("__thought__")[0]


def state_bound(state: ProviderState, tools: Sequence[ToolSchema] = ()) -> int:
    """The maximum tokens of a reply's opaque fields (thinking, signatures, reasoning items) when sent back.

    Tool references in them count as the schemas that the provider puts in their place.
    """
    from ecoshell.models.protocol import safe_name
    from ecoshell.models.tool_search import is_server_call, loaded_names, search_items

    message = state.message
    calls: Any = message.get("tool_calls") or ()
    fields = [message[name] for name in message if name not in ("content", "tool_calls")]
    fields += [call.get("provider_specific_fields") for call in calls]
    functions = [call["function"] for call in calls if is_server_call(call)]
    bound = sum(map(_leaves_bound, fields))
    bound += sum(PER_MESSAGE + json_bound(function) for function in functions)
    if items := search_items(state):
        return bound + sum(PER_TOOL + json_bound(item) for item in items)
    if loaded := [*loaded_names(message)]:
        schemas = {safe_name(tool.name): _tool_bound(tool) for tool in tools}
        bound += sum(schemas.get(name, 0) for name in loaded)
    return bound


def _leaves_bound(value: Any) -> int:
    """The sum of the bounds of all texts in a JSON value."""
    if isinstance(value, str):
        return text_bound(value)
    if isinstance(value, Mapping):
        return sum(map(_leaves_bound, cast("Mapping[str, Any]", value).values()))
    return sum(map(_leaves_bound, cast("list[Any]", value))) if isinstance(value, list) else 0
