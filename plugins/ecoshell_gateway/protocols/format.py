"""What the gateway has to know about a wire format, and the parts that formats share."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, cast

from ecoshell.messages import Usage
from ecoshell_gateway.bodies import Body
from ecoshell_gateway.errors import Kind, Refused, invalid, unbounded
from ecoshell_gateway.prompts import PromptParts

Provider = Literal["openai", "anthropic"]
MAX_COUNT = 100_000_000
"""Usage reports with larger counts are discarded."""
ORDINARY_TIERS = frozenset({"auto", "default", "standard", "standard_only", "flex"})
"""Service tiers whose price is at most the listed one."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a request asks for, as far as its price depends on it."""

    model: str
    prompt: PromptParts
    limit_fields: tuple[str, ...]
    """The fields to set when the output limit changes."""
    max_tokens: int | None
    """Output limit of one choice; None without one."""
    streams: bool
    choices: int = 1
    reasoning_tokens: int = 0
    """Tokens that the output limit must exceed, or the provider rejects the request."""
    has_cache_marks: bool = False
    has_hour_cache: bool = False
    adds_usage: bool = False
    """Whether the gateway has to ask for the usage of the stream."""


@dataclass(slots=True)
class Report:
    """The usage that a reply has reported so far; several reports are cumulative, so the largest counts."""

    usage: Usage | None = None
    is_valid: bool = True
    """Whether all counts were plausible."""
    is_complete: bool = False
    """Whether the reply ended, so that no further usage follows."""
    fields: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, counts: Mapping[str, Any], names: Mapping[str, str]) -> None:
        """Add the counts of a report; `names` maps its fields to those of `fields`."""
        for name, ours in names.items():
            count = counts.get(name)
            if count is None:
                continue
            if type(count) is not int or not 0 <= count <= MAX_COUNT:
                self.is_valid = False
            else:
                self.fields[ours] = max(count, self.fields.get(ours, 0))

    def settled_usage(self) -> Usage | None:
        """Return the usage of a complete reply; None if it is unknown or implausible."""
        usage = self.usage
        if usage is None or not self.is_valid or not self.is_complete:
            return None
        if usage.cached + usage.cache_write > usage.input or usage.reasoning > usage.output:
            return None
        return usage if usage.input > 0 and usage.output > 0 and usage.total <= MAX_COUNT else None


class Format(Protocol):
    """One wire format."""

    provider: Provider

    def read(self, body: Body) -> RequestFacts:
        """Read a request; raises Refused for options whose price has no bound."""
        ...

    def take_reply(self, reply: Mapping[str, Any], report: Report) -> None:
        """Read the usage of a reply without streaming."""
        ...

    def take_event(self, event: Mapping[str, Any], report: Report) -> bool:
        """Read the usage of a stream's event; returns whether the event contains nothing else."""
        ...

    def error(self, refusal: Refused) -> dict[str, Any]:
        """Return the body of an error."""
        ...


def model_of(body: Body) -> str:
    """Return the model's name; raises Refused."""
    model = body.fields.get("model")
    if (
        not isinstance(model, str)
        or not 0 < len(model) <= 200
        or not model.isascii()
        or not model.isprintable()
    ):
        raise invalid("model must be a model's name.")
    return model


def items_of(body: Body, name: str) -> list[Any]:
    """Return a list of a body, or its text as the only item; empty without it."""
    value: Any = body.fields.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        return cast("list[Any]", value)
    if isinstance(value, str):
        return [{"content": value}]
    raise invalid(f"{name} must be a text or a list.")


def section(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object inside a reply; empty for anything else."""
    value: Any = fields.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def check_tools(
    tools: list[dict[str, Any]], kinds: Collection[str], prefixes: tuple[str, ...] = ()
) -> None:
    """Refuse tools that the provider runs, whose uses and results are billed."""
    for tool in tools:
        kind = tool.get("type") or "function"
        if not isinstance(kind, str) or (
            kind not in kinds and not (prefixes and kind.startswith(prefixes))
        ):
            raise unbounded(f"The provider's tool {str(kind)[:60]!r}")


def check_absent(body: Body, fields: Mapping[str, str]) -> None:
    """Refuse fields with a value; maps each to its description."""
    for name, text in fields.items():
        if body.fields.get(name):
            raise unbounded(text)


def check_tier(body: Body) -> None:
    """Refuse service tiers that cost more than the listed price."""
    tier = body.fields.get("service_tier")
    if tier is not None and tier not in ORDINARY_TIERS:
        raise unbounded(f"The service tier {str(tier)[:40]!r}")


OPENAI_ERRORS: Mapping[Kind, tuple[str, str | None]] = {
    "cap": ("insufficient_quota", "ecoshell_cap"),
    "invalid": ("invalid_request_error", None),
    "auth": ("invalid_request_error", "invalid_api_key"),
    "not_found": ("invalid_request_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "rate": ("rate_limit_error", "ecoshell_rate"),
    "upstream": ("server_error", None),
    "timeout": ("invalid_request_error", "timeout"),
    "store": ("server_error", None),
}


def openai_error(refusal: Refused) -> dict[str, Any]:
    """Return an error in the form of OpenAI's."""
    kind, code = OPENAI_ERRORS[refusal.kind]
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": code}}


_OPENAI_NAMES = {
    "prompt_tokens": "input",
    "input_tokens": "input",
    "completion_tokens": "output",
    "output_tokens": "output",
    "total_tokens": "total",
}


def add_openai_usage(usage: Mapping[str, Any], report: Report) -> None:
    """Add a usage of chat completions or Responses; some servers count reasoning only in the total."""
    report.add(usage, _OPENAI_NAMES)
    for details in ("prompt_tokens_details", "input_tokens_details"):
        report.add(
            section(usage, details),
            {"cached_tokens": "cached", "cache_write_tokens": "cache_write"},
        )
    for details in ("completion_tokens_details", "output_tokens_details"):
        report.add(section(usage, details), {"reasoning_tokens": "reasoning"})
    counts = report.fields
    if "input" in counts and "output" in counts:
        output = max(counts["output"], counts.get("total", 0) - counts["input"])
        details = {name: counts.get(name, 0) for name in ("cached", "cache_write", "reasoning")}
        report.usage = replace(Usage(counts["input"], output), **details)
