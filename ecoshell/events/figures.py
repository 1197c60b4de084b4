"""Durations, lengths, token counts and price spans in words."""

from collections.abc import Callable

from ecoshell.budget import NANO, about, amount_text, counted, rounded_up

_NEGLIGIBLE_SHARE = 0.01
"""Below this share of the upper bound a lower one says nothing."""


def duration(seconds: float) -> str:
    """A duration: `12 ms`, `2.1 s`, `3 min 20 s`."""
    if seconds < 0.9995:  # 999.5 ms would round to 1000 ms
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    seconds = max(seconds, 60)
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def length_text(text: str) -> str:
    """The tokens of a text, estimated at four bytes each."""
    return about(counted(-(-len(text.encode("utf-8", "replace")) // 4), "token"), estimated=True)


def usd_text(amount: float) -> str:
    """An estimated price in dollars."""
    return amount_text(rounded_up(round(amount * NANO)), "usd") if amount > 0 else "free"


def span_text(low: float | None, high: float | None, text: Callable[[float], str]) -> str | None:
    """Two bounds as text, without a negligible lower one; None if they are unknown."""
    if low is None or high is None:
        return None
    if low < _NEGLIGIBLE_SHARE * high:
        return f"up to {text(high)}"
    return text(high) if text(low) == text(high) else f"{text(low)} to {text(high)}"


def sizes_text(original: int, reduced: int) -> str:
    """The tokens before and after something was shortened."""
    return f"{original:,} tokens became {reduced:,}"
