"""Numbers as a person reads them on a screen: rounded, and never hiding that something was spent."""

from ecoshell.budget.money import NANO, Unit

_SMALLEST = NANO // 10_000


def money(nano: int | None) -> str:
    """Nano-dollars to four decimals: `$0.0031`, `$2.50`, `<$0.0001`; unknown says so."""
    if nano is None:
        return "price unknown"
    if 0 < nano < _SMALLEST:
        return "<$0.0001"
    whole, part = divmod((nano + _SMALLEST // 2) // _SMALLEST, 10_000)
    decimals = f"{part:04d}".rstrip("0")
    return f"${whole}.{decimals:0<2}" if decimals else f"${whole}"


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
