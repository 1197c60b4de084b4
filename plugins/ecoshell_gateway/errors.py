"""The gateway's answer to a request that it does not forward."""

from typing import Literal

Kind = Literal[
    "cap", "invalid", "auth", "not_found", "too_large", "rate", "upstream", "timeout", "store"
]
STATUS: dict[Kind, int] = {
    "cap": 402,
    "invalid": 400,
    "auth": 401,
    "not_found": 404,
    "too_large": 413,
    "rate": 429,
    "upstream": 502,
    "timeout": 408,
    "store": 503,
}


class Refused(Exception):
    """A request that is answered with an error; `kind` determines the HTTP status."""

    def __init__(self, kind: Kind, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = f"ecoshell: {message}"
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; without it, a header asks clients not to retry."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.kind]


def unbounded(option: str) -> Refused:
    """Return the refusal of an option whose price has no upper bound before the call."""
    return Refused(
        "cap", f"{option} cannot be used under a cap, because its price is unknown before the call."
    )


def invalid(message: str) -> Refused:
    """Return the refusal of a malformed request."""
    return Refused("invalid", message)
