"""The arguments of `ecoshell bench catp`, and what they set off."""

import argparse
from pathlib import Path
from typing import Any

from ecoshell.errors import UsageError

_PLANS = 10_000
_MOST_PLANS = 1_000_000


def add_catp(benchmarks: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:  # pyright: ignore[reportPrivateUsage]
    """Add the benchmark to the others."""
    catp = benchmarks.add_parser("catp", help="what recorded branching plans cost, take and are worth")
    catp.add_argument(
        "--pool",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="recorded plans, JSON Lines; may be given more than once",
    )
    catp.add_argument("--constants", type=Path, required=True, metavar="FILE", help="OpenCATP's constants.json")
    catp.add_argument(
        "--plans",
        type=_number,
        default=_PLANS,
        metavar="N",
        help=f"random plans for each kind of task (default: {_PLANS:,})",
    )
    return catp


def run_catp(args: argparse.Namespace) -> str:
    """What is to be printed; raises UsageError."""
    from ecoshell_bench.catp.measure import measure
    from ecoshell_bench.catp.recordings import read_constants, read_plans
    from ecoshell_bench.catp.report import as_json, as_table

    constants = read_constants(args.constants)
    plans = read_plans([*dict.fromkeys(args.pool)], constants)
    figures = measure(plans, constants, args.plans)
    return (as_json if args.json else as_table)(figures)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST_PLANS):
        raise UsageError(f"{text!r} is not a number from 1 to {_MOST_PLANS}.", fix="Give a whole number.")
    return int(text)
