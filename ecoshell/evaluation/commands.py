"""`ecoshell bench`: its arguments, and which benchmark carries them out."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.budget.price import Rates
from ecoshell.errors import UsageError
from ecoshell.evaluation.btp.arguments import add_btp, run_btp
from ecoshell.evaluation.catp.arguments import add_catp, run_catp
from ecoshell.evaluation.tasks.arguments import add_tasks, run_tasks
from ecoshell.evaluation.umi.arguments import add_umi, run_umi

if TYPE_CHECKING:
    from ecoshell.evaluation.measurement import Measurement

DEFAULT_POOLS = (5, 10, 20, 40, 64, 527)
OUTPUT_PRICE = Decimal(3)
"""Output per input price of both models the paper measured with, GPT-4-turbo and GPT-4o as they were priced then."""
_MOST = Decimal(1000)


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:  # pyright: ignore[reportPrivateUsage]
    """Add `bench` and its benchmarks to the command line."""
    bench = subparsers.add_parser("bench", help="measure savings, a model's skill, and the shell's speed")
    benchmarks = bench.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK", title="benchmarks")
    ecoact = benchmarks.add_parser("ecoact", help="the cost of recorded runs, with and without registering by name")
    ecoact.add_argument("--replay", type=Path, required=True, metavar="FILE", help="recorded runs, JSON Lines")
    ecoact.add_argument("--catalog", type=Path, required=True, metavar="FILE", help="the tools' documents, JSON Lines")
    ecoact.add_argument(
        "--pools", type=_pools, default=DEFAULT_POOLS, metavar="N,N,…", help="numbers of tools to measure"
    )
    ecoact.add_argument("--cached-price", type=_ratio, metavar="R", help="cached input, in input prices (default: 1)")
    ecoact.add_argument("--cache-write-price", type=_ratio, metavar="W", help="writing the cache, in input prices")
    ecoact.add_argument(
        "--output-price", type=_ratio, default=OUTPUT_PRICE, metavar="O", help="output, in input prices"
    )
    ecoact.add_argument("--seed", type=int, default=0, help="of the draw of the other tools")
    ecoact.add_argument(
        "--wrong",
        type=_chance,
        default=0.0,
        metavar="P",
        help="the chance that a question registers a wrong tool as well (default: 0)",
    )
    ecoact.add_argument(
        "--questions", type=_number, default=1, metavar="N", help="runs that make a session (default: 1)"
    )
    ecoact.add_argument("--limit", type=_number, metavar="N", help="the first N successful runs only")
    speed = benchmarks.add_parser("speed", help="how quick and how light the shell is, beside the least such program")
    speed.add_argument("--repeat", type=_number, default=15, metavar="N", help="runs behind each median (default: 15)")
    speed.add_argument("--adapter", type=Path, metavar="FILE", help="a LoRA adapter for the embedded model")
    speed.add_argument("--model", metavar="NAME", help="a local model to measure instead: embedded, local:FILE.gguf")
    others = (add_tasks(benchmarks), add_btp(benchmarks), add_umi(benchmarks), add_catp(benchmarks))
    for benchmark in (ecoact, *others, speed):
        benchmark.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Carry out a benchmark and print it; raises UsageError and EcoshellError."""
    match args.benchmark:
        case "ecoact":
            return _ecoact(args)
        case "tasks":
            text, status = run_tasks(args)
            _print(text)
            return status
        case "btp":
            _print(run_btp(args))
            return 0
        case "umi":
            _print(run_umi(args))
            return 0
        case "catp":
            _print(run_catp(args))
            return 0
        case _:
            return _speed(args)


