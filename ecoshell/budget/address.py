"""Validation of the address in `[budget] ledger`."""

from urllib.parse import urlsplit

from ecoshell.errors import UsageError

_EXAMPLE = "Use an address such as postgresql://ann@db.example.org/ledger."


def require_ledger_address(text: str) -> str:
    """Return the address of a shared ledger; raises UsageError if it is malformed or carries a password."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise UsageError("The address of the team ledger is malformed.", fix=_EXAMPLE) from None
    if parts.password or "password=" in parts.query:
        fix = "Put the password into PGPASSWORD, ~/.pgpass or the system keyring."
        raise UsageError("The address of the team ledger must not contain a password.", fix=fix)
    has_target = "://" in text and (parts.netloc or parts.query or parts.path.strip("/"))
    if not parts.scheme or not has_target:
        raise UsageError(
            "The address of the team ledger must be a URL of a database.", fix=_EXAMPLE
        )
    return text
