"""Reasoning effort: what a level becomes in litellm's terms, for the provider, the model and the room there is."""

from itertools import takewhile
from typing import Any

from ecoshell.budget import ModelFacts
from ecoshell.models import Request
from ecoshell.options import Effort

_CLAUDE_BUDGETS = {"max": 16_384, "high": 4_096, "medium": 2_048, "low": 1_024}
"""Reasoning tokens that litellm asks of Claude before 4.6; they must stay below `max_tokens`."""
_MIN_ANSWER = 256  # tokens left for what follows the reasoning


def add_effort(body: dict[str, Any], request: Request, name: str, facts: ModelFacts | None) -> None:
    """Put the request's effort into its body and remove what providers refuse while a model reasons.

    Anthropic and DeepSeek refuse a forced tool choice while a model reasons, and a temperature.
    """
    claude = "claude" in name
    if claude and facts is not None and not facts.adaptive and _lacks_thinking(body["messages"]):
        return  # Anthropic refuses reasoning that begins amid a turn
    level = level_of(request, name, facts)
    if level is None:
        return
    body["reasoning_effort"] = level
    if request.effort != "off":
        body.pop("temperature", None)
        if body.get("tool_choice") == "required":
            body["tool_choice"] = "auto"


def reasoning_tokens(effort: Effort) -> int:
    """Output tokens that an effort may take before the answer."""
    return _CLAUDE_BUDGETS.get(effort, 0)


def level_of(request: Request, name: str, facts: ModelFacts | None) -> str | None:
    """The effort in litellm's terms; None sends none."""
    effort, levels = request.effort, facts.efforts if facts else frozenset[str]()
    if effort == "auto" or (facts is not None and facts.reasons is False):
        return None
    claude, gemini = "claude" in name, "gemini" in name
    if effort == "off":
        if gemini:
            return "minimal" if "2.5-pro" in name else "none"  # which cannot do without
        if claude or facts is None or "none" in levels:
            return "none"
        if facts.provider in ("openai", "azure"):
            return "minimal" if "minimal" in levels else "low"
        return "none"
    if claude and facts is not None and not facts.adaptive:
        lower = list(_CLAUDE_BUDGETS)[list(_CLAUDE_BUDGETS).index(effort) :]
        room = request.max_tokens - _MIN_ANSWER
        return next((level for level in lower if _CLAUDE_BUDGETS[level] <= room), None)
    if effort == "max":
        return next((level for level in ("max", "xhigh") if level in levels and not gemini), "high")
    return effort


def _lacks_thinking(messages: list[dict[str, Any]]) -> bool:
    """Whether the turn that goes on has tool calls whose reply came without thinking blocks.

    A user message after tool results does not begin a turn, because Anthropic receives both as one message.
    """
    unanswered = takewhile(lambda message: message["role"] != "assistant", reversed(messages))
    roles = [message["role"] for message in unanswered]
    return "tool" in roles and not messages[-len(roles) - 1].get("thinking_blocks")
