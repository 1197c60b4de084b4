"""Numbers as a person reads them on a screen: rounded, and never hiding that something was spent."""

from ecoshell.budget.money import Unit, amount_text


def money(nano: int | None) -> str:
    """Nano-dollars, as everywhere; unknown says so."""
    return "price unknown" if nano is None else amount_text(nano, "usd")


def tokens(count: int) -> str:
    """A count of tokens in few letters: `812`, `1.9k`, `14k`, `2.1M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            short = f"{count / size:.1f}" if count < 10 * size else f"{count // size}"
            return f"{short.removesuffix('.0')}{letter}"
    return str(count)


def amount(value: int, unit: Unit) -> str:
    """A part of a cap, in the cap's unit."""
    return money(value) if unit == "usd" else f"{tokens(value)} tok"


def duration(seconds: float) -> str:
    """A time: `12 ms`, `2.1 s`, `3 min 20 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
