"""Bytes from outside, as text."""

from collections.abc import Callable


def decoded(raw: bytes, warn: Callable[[str], None]) -> str:
    """The bytes as text; what is not UTF-8 is replaced, and that is said."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        warn("the input is not valid UTF-8; what could not be read was replaced by \N{REPLACEMENT CHARACTER}")
        return raw.decode("utf-8", errors="replace")
