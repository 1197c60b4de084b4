"""`ecoshell bench`: the arguments of every benchmark, their parsers and the modules that run them."""

import argparse
import re
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ecoshell.errors import UsageError
from ecoshell.options import ROLES, RoleName, role_named

if TYPE_CHECKING:
    from ecoshell.budget import Amount

    Benchmarks = argparse._SubParsersAction[Any]  # pyright: ignore[reportPrivateUsage] - it has no public name

Item = TypeVar("Item")
Value = TypeVar("Value", float, Decimal)
MODULES = {
    "ecoact": "ecoact",
    "speed": "speed.run",
    "tasks": "tasks.run",
    "btp": "btp",
    "umi": "umi.run",
    "catp": "catp",
    "search": "search",
    "gateway": "gateway",
    "quote": "quote",
}
"""The module of each benchmark; its `run` returns the exit status."""
DEFAULT_POOLS = (5, 10, 20, 40, 64, 527)
OUTPUT_PRICE = Decimal(3)
"""The output price in input prices of the paper's models, GPT-4-turbo and GPT-4o, at the time of the paper."""
PLANS = ("btp", "gate", "oracle", "off", "strict")
RESUME_DEFAULT_FILE = ""
"""The value of `--resume` without a file."""


def run(args: argparse.Namespace) -> int:
    """Run a benchmark; raises EcoshellError."""
    status: int = import_module(f"ecoshell_bench.{MODULES[args.benchmark]}").run(args)
    return status


def add_arguments(bench: argparse.ArgumentParser) -> None:
    """Add the benchmarks and their arguments."""
    benchmarks = bench.add_subparsers(
        dest="benchmark", required=True, metavar="BENCHMARK", title="benchmarks"
    )
    for add in (
        _add_ecoact,
        _add_speed,
        _add_tasks,
        _add_btp,
        _add_umi,
        _add_catp,
        _add_search,
        _add_gateway,
        _add_quote,
    ):
        add(benchmarks).add_argument("--json", action="store_true", help="print one JSON object")


