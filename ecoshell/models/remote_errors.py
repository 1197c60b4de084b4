"""Errors for the failures that the helper process reports (see `failures`), without keys."""

from collections.abc import Mapping
from typing import Any

from ecoshell.errors import (
    ContextExceeded,
    ModelBroken,
    ModelError,
    ModelMissing,
    ModelUnavailable,
    ModelUnreachable,
)
from ecoshell.models.context_limits import stated_limit
from ecoshell.models.keys import Keys
from ecoshell.models.servers import is_loopback, program_of

_STATUS_MEANINGS = {
    402: " (payment required)",
    429: " (too many requests)",
    500: " (internal error)",
    502: " (bad gateway)",
    503: " (unavailable)",
    504: " (gateway timeout)",
    529: " (overloaded)",
}
_MAX_MESSAGE_CHARS = 600  # maximum that is shown; some providers send whole web pages
_BUSY_FIX = "Ask again later, choose another model with /model, or name one in [models] fallback."
_CONTEXT_FIX = (
    "Start a new session, give fewer or shorter texts, or choose a model with a larger context."
)


def shown_message(record: Mapping[str, Any], keys: Keys) -> str:
    """The provider's message without keys, shortened, as a sentence."""
    message = keys.redact(record["message"]).rstrip()
    if len(message) > _MAX_MESSAGE_CHARS:
        return f"{message[: _MAX_MESSAGE_CHARS - 1]}…"
    return message if message.endswith((".", "!", "?", "…")) else f"{message}."


def model_error(record: Mapping[str, Any], name: str, provider: str, keys: Keys) -> ModelError:
    """The error for any kind of failure except an unknown model."""
    message, billed = shown_message(record, keys), bool(record["billed"])
    match record["kind"]:
        case "key":
            has_key = bool(keys.variables(provider))
            fix = keys.how_to_give(provider) if has_key else "Check how you sign in to it."
            text = f"{name} refused the API key: {message}"
            return ModelMissing(text, fix=fix, billed=billed, key=True)
        case "unreachable":
            return _unreachable(record["address"], name, provider, billed=billed)
        case "busy":
            status: int | None = record["status"]
            failure = f"failed with HTTP {status}{_STATUS_MEANINGS.get(status or 0, '')}"
            return ModelUnavailable(
                f"{name} {failure if status else 'did not answer'}: {message}",
                fix=_BUSY_FIX,
                billed=billed,
                transient=record["transient"],
                retry_after=record.get("retry_after"),
            )
        case "context":
            text = f"The request exceeds the context of {name}: {message}"
            limit = stated_limit(record["message"])
            return ContextExceeded(text, limit=limit, fix=_CONTEXT_FIX, billed=billed)
        case "request":
            text, fix = f"{name} refuses the request: {message}", "Choose another model."
            return ModelBroken(text, fix=fix, billed=billed)
        case _:
            text = f"{name} gave an answer that cannot be used: {message}"
            return ModelBroken(text, fix="Ask again.", billed=billed)


def _unreachable(address: str, name: str, provider: str, *, billed: bool) -> ModelUnreachable:
    """The error for a local server that is not running, or for a machine without a network."""
    if not is_loopback(address.rpartition(":")[0].strip("[]")):
        text = f"{name} cannot be reached at {address}."
        fix = "Is this machine online? Try again, or choose a model on it with /model."
        return ModelUnreachable(text, fix=fix, billed=billed)
    program, command = program_of(provider)
    text = f"{program or f'The server of {name}'} does not answer on {address}."
    start = f"Start it with {command}" if command else "Start it"
    return ModelUnreachable(
        text, fix=f"{start}, or choose another model with /model.", billed=billed
    )
