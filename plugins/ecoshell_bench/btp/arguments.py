"""The arguments of `ecoshell bench btp`, and what they set off."""

import argparse
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ecoshell.errors import UsageError

if TYPE_CHECKING:
    from ecoshell.strategies.base import Way

Item = TypeVar("Item")

_MOST = 10**9
_MOST_SEEDS = 1000
_PLANS = ("btp", "gate", "oracle", "off", "strict")
_USUAL = _PLANS[:-1]


def add_btp(benchmarks: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:  # pyright: ignore[reportPrivateUsage]
    """Add the benchmark to the others."""
    btp = benchmarks.add_parser("btp", help="the cost of recorded runs, with and without a plan of what is spent")
    btp.add_argument("--replay", type=Path, required=True, metavar="FILE", help="recorded runs, JSON Lines")
    btp.add_argument(
        "--costs", type=_range, default=(1, 10), metavar="A..B", help="drawn for each tool (default: 1..10)"
    )
    btp.add_argument(
        "--cap", type=_listed(_whole), default=(20,), metavar="R,R,…", help="budgets of a task (default: 20)"
    )
    btp.add_argument("--seeds", type=_seeds, default=5, metavar="N", help="draws of the costs (default: 5)")
    btp.add_argument("--strategy", type=_listed(str), metavar="NAME,…", help="react, dfsdt, tot (default: all)")
    btp.add_argument(
        "--plan",
        type=_listed(_plan),
        default=_USUAL,
        metavar="NAME,…",
        help="btp, gate, oracle, off (default: these), strict (what is not planned is forbidden, as in the paper)",
    )
    btp.add_argument(
        "--tau", type=_listed(_share), default=(0.15,), metavar="T,T,…", help="least values of a use (default: 0.15)"
    )
    btp.add_argument("--no-blacklist", action="store_true", help="plan on with tools that did not help")
    btp.add_argument("--earned", action="store_true", help="a use that helped earns the tool another, as in the shell")
    btp.add_argument(
        "--split",
        choices=("others", "half"),
        default="others",
        help="what is known of the tools: what runs of other questions say, or every second run (default: others)",
    )
    btp.add_argument(
        "--steps",
        choices=("recorded", "gold"),
        default="recorded",
        help="replay what was done, or a call of each tool that was needed (default: recorded)",
    )
    return btp


def run_btp(args: argparse.Namespace) -> str:
    """What is to be printed; raises UsageError."""
    from ecoshell.assembly.shell import STRATEGIES
    from ecoshell_bench.btp.experience import leave_one_out
    from ecoshell_bench.btp.measure import Sweep, measure
    from ecoshell_bench.btp.recordings import read_tasks
    from ecoshell_bench.btp.report import as_json, as_table

    recorded = {name: way for name, way in STRATEGIES.items() if not way.branches}  # recordings are of single steps
    sweep = Sweep(
        ways=_ways(args.strategy or tuple(recorded), recorded),
        plans=args.plan,
        caps=args.cap,
        thresholds=args.tau,
        seeds=range(args.seeds),
        costs=args.costs,
        split=args.split,
        steps=args.steps,
        blacklisting=not args.no_blacklist,
        earned=args.earned,
    )
    tasks = read_tasks(args.replay)
    outsets = leave_one_out(tasks, gold=args.steps == "gold", halves=args.split == "half")
    rows = list(measure(outsets, sweep))
    return (as_json if args.json else as_table)(rows, sweep, len(tasks))


def _ways(names: Sequence[str], known: "Mapping[str, Way]") -> "list[Way]":
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"There is no strategy {name!r}.", fix=f"{meant}Choose of {', '.join(known)}.")
    return [known[name] for name in names]


def _listed(read: Callable[[str], Item]) -> Callable[[str], tuple[Item, ...]]:
    """Reads a list with commas between; what is named twice counts once."""

    def reader(text: str) -> tuple[Item, ...]:
        return tuple(dict.fromkeys(read(part.strip()) for part in text.split(",")))

    return reader


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(.*?)\.\.(.*)", text)
    if match is None:
        raise UsageError(f"{text!r} is not a range of costs.", fix="Give the least and the most, such as 1..10.")
    least, most = _whole(match[1].strip()), _whole(match[2].strip())
    if least > most:
        raise UsageError(f"{text!r} has its least cost last.", fix=f"Give {most}..{least}.")
    return least, most


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and int(text) <= _MOST):
        raise UsageError(f"{text!r} is not a number from 0 to {_MOST}.", fix="Give a whole number.")
    return int(text)


def _seeds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST_SEEDS):
        raise UsageError(f"{text!r} is not a number from 1 to {_MOST_SEEDS}.", fix="Give how often costs are drawn.")
    return int(text)


def _share(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", text, re.ASCII) or float(text) > 1:
        raise UsageError(f"{text!r} is not a threshold.", fix="Give a number from 0 to 1, such as 0.15.")
    return float(text)


def _plan(text: str) -> str:
    if text not in _PLANS:
        raise UsageError(f"There is no plan {text!r} to measure.", fix=f"Choose of {', '.join(_PLANS)}.")
    return text
