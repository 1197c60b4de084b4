"""What went wrong with a remote call, in the helper process's terms: kind, message, and whether it may be billed.

Kinds: `key` (missing or refused), `unknown` (no such model or provider), `context` (the prompt is too long), `busy`
(limits, outages, time-outs), `unreachable` (nobody could be connected to), `request` (what was asked is refused),
`broken` (the answer cannot be used).
"""

import re
from collections.abc import Iterator
from typing import Any

from ecoshell.models.remote_traffic import BadBody, Traffic

_LONGEST_MESSAGE = 20_000
"""Far more than anyone is shown: the shell shortens it, after it took the keys out, which half a key would escape."""
_WRAPPINGS = re.compile(r"^(?:litellm\.\w+:\s*|\w*Error:\s*|\w+Exception - )+")


class CutStream(Exception):
    """The stream ended before the answer did."""


class BadStream(Exception):
    """What came is no usable stream."""


class Overdue(Exception):
    """The answer had not ended by its deadline."""


class NoOutputLimit(Exception):
    """The provider cannot be told how much it may write."""


def describe(error: Exception, *, began: bool, traffic: Traffic) -> dict[str, Any]:
    """The failure as it goes over the wire; `began` says whether the provider had started to answer."""
    chain = list(_chain(error))
    status = _http_status(chain)
    told = next((link for link in chain if isinstance(link, BadBody)), error)
    return {
        "kind": "unreachable" if traffic.unreached else _kind(chain, status),
        "address": traffic.unreached,
        "message": _message(told),
        "status": status,
        "billed": began or traffic.unrefused > 0 or not (traffic.sent or _never_sent(chain)),
    }


def out_of_memory(error: Exception) -> bool:
    """Whether it comes of the limit on this process's memory, after which nothing in it can be relied on."""
    return _has(list(_chain(error)), MemoryError)


def _kind(chain: list[BaseException], status: int | None) -> str:
    import httpx
    import openai
    from litellm.exceptions import AuthenticationError, BadRequestError, ContextWindowExceededError, Timeout

    first = chain[0]
    said_in_stream = any(type(link) is openai.APIError for link in chain)
    ruled = (
        (_has(chain, BadBody), "broken"),
        (isinstance(first, ContextWindowExceededError), "context"),
        (status is not None, _kind_of_status(status or 0)),
        ("LLM Provider NOT provided" in str(first), "unknown"),
        (_has(chain, AuthenticationError), "key"),
        (_has(chain, CutStream, Overdue, httpx.TransportError, OSError, openai.APIConnectionError, Timeout), "busy"),
        (said_in_stream, "busy"),
        (isinstance(first, (NoOutputLimit, BadRequestError)), "request"),
    )
    return next((kind for holds, kind in ruled if holds), "broken")


def _kind_of_status(status: int) -> str:
    if status in {401, 403}:
        return "key"
    if status == 404:
        return "unknown"
    if status == 413:
        return "context"
    return "busy" if status in {402, 408, 409, 425, 429} or status >= 500 else "request"


def _never_sent(chain: list[BaseException]) -> bool:
    """Whether a provider that does not use httpx cannot have charged anything: litellm itself refused to send."""
    from litellm.exceptions import AuthenticationError, BadRequestError

    return _has(chain, NoOutputLimit) or isinstance(chain[0], (BadRequestError, AuthenticationError))


def _http_status(chain: list[BaseException]) -> int | None:
    """The status the provider answered with; litellm makes one up for failures without, so only httpx's counts."""
    import httpx

    return next((link.response.status_code for link in chain if isinstance(link, httpx.HTTPStatusError)), None)


def _has(chain: list[BaseException], *classes: type[BaseException]) -> bool:
    return any(isinstance(link, classes) for link in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it; litellm wraps several times."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _message(error: BaseException) -> str:
    text = str(error).partition("Original exception:")[0].partition("Traceback (most recent")[0]
    return _WRAPPINGS.sub("", text).strip()[:_LONGEST_MESSAGE] or type(error).__name__
