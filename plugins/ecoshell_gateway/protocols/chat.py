"""OpenAI's chat completions, which many other providers speak, too."""

from collections.abc import Mapping
from typing import Any

from ecoshell_gateway.bodies import Body, entries, flag, mapping, whole_number
from ecoshell_gateway.errors import Refused, unbounded
from ecoshell_gateway.prompts import PromptParts
from ecoshell_gateway.protocols.format import (
    Provider,
    Report,
    RequestFacts,
    add_openai_usage,
    check_absent,
    check_tier,
    check_tools,
    items_of,
    model_of,
    openai_error,
    section,
)

_UNBOUNDED = {
    "audio": "Audio output",
    "web_search_options": "Web search by the provider",
    "prediction": "Predicted output",
    "models": "A list of fallback models",
    "plugins": "Plugins of the provider",
}
_MAX_CHOICES = 128
_LIMITS = ("max_completion_tokens", "max_tokens")
_COUNTED_APART = frozenset(
    {"model", "messages", "tools", "tool_choice", "functions", "stream_options", "metadata"}
)


class Chat:
    """`POST /v1/chat/completions`."""

    provider: Provider = "openai"

    def read(self, body: Body) -> RequestFacts:
        """Read a request."""
        check_absent(body, _UNBOUNDED)
        check_tier(body)
        modalities: Any = body.fields.get("modalities") or ["text"]
        if modalities != ["text"]:
            raise unbounded("Output other than text")
        tools = entries(body, "tools")
        check_tools(tools, ("function", "custom"))
        model = model_of(body)
        prompt = PromptParts(model)
        prompt.add_messages(items_of(body, "messages"))
        prompt.add_tools(tools, body.fields.get("tool_choice"))
        prompt.add_tools(entries(body, "functions"))
        for name, value in body.fields.items():
            if name not in _COUNTED_APART:
                prompt.add_other(name, value)
        streams = flag(body, "stream")
        limits = {
            name: limit for name in _LIMITS if (limit := whole_number(body, name)) is not None
        }
        return RequestFacts(
            model,
            prompt,
            limit_fields=tuple(limits) or _LIMITS[:1],
            max_tokens=max(limits.values(), default=None),
            streams=streams,
            choices=whole_number(body, "n", largest=_MAX_CHOICES) or 1,
            has_cache_marks='"cache_control"' in body.text,
            has_hour_cache='"1h"' in body.text,
            adds_usage=streams and mapping(body, "stream_options").get("include_usage") is not True,
        )

    def take_reply(self, reply: Mapping[str, Any], report: Report) -> None:
        """Read the usage of a reply."""
        add_openai_usage(section(reply, "usage"), report)
        report.is_complete = True

    def take_event(self, event: Mapping[str, Any], report: Report) -> bool:
        """Read the usage of a chunk."""
        usage = section(event, "usage") or section(section(event, "x_groq"), "usage")
        if not usage:
            return False
        add_openai_usage(usage, report)
        is_last = not event.get("choices")
        report.is_complete = report.is_complete or is_last
        return is_last

    def error(self, refusal: Refused) -> dict[str, Any]:
        """Return the body of an error."""
        return openai_error(refusal)
