"""OpenAI's Responses API."""

from collections.abc import Mapping
from typing import Any

from ecoshell_gateway.bodies import Body, entries, flag, whole_number
from ecoshell_gateway.errors import Refused
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

_UNBOUNDED = {"background": "A response in the background"}
_STORED = ("previous_response_id", "conversation", "prompt")
"""Fields that refer to content that the provider stores."""
_CLIENT_TOOLS = frozenset(
    {"function", "custom", "local_shell", "apply_patch", "namespace", "tool_search"}
)
_LIMIT = "max_output_tokens"
_COUNTED_APART = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "metadata", "include", *_STORED}
)
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Responses:
    """`POST /v1/responses`."""

    provider: Provider = "openai"

    def read(self, body: Body) -> RequestFacts:
        """Read a request."""
        check_absent(body, _UNBOUNDED)
        check_tier(body)
        tools = entries(body, "tools")
        check_tools(tools, _CLIENT_TOOLS)
        model = model_of(body)
        prompt = PromptParts(model)
        prompt.add_system(items_of(body, "instructions"))
        prompt.add_messages(items_of(body, "input"))
        prompt.add_tools(tools, body.fields.get("tool_choice"))
        if any(body.fields.get(name) for name in _STORED):
            prompt.add_hidden()
        for name, value in body.fields.items():
            if name not in _COUNTED_APART:
                prompt.add_other(name, value)
        limit = whole_number(body, _LIMIT)
        return RequestFacts(model, prompt, (_LIMIT,), limit, flag(body, "stream"))

    def take_reply(self, reply: Mapping[str, Any], report: Report) -> None:
        """Read the usage of a reply."""
        add_openai_usage(section(reply, "usage"), report)
        report.is_complete = True

    def take_event(self, event: Mapping[str, Any], report: Report) -> bool:
        """Read the usage of an event, which the last one has."""
        if event.get("type") in _ENDS:
            add_openai_usage(section(section(event, "response"), "usage"), report)
            report.is_complete = True
        return False

    def error(self, refusal: Refused) -> dict[str, Any]:
        """Return the body of an error."""
        return openai_error(refusal)