def _add_ecoact(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    ecoact = benchmarks.add_parser(
        "ecoact", help="cost of recorded runs with and without registration by name"
    )
    add = ecoact.add_argument
    add("--replay", type=Path, required=True, metavar="FILE", help="recorded runs, JSON Lines")
    add(
        "--catalog", type=Path, required=True, metavar="FILE", help="the tools' schemas, JSON Lines"
    )
    pools = listed(number)
    add(
        "--pools",
        type=pools,
        default=DEFAULT_POOLS,
        metavar="N,N,…",
        help="numbers of tools to measure",
    )
    ratio = _between(
        0, 1000, "a price", "Give a multiple of the input price, such as 0.1 or 1.25.", Decimal
    )
    add(
        "--cached-price", type=ratio, metavar="R", help="cached input, in input prices (default: 1)"
    )
    add("--cache-write-price", type=ratio, metavar="W", help="writing the cache, in input prices")
    add(
        "--output-price",
        type=ratio,
        default=OUTPUT_PRICE,
        metavar="O",
        help="output, in input prices",
    )
    add("--seed", type=int, default=0, help="seed for drawing the unused tools of a pool")
    probability = _between(0, 1, "a probability", "Give a number from 0 to 1, such as 0.2.", float)
    wrong_tool = "probability that a question also registers an unneeded tool (default: 0)"
    add("--wrong", type=probability, default=0.0, metavar="P", help=wrong_tool)
    add("--questions", type=number, default=1, metavar="N", help="runs per session (default: 1)")
    add("--limit", type=number, metavar="N", help="only the first N successful runs")
    return ecoact


def _add_gateway(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    gateway = benchmarks.add_parser(
        "gateway", help="latency, throughput and memory of `ecoshell gateway`"
    )
    gateway.add_argument(
        "--requests",
        type=number,
        default=1000,
        metavar="N",
        help="requests per figure (default: 1000)",
    )
    streams = "streamed requests of the memory figure (default: 10000)"
    gateway.add_argument("--streams", type=number, default=10_000, metavar="N", help=streams)
    return gateway


def _add_quote(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    quote = benchmarks.add_parser("quote", help="share of bills within the interval of their quote")
    add = quote.add_argument
    pool = "recorded plans of OpenCATP, JSON Lines; repeatable"
    add("--pool", type=Path, nargs="+", action="extend", default=[], metavar="FILE", help=pool)
    add("--constants", type=Path, metavar="FILE", help="OpenCATP's constants.json")
    add("--runs", type=number, default=1000, metavar="N", help="generated runs (default: 1000)")
    add("--seed", type=int, default=0, help="seed of the split and of the generated runs")
    return quote


def _add_speed(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    speed = benchmarks.add_parser(
        "speed", help="speed and memory of the shell, compared with a minimal program"
    )
    add = speed.add_argument
    add("--repeat", type=number, default=15, metavar="N", help="runs per median (default: 15)")
    add("--adapter", type=Path, metavar="FILE", help="a LoRA adapter for the embedded model")
    add(
        "--model",
        metavar="NAME",
        help="a local model to measure instead: embedded, local:FILE.gguf",
    )
    add(
        "--path",
        action="store_true",
        help="count the code run by one question with one tool call instead",
    )
    return speed


def _add_tasks(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    tasks = benchmarks.add_parser(
        "tasks", help="success at everyday requests, compared with the plainest loop"
    )
    add = tasks.add_argument
    add(
        "--suite",
        type=Path,
        metavar="FILE",
        help="tasks: JSON Lines or a folder (default: the packaged suite)",
    )
    add(
        "--split", choices=("dev", "test"), help="the half for tuning (dev) or for measuring (test)"
    )
    add(
        "--kind",
        type=_words,
        default=(),
        metavar="KIND,…",
        help="only tasks of these kinds; code: programming",
    )
    add("--only", type=_words, default=(), metavar="ID,…", help="only these tasks")
    add("--limit", type=number, metavar="N", help="only the first N tasks")
    add("--model", metavar="NAME", help="the model (default: from the settings)")
    add("--mode", choices=("single", "umi"), help="agent mode (default: single)")
    add("--advisor", metavar="NAME", help="a stronger model that the model may ask for advice")
    add("--strategy", choices=("react", "dfsdt", "tot", "graph"), help="strategy (default: react)")
    add(
        "--registration",
        choices=("auto", "names", "all"),
        help="tools registered at the start (default: auto)",
    )
    add(
        "--temperature",
        type=_temperature,
        default=0.0,
        metavar="T",
        help="0 (default) to 2, or auto as in a chat",
    )
    add(
        "--baseline",
        action="store_true",
        help="also run each task in a plain function-calling loop",
    )
    add("--baseline-only", action="store_true", help="run tasks in the plain loop only")
    add("--baseline-model", metavar="NAME", help="the plain loop's model (default: the same)")
    add(
        "--baseline-from",
        type=Path,
        metavar="FILE",
        help="take the plain loop's results from an earlier --out file",
    )
    add(
        "--task-seconds",
        type=number,
        default=300,
        metavar="N",
        help="time limit of a task (default: 300)",
    )
    add("--budget", type=_amount, metavar="AMOUNT", help="start no further task once this is spent")
    add("--out", type=Path, metavar="FILE", help="results file (default: in the cache folder)")
    add("--events", type=Path, metavar="DIR", help="write a transcript of each task to this folder")
    workers = "number of parallel processes, or ray://HOST:PORT for a Ray cluster (default: 1)"
    add("--workers", type=_workers, default=1, metavar="N", help=workers)
    resume = "resume an interrupted run from its results file"
    add("--resume", nargs="?", const=RESUME_DEFAULT_FILE, metavar="FILE", help=resume)
    return tasks


def _add_btp(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    btp = benchmarks.add_parser("btp", help="cost of recorded runs with and without a budget plan")
    add = btp.add_argument
    add("--replay", type=Path, required=True, metavar="FILE", help="recorded runs, JSON Lines")
    add(
        "--costs",
        type=_range,
        default=(1, 10),
        metavar="A..B",
        help="range of random tool costs (default: 1..10)",
    )
    add(
        "--cap",
        type=listed(_cost),
        default=(20,),
        metavar="R,R,…",
        help="budgets of a task (default: 20)",
    )
    seeds = _whole_number(1, 1000, "Give the number of draws.")
    add("--seeds", type=seeds, default=5, metavar="N", help="draws of the costs (default: 5)")
    add("--strategy", type=listed(str), metavar="NAME,…", help="react, dfsdt, tot (default: all)")
    plan = "btp, gate, oracle, off (default: these), strict (unplanned calls are refused, as in the paper)"
    add("--plan", type=listed(_plan), default=PLANS[:-1], metavar="NAME,…", help=plan)
    share = _between(0, 1, "a threshold", "Give a number from 0 to 1, such as 0.15.", float)
    tau = "minimum values of a use (default: 0.15)"
    add("--tau", type=listed(share), default=(0.15,), metavar="T,T,…", help=tau)
    add("--no-blacklist", action="store_true", help="keep planning with tools that did not help")
    add(
        "--earned",
        action="store_true",
        help="grant a further use after each helpful one, as in the shell",
    )
    split = (
        "source of experience: runs of all other questions, or every second run (default: others)"
    )
    add("--split", choices=("others", "half"), default="others", help=split)
    steps = "replay the recorded calls, or one call of each needed tool (default: recorded)"
    add("--steps", choices=("recorded", "gold"), default="recorded", help=steps)
    return btp


def _add_umi(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    umi = benchmarks.add_parser(
        "umi", help="agreement of a model's steps with reference trajectories"
    )
    add = umi.add_argument
    add("--data", type=Path, metavar="FILE", help="reference trajectories, JSON Lines")
    add("--model", metavar="NAME", help="the model to ask, or gold: the reference itself")
    add("--mode", metavar="NAME", help="agent mode: single, umi (default: single; umi with --role)")
    role = "the model of a role in mode umi; repeatable"
    add("--role", action="append", type=_role, metavar="ROLE=MODEL", help=role)
    add(
        "--tokens",
        action="store_true",
        help="tokens and price of a turn in each mode, at the prices of --model",
    )
    split = "tasks reserved for measuring (held), all other tasks (rest) or all (default: all)"
    add("--split", choices=("held", "rest", "all"), default="all", help=split)
    add("--limit", type=number, metavar="N", help="only the first N steps; with --tokens, turns")
    add(
        "--budget",
        type=_amount,
        metavar="AMOUNT",
        help="the cap of the run, such as 0.50 or 20000tok",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="answers file; the same command resumes an interrupted run",
    )
    convert = "convert recorded data (livemcp, bfcl, toolbench) or a number of generated tasks (generated)"
    add("--convert", nargs=3, metavar=("KIND", "RUNS", "OUT"), help=convert)
    add(
        "--documents",
        type=Path,
        metavar="PATH",
        help="tool schemas (default: in the folder of the runs)",
    )
    add(
        "--pool",
        type=number,
        default=20,
        metavar="N",
        help="tools of a converted task (default: 20)",
    )
    return umi


def _add_catp(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    catp = benchmarks.add_parser("catp", help="price, time and quality of recorded tool graphs")
    add = catp.add_argument
    pool = "recorded plans, JSON Lines; repeatable"
    add("--pool", type=Path, nargs="+", action="extend", required=True, metavar="FILE", help=pool)
    add("--constants", type=Path, required=True, metavar="FILE", help="OpenCATP's constants.json")
    plans = "random plans per task type (default: 10,000)"
    add("--plans", type=number, default=10_000, metavar="N", help=plans)
    planner = "also measure the plans of a planner trained by `ecoshell train catp`"
    add("--planner", type=Path, metavar="FILE", help=planner)
    return catp


def _add_search(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    search = benchmarks.add_parser(
        "search", help="recall of needed tools among the first search results"
    )
    add = search.add_argument
    add(
        "--queries",
        type=Path,
        required=True,
        metavar="FILE",
        help="ToolBench's queries, or recorded runs",
    )
    add(
        "--catalog", type=Path, required=True, metavar="FILE", help="the tools' schemas, JSON Lines"
    )
    add("--limit", type=number, metavar="N", help="only the first N queries")
    return search


def listed(read: Callable[[str], Item]) -> Callable[[str], tuple[Item, ...]]:
    """Return a parser of comma-separated values without repetitions."""

    def reader(text: str) -> tuple[Item, ...]:
        return tuple(dict.fromkeys(read(part.strip()) for part in text.split(",")))

    return reader


def _whole_number(
    minimum: int, maximum: int, fix: str = "Give a whole number."
) -> Callable[[str], int]:
    def reader(text: str) -> int:
        if not (
            text.isascii()
            and text.isdigit()
            and len(text) <= len(str(maximum))
            and minimum <= int(text) <= maximum
        ):
            raise UsageError(f"{text!r} is not a number from {minimum} to {maximum}.", fix=fix)
        return int(text)

    return reader


number = _whole_number(1, 1_000_000)
_cost = _whole_number(0, 10**9)


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(.*?)\.\.(.*)", text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a range of costs.",
            fix="Give the minimum and the maximum, such as 1..10.",
        )
    minimum, maximum = _cost(match[1].strip()), _cost(match[2].strip())
    if minimum > maximum:
        raise UsageError(f"{text!r} has the maximum first.", fix=f"Give {maximum}..{minimum}.")
    return minimum, maximum


def _between(
    minimum: int, maximum: int, noun: str, fix: str, kind: Callable[[str], Value]
) -> Callable[[str], Value]:
    """Return a parser of numbers within bounds; `noun` names the value in error messages."""

    def reader(text: str) -> Value:
        try:
            value = kind(text)
            if minimum <= value <= maximum:
                return value
        except (ValueError, ArithmeticError):
            pass
        raise UsageError(f"{text!r} is not {noun}.", fix=fix)

    return reader


def _temperature(text: str) -> float | Literal["auto"]:
    fix = "Give a number from 0 to 2, or auto."
    return "auto" if text == "auto" else _between(0, 2, "a temperature", fix, float)(text)


def _workers(text: str) -> int | str:
    """Parse a number of processes or the address of a cluster."""
    fix = "Give the number of processes, or ray://HOST:PORT."
    if not text.startswith("ray:"):
        return _whole_number(1, 1000, fix)(text)
    if (
        not re.fullmatch(r"ray://([^\s:/@]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}", text)
        or int(text.rpartition(":")[2]) > 65535
    ):
        raise UsageError(f"{text!r} is not the address of a Ray cluster.", fix=fix)
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in map(str.strip, text.split(",")) if word)


def _plan(text: str) -> str:
    if text not in PLANS:
        raise UsageError(f"Unknown plan {text!r}.", fix=f"Available: {', '.join(PLANS)}.")
    return text


def _role(text: str) -> tuple[RoleName, str]:
    name, _, model = (part.strip() for part in text.partition("="))
    role = role_named(name)
    if role is None or not model:
        raise UsageError(
            f"{text!r} is not ROLE=MODEL.", fix=f"Available roles: {', '.join(ROLES)}."
        )
    return role, model


def _amount(text: str) -> "Amount":
    from ecoshell.budget import parse_amount

    return parse_amount(text)