def _ecoact(args: argparse.Namespace) -> int:
    from ecoshell.evaluation.ecoact import Setting, measure_pools
    from ecoshell.evaluation.report import as_json, as_table
    from ecoshell.evaluation.trajectories import read_runs, read_tools
    from ecoshell.modes.prompts import system_text

    tools = read_tools(args.catalog)
    runs = read_runs(args.replay, tools)[: args.limit]
    with _counting() as (count, tokenizer):
        setting = Setting(_rates(args), count, system_text, args.seed, args.wrong, args.questions)
        results = list(measure_pools(runs, tools, args.pools, setting))
    _print(as_json(results, setting, tokenizer) if args.json else as_table(results, setting, tokenizer))
    return 0


def _speed(args: argparse.Namespace) -> int:
    rows: list[Measurement] = []
    measured = _of_shell(args) if args.model is None else _of_model(args.model, args.repeat)
    for row in measured:
        rows.append(row)
        if not args.json:
            _print(_line(row))
    if args.json:
        _print(json.dumps({"rows": [dataclasses.asdict(row) for row in rows]}))
    return 0


def _of_shell(args: argparse.Namespace) -> Iterator["Measurement"]:
    """The figures of the shell; raises ModelMissing or ModelBroken for a file that is no adapter."""
    from ecoshell.evaluation.speed.measure import measure_speed
    from ecoshell.models.embedded import embedded_path
    from ecoshell.models.gguf import check_adapter

    if args.adapter is None:
        sys.stderr.write("adapter_switch is left out: it takes --adapter FILE, one of the embedded model.\n")
    else:
        check_adapter(args.adapter, embedded_path())
    return measure_speed(args.repeat, args.adapter)


def _of_model(name: str, repeat: int) -> Iterator["Measurement"]:
    """The figures of one local model; raises UsageError for another, and ModelMissing."""
    from ecoshell.evaluation.speed.local import measure_local
    from ecoshell.models.gguf import check_base
    from ecoshell.models.local_models import local_files

    files = local_files(name)
    if files is None or files.adapter is not None:
        raise UsageError(f"{name} is no local model without an adapter.", fix="Give embedded or local:FILE.gguf.")
    check_base(files.base)
    return measure_local(files.base, repeat)


def _line(row: "Measurement") -> str:
    """One row of the table; a dash stands where there is nothing to compare with."""
    baseline = "–" if row.baseline is None else f"{row.baseline:,.4g}"
    ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
    return f"{row.what:<24} {row.value:>10,.4g} {row.unit:<9} baseline {baseline:>10}   ratio {ratio:>6}"


@contextmanager
def _counting() -> Generator[tuple[Callable[[str], int], str]]:
    """What counts tokens, each text once, and its name: cl100k_base where it is at hand."""
    from ecoshell.models.tokens import ByteCounter, counter_for

    counter = counter_for("gpt-4")
    try:
        if not counter.wait():
            counter = ByteCounter()
        yield cache(counter.count), counter.name
    finally:
        counter.close()


def _rates(args: argparse.Namespace) -> Rates:
    """The rates, in prices of an input token; without cache prices, every token of a prompt costs 1."""
    one = Decimal(1)
    cached = one if args.cached_price is None else args.cached_price
    written = one if args.cache_write_price is None else args.cache_write_price
    return Rates(one, cached, written, args.output_price, args.output_price)


def _pools(text: str) -> tuple[int, ...]:
    pools = tuple(_number(part.strip()) for part in text.split(","))
    return tuple(dict.fromkeys(pools))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise UsageError(f"{text!r} is not a number from 1 to 1000000.", fix="Give a whole number.")
    return int(text)


def _ratio(text: str) -> Decimal:
    try:
        ratio = Decimal(text)
    except InvalidOperation:
        ratio = Decimal("NaN")
    if not (ratio.is_finite() and 0 <= ratio <= _MOST):
        raise UsageError(f"{text!r} is not a price.", fix="Give it in prices of an input token, such as 0.1 or 1.25.")
    return ratio


def _chance(text: str) -> float:
    try:
        chance = float(text)
    except ValueError:
        chance = -1.0
    if not 0 <= chance <= 1:
        raise UsageError(f"{text!r} is not a chance.", fix="Give a number from 0 to 1, such as 0.2.")
    return chance


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
