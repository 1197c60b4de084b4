"""Deferred tools: the provider keeps their schemas out of the prompt until its own search loads them.

Anthropic runs the search as a server tool call (`srvtoolu_…`) with a result of tool references; OpenAI's Responses API
returns search items. Both stay in the reply's provider state. A loaded tool stays deferred in the tool array, so that
the array never changes and the prompt cache stays valid.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ecoshell.messages import ProviderState

Fields = Mapping[str, Any]

_SERVER_CALL = "srvtoolu_"
_CLAUDE_SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
_OPENAI_SEARCH: Fields = {"type": "tool_search"}
_CLAUDE = re.compile(
    r"claude-(?:(?:sonnet|opus)-4-[5-9]|(?:sonnet|opus|haiku|fable|mythos)-[5-9])(?!\d)"
)
_GPT = re.compile(r"gpt-5\.(?:[4-9]|\d\d)(?!\d)(?!.*(?:nano|chat|codex|cyber))")


def search_tool(
    provider: str, name: str, *, own_server: bool, wanted: bool | None = None
) -> Fields | None:
    """The search tool of a model whose provider can load deferred tools; None for every other model.

    `wanted` is the user's setting. Without it, only known models at their provider's own address qualify.
    """
    if wanted is False or (wanted is None and own_server):
        return None
    bare = name.rpartition("/")[2]
    if provider == "anthropic" and (wanted or _CLAUDE.match(bare)):
        return _CLAUDE_SEARCH
    has_responses = "responses/" in name or not own_server
    if provider == "openai" and has_responses and (wanted or _GPT.match(bare)):
        return _OPENAI_SEARCH
    return None


def is_server_call(call: Fields) -> bool:
    """Whether the provider made and answered this call itself."""
    return str(call.get("id") or "").startswith(_SERVER_CALL)


def client_calls(message: Fields) -> list[Any]:
    """The tool calls of a provider's message that ecoshell runs."""
    return [call for call in message.get("tool_calls") or () if not is_server_call(call)]


def loaded_names(message: Fields) -> Iterator[str]:
    """Names of the tools loaded by the searches in a provider's message, repeated for each search."""
    for result in _results(message):
        yield from _loaded_by(result)
    for item in _items(message):
        yield from _names(item.get("tools"))


def with_known_tools(message: Fields, names: frozenset[str]) -> dict[str, Any]:
    """A provider's message without searches that loaded tools outside `names`, because Anthropic rejects those."""
    results = _results(message)
    known = [result for result in results if names.issuperset(_loaded_by(result))]
    allowed = known if names else []
    answered = {result.get("tool_use_id") for result in allowed}
    calls: Sequence[Fields] = message.get("tool_calls") or ()
    remaining_calls = [call for call in calls if not is_server_call(call) or call["id"] in answered]
    if len(allowed) == len(results) and len(remaining_calls) == len(calls):
        return dict(message)
    fields = {**message["provider_specific_fields"], "tool_results": allowed}
    fields = {key: value for key, value in fields.items() if value or key != "tool_results"}
    filtered = {**message, "tool_calls": remaining_calls, "provider_specific_fields": fields}
    return {key: value for key, value in filtered.items() if value or key == "content"}


def search_items(state: ProviderState) -> Sequence[Fields]:
    """OpenAI's search items, which contain the loaded schemas."""
    return _items(state.message)


def _fields(message: Fields) -> Fields:
    return message.get("provider_specific_fields") or {}


def _results(message: Fields) -> Sequence[Fields]:
    return _fields(message).get("tool_results") or ()


def _items(message: Fields) -> Sequence[Fields]:
    return _fields(message).get("tool_search_items") or ()


def _loaded_by(result: Fields) -> Iterator[str]:
    """Names of the tools that one search result of Anthropic refers to."""
    content = result.get("content")
    if isinstance(content, Mapping):
        for reference in cast("Fields", content).get("tool_references") or ():
            yield str(reference.get("tool_name"))


def _names(tools: Any) -> Iterator[str]:
    """Names of functions, also of those inside namespaces."""
    for tool in cast("Sequence[Fields]", tools or ()):
        if tool.get("type") == "namespace":
            yield from _names(tool.get("tools"))
        else:
            yield str(tool.get("name"))
