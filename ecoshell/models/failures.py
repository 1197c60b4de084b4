"""Describes failures of litellm and its providers as records.

A record is `{kind, address, message, status, retry_after, transient, billed}`. Kinds: `key` (missing or refused),
`unknown` (no such model or provider), `context` (the prompt is too long), `busy` (limits, outages, time-outs),
`unreachable` (no connection to `address`), `request` (the request is rejected), `broken` (the answer is unusable).
"""

import re
from collections.abc import Iterator
from typing import Any

from ecoshell.models.traffic import BadBody, Traffic

_MAX_MESSAGE_CHARS = 20_000  # half of a key would not be recognised, so it is cut later
_WRAPPINGS = re.compile(r"^(?:litellm\.\w+:\s*|\w*Error:\s*|\w+Exception - )+")
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"', re.ASCII)  # Gemini's wait
_OUT_OF_CREDIT = re.compile(
    r"insufficient_quota|credit balance|exceeded your current quota|billing", re.IGNORECASE
)
"""Messages of providers, also with status 429, for which waiting does not help."""
_TRANSIENT = frozenset({408, 409, 425, 429})
_LASTING = frozenset({501, 505})
_STATUS_KINDS = {401: "key", 403: "key", 404: "unknown", 413: "context"}
_BUSY = frozenset({402, *_TRANSIENT})


class Unfinished(Exception):
    """The stream ended early, or the answer missed its deadline."""


class NoOutputLimit(Exception):
    """The provider has no parameter for an output limit."""


def describe(error: Exception, *, began: bool, traffic: Traffic) -> dict[str, Any]:
    """The failure as a record; `began` says whether the provider had started to answer."""
    import httpx
    from litellm.exceptions import AuthenticationError, BadRequestError

    chain = [*causes(error)]
    # litellm invents a status for failures without one, so only httpx's counts
    responses = (link.response for link in chain if isinstance(link, httpx.HTTPStatusError))
    status = next((response.status_code for response in responses), None)
    cause = next((link for link in chain if isinstance(link, BadBody)), error)
    message = str(cause).partition("Original exception:")[0].partition("Traceback (most recent")[0]
    # without httpx traffic, nothing can be billed if litellm itself rejected the request
    unsent = _has(chain, NoOutputLimit) or isinstance(error, (BadRequestError, AuthenticationError))
    wait, delay = traffic.retry_after, _RETRY_DELAY.search(str(cause))
    may_pass = status is None or (
        (status in _TRANSIENT or status >= 500) and status not in _LASTING
    )
    out_of_credit = status == 429 and _OUT_OF_CREDIT.search(str(cause)) is not None
    return {
        "kind": "unreachable" if traffic.unreached else _kind(chain, status),
        "address": traffic.unreached,
        "message": _WRAPPINGS.sub("", message).strip()[:_MAX_MESSAGE_CHARS] or type(cause).__name__,
        "status": status,
        "retry_after": float(delay[1]) if delay and wait is None else wait,
        "transient": may_pass and not out_of_credit,
        "billed": began or traffic.unrefused > 0 or not (traffic.sent or unsent),
    }


def _kind(chain: list[BaseException], status: int | None) -> str:
    import httpx
    import openai
    from litellm import exceptions

    first = chain[0]
    is_stream_error = any(type(link) is openai.APIError for link in chain)
    interrupted = (httpx.TransportError, OSError, openai.APIConnectionError, exceptions.Timeout)
    if _has(chain, BadBody):
        return "broken"
    if isinstance(first, exceptions.ContextWindowExceededError):
        return "context"
    if status is not None:
        is_busy = status in _BUSY or status >= 500
        return "busy" if is_busy else _STATUS_KINDS.get(status, "request")
    if "LLM Provider NOT provided" in str(first):
        return "unknown"
    if _has(chain, exceptions.AuthenticationError):
        return "key"
    if is_stream_error or _has(chain, Unfinished, *interrupted):
        return "busy"
    if isinstance(first, exceptions.MidStreamFallbackError) and "ended before" in str(first):
        return "busy"
    return "request" if _has([first], NoOutputLimit, exceptions.BadRequestError) else "broken"


def _has(chain: list[BaseException], *classes: type[BaseException]) -> bool:
    return any(isinstance(link, classes) for link in chain)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; litellm wraps errors several times."""
    ids: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in ids:
        ids.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
