"""Anthropic's Messages API."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ecoshell.messages import Usage
from ecoshell_gateway.bodies import Body, entries, flag, mapping, whole_number
from ecoshell_gateway.errors import Kind, Refused, unbounded
from ecoshell_gateway.prompts import PromptParts
from ecoshell_gateway.protocols.format import (
    Provider,
    Report,
    RequestFacts,
    check_absent,
    check_tier,
    check_tools,
    items_of,
    model_of,
    section,
)

_UNBOUNDED = {
    "mcp_servers": "MCP servers called by the provider",
    "container": "A container of the provider",
}
_CLIENT_TOOLS = ("bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_")
_LIMIT = "max_tokens"
_COUNTED_APART = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "metadata", "thinking"}
)
_INPUT_NAMES = {
    "input_tokens": "fresh",
    "cache_read_input_tokens": "cached",
    "cache_creation_input_tokens": "cache_write",
    "output_tokens": "output",
}
_ERRORS: Mapping[Kind, str] = {
    "cap": "billing_error",
    "invalid": "invalid_request_error",
    "auth": "authentication_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "rate": "rate_limit_error",
    "upstream": "api_error",
    "timeout": "timeout_error",
    "store": "api_error",
}


class Messages:
    """`POST /v1/messages`."""

    provider: Provider = "anthropic"

    def read(self, body: Body) -> RequestFacts:
        """Read a request."""
        check_absent(body, _UNBOUNDED)
        check_tier(body)
        if body.fields.get("speed") not in (None, "standard"):
            raise unbounded("The fast mode")
        if body.fields.get("inference_geo") not in (None, "global", "not_available"):
            raise unbounded("An inference region")
        edits: list[Any] = mapping(body, "context_management").get("edits") or []
        fields = [cast("dict[str, Any]", edit) for edit in edits if isinstance(edit, dict)]
        if any(str(edit.get("type", "")).startswith("compact") for edit in fields):
            raise unbounded("Compaction by the provider")
        tools = entries(body, "tools")
        check_tools(tools, ("function", "custom"), _CLIENT_TOOLS)
        model = model_of(body)
        prompt = PromptParts(model)
        prompt.add_system(items_of(body, "system"))
        prompt.add_messages(items_of(body, "messages"))
        prompt.add_tools(tools, body.fields.get("tool_choice"))
        for name, value in body.fields.items():
            if name not in _COUNTED_APART:
                prompt.add_other(name, value)
        limit = whole_number(body, _LIMIT)
        reasoning = mapping(body, "thinking").get("budget_tokens")
        return RequestFacts(
            model,
            prompt,
            limit_fields=(_LIMIT,),
            max_tokens=limit,
            streams=flag(body, "stream"),
            reasoning_tokens=reasoning
            if type(reasoning) is int and 0 < reasoning < (limit or 0)
            else 0,
            has_cache_marks='"cache_control"' in body.text,
            has_hour_cache='"1h"' in body.text,
        )

    def take_reply(self, reply: Mapping[str, Any], report: Report) -> None:
        """Read the usage of a reply."""
        _add_usage(section(reply, "usage"), report)
        report.is_complete = True

    def take_event(self, event: Mapping[str, Any], report: Report) -> bool:
        """Read the usage of an event: the prompt's comes first, the output's with the end of the message."""
        kind = event.get("type")
        if kind == "message_start":
            _add_usage(section(section(event, "message"), "usage"), report)
        elif kind == "message_delta":
            _add_usage(section(event, "usage"), report)
            report.is_complete = "output_tokens" in section(event, "usage")
        return False

    def error(self, refusal: Refused) -> dict[str, Any]:
        """Return the body of an error."""
        return {
            "type": "error",
            "error": {"type": _ERRORS[refusal.kind], "message": refusal.message},
        }


def _add_usage(usage: Mapping[str, Any], report: Report) -> None:
    report.add(usage, _INPUT_NAMES)
    details = section(usage, "output_tokens_details")
    report.add(details, {"reasoning_tokens": "reasoning", "thinking_tokens": "reasoning"})
    counts = report.fields
    if "fresh" in counts and "output" in counts:
        parts = {name: counts.get(name, 0) for name in ("cached", "cache_write", "reasoning")}
        total = counts["fresh"] + parts["cached"] + parts["cache_write"]
        report.usage = replace(Usage(total, counts["output"]), **parts)
