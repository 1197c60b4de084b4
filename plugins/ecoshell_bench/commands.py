"""`ecoshell bench`: the arguments of every benchmark, how they are read, and which module carries it out."""

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

    Benchmarks = argparse._SubParsersAction[Any]  # pyright: ignore[reportPrivateUsage] - argparse gives it no other name

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
}
"""What carries each benchmark out: a module with `run`, which gives the exit status."""
DEFAULT_POOLS = (5, 10, 20, 40, 64, 527)
OUTPUT_PRICE = Decimal(3)
"""Output per input price of both models the paper measured with, GPT-4-turbo and GPT-4o as they were priced then."""
PLANS = ("btp", "gate", "oracle", "off", "strict")
RESUME_USUAL = ""
"""`--resume` without a file: the one the run would have had anyway."""


def run(args: argparse.Namespace) -> int:
    """Carry out a benchmark; raises EcoshellError."""
    status: int = import_module(f"ecoshell_bench.{MODULES[args.benchmark]}").run(args)
    return status


def add_arguments(bench: argparse.ArgumentParser) -> None:
    """Add the benchmarks and their arguments."""
    benchmarks = bench.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK", title="benchmarks")
    for add in (_add_ecoact, _add_speed, _add_tasks, _add_btp, _add_umi, _add_catp, _add_search):
        add(benchmarks).add_argument("--json", action="store_true", help="print one JSON object")


def _add_ecoact(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    ecoact = benchmarks.add_parser("ecoact", help="the cost of recorded runs, with and without registering by name")
    add = ecoact.add_argument
    add("--replay", type=Path, required=True, metavar="FILE", help="recorded runs, JSON Lines")
    add("--catalog", type=Path, required=True, metavar="FILE", help="the tools' schemas, JSON Lines")
    pools = listed(number)
    add("--pools", type=pools, default=DEFAULT_POOLS, metavar="N,N,…", help="numbers of tools to measure")
    fix = "Give it in prices of an input token, such as 0.1 or 1.25."
    ratio = _between(0, 1000, "not a price", fix, Decimal)
    add("--cached-price", type=ratio, metavar="R", help="cached input, in input prices (default: 1)")
    add("--cache-write-price", type=ratio, metavar="W", help="writing the cache, in input prices")
    add("--output-price", type=ratio, default=OUTPUT_PRICE, metavar="O", help="output, in input prices")
    add("--seed", type=int, default=0, help="of the draw of the other tools")
    chance = _between(0, 1, "not a chance", "Give a number from 0 to 1, such as 0.2.", float)
    wrong = "the chance that a question registers a wrong tool as well (default: 0)"
    add("--wrong", type=chance, default=0.0, metavar="P", help=wrong)
    add("--questions", type=number, default=1, metavar="N", help="runs that make a session (default: 1)")
    add("--limit", type=number, metavar="N", help="the first N successful runs only")
    return ecoact


def _add_speed(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    speed = benchmarks.add_parser("speed", help="how quick and how light the shell is, beside the least such program")
    add = speed.add_argument
    add("--repeat", type=number, default=15, metavar="N", help="runs behind each median (default: 15)")
    add("--adapter", type=Path, metavar="FILE", help="a LoRA adapter for the embedded model")
    add("--model", metavar="NAME", help="a local model to measure instead: embedded, local:FILE.gguf")
    return speed


def _add_tasks(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    tasks = benchmarks.add_parser("tasks", help="how often requests are done, beside the plainest loop there is")
    add = tasks.add_argument
    add("--suite", type=Path, metavar="FILE", help="tasks, JSON Lines or a folder (default: the packaged ones)")
    add("--split", choices=("dev", "test"), help="the half for tuning, or the one that is only measured")
    add("--kind", type=_words, default=(), metavar="KIND,…", help="tasks of these kinds only; code: programming")
    add("--only", type=_words, default=(), metavar="ID,…", help="these tasks only")
    add("--limit", type=number, metavar="N", help="the first N of the tasks only")
    add("--model", metavar="NAME", help="who is asked (default: as the settings say)")
    add("--mode", choices=("single", "umi", "auto"), help="agent mode (default: single)")
    add("--strategy", choices=("react", "dfsdt", "tot", "graph"), help="in which order (default: react)")
    add("--registration", choices=("auto", "names", "all"), help="what is registered at first (default: auto)")
    add("--temperature", type=_temperature, default=0.0, metavar="T", help="0 (default) to 2, or auto: as in a chat")
    add("--baseline", action="store_true", help="play each task in a plain function-calling loop, too")
    add("--baseline-only", action="store_true", help="play them in the plain loop alone")
    add("--baseline-model", metavar="NAME", help="the plain loop's model (default: the same)")
    add("--baseline-from", type=Path, metavar="FILE", help="the plain loop's results are those of an earlier --out")
    add("--task-seconds", type=number, default=300, metavar="N", help="time for a task (default: 300)")
    add("--budget", type=_amount, metavar="AMOUNT", help="end the run before the task after this is spent")
    add("--out", type=Path, metavar="FILE", help="keep the results here (default: in the cache folder)")
    add("--events", type=Path, metavar="DIR", help="write down what happened in each task, a file for each")
    workers = "processes that play at once, or ray://HOST:PORT: a Ray cluster's (default: 1)"
    add("--workers", type=_workers, default=1, metavar="N", help=workers)
    resume = "go on with the results of an interrupted run"
    add("--resume", nargs="?", const=RESUME_USUAL, metavar="FILE", help=resume)
    return tasks


def _add_btp(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    btp = benchmarks.add_parser("btp", help="the cost of recorded runs, with and without a plan of what is spent")
    add = btp.add_argument
    add("--replay", type=Path, required=True, metavar="FILE", help="recorded runs, JSON Lines")
    add("--costs", type=_range, default=(1, 10), metavar="A..B", help="drawn for each tool (default: 1..10)")
    add("--cap", type=listed(_cost), default=(20,), metavar="R,R,…", help="budgets of a task (default: 20)")
    add(
        "--seeds",
        type=_whole_number(1, 1000, "Give how often costs are drawn."),
        default=5,
        metavar="N",
        help="draws of the costs (default: 5)",
    )
    add("--strategy", type=listed(str), metavar="NAME,…", help="react, dfsdt, tot (default: all)")
    plan = "btp, gate, oracle, off (default: these), strict (what is not planned is forbidden, as in the paper)"
    add("--plan", type=listed(_plan), default=PLANS[:-1], metavar="NAME,…", help=plan)
    share = _between(0, 1, "not a threshold", "Give a number from 0 to 1, such as 0.15.", float)
    tau = "least values of a use (default: 0.15)"
    add("--tau", type=listed(share), default=(0.15,), metavar="T,T,…", help=tau)
    add("--no-blacklist", action="store_true", help="plan on with tools that did not help")
    add("--earned", action="store_true", help="a use that helped earns the tool another, as in the shell")
    split = "what is known of the tools: what runs of other questions say, or every second run (default: others)"
    add("--split", choices=("others", "half"), default="others", help=split)
    steps = "replay what was done, or a call of each tool that was needed (default: recorded)"
    add("--steps", choices=("recorded", "gold"), default="recorded", help=steps)
    return btp


def _add_umi(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    umi = benchmarks.add_parser("umi", help="how often a model takes the step that a reference takes")
    add = umi.add_argument
    add("--data", type=Path, metavar="FILE", help="reference trajectories, JSON Lines")
    add("--model", metavar="NAME", help="the model to ask, or gold: the reference itself")
    add("--mode", metavar="NAME", help="agent mode: single, umi (default: single; umi with --role)")
    role = "a role's model in the mode umi; repeatable"
    add("--role", action="append", type=_role, metavar="ROLE=MODEL", help=role)
    add("--tokens", action="store_true", help="what a turn takes in each mode; --model says whose price counts")
    split = "tasks held back for measuring, the rest, or all (default: all)"
    add("--split", choices=("held", "rest", "all"), default="all", help=split)
    add("--limit", type=number, metavar="N", help="the first N steps only; turns with --tokens")
    add("--budget", type=_amount, metavar="AMOUNT", help="the cap of the run, such as 0.50 or 20000tok")
    add("--out", type=Path, metavar="FILE", help="keep every answer here; a run goes on where it was")
    convert = "make trajectories of recorded data: livemcp, bfcl, toolbench; or of a number of tasks: generated"
    add("--convert", nargs=3, metavar=("KIND", "RUNS", "OUT"), help=convert)
    add("--documents", type=Path, metavar="PATH", help="the tools' schemas (default: beside the runs)")
    add("--pool", type=number, default=20, metavar="N", help="tools of a converted task (default: 20)")
    return umi


def _add_catp(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    catp = benchmarks.add_parser("catp", help="what recorded branching plans cost, take and are worth")
    add = catp.add_argument
    pool = "recorded plans, JSON Lines; may be given more than once"
    add("--pool", type=Path, nargs="+", action="extend", required=True, metavar="FILE", help=pool)
    add("--constants", type=Path, required=True, metavar="FILE", help="OpenCATP's constants.json")
    plans = "random plans for each kind of task (default: 10,000)"
    add("--plans", type=number, default=10_000, metavar="N", help=plans)
    planner = "what `ecoshell train catp` wrote: measure its plans, too"
    add("--planner", type=Path, metavar="FILE", help=planner)
    return catp


def _add_search(benchmarks: "Benchmarks") -> argparse.ArgumentParser:
    search = benchmarks.add_parser("search", help="how many of the tools a request needs a search names first")
    add = search.add_argument
    add("--queries", type=Path, required=True, metavar="FILE", help="ToolBench's queries, or recorded runs")
    add("--catalog", type=Path, required=True, metavar="FILE", help="the tools' schemas, JSON Lines")
    add("--limit", type=number, metavar="N", help="the first N queries only")
    return search


def listed(read: Callable[[str], Item]) -> Callable[[str], tuple[Item, ...]]:
    """Reads a list with commas between; what is named twice counts once."""

    def reader(text: str) -> tuple[Item, ...]:
        return tuple(dict.fromkeys(read(part.strip()) for part in text.split(",")))

    return reader


def _whole_number(least: int, most: int, fix: str = "Give a whole number.") -> Callable[[str], int]:
    def reader(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
            raise UsageError(f"{text!r} is not a number from {least} to {most}.", fix=fix)
        return int(text)

    return reader


number = _whole_number(1, 1_000_000)
_cost = _whole_number(0, 10**9)


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(.*?)\.\.(.*)", text)
    if match is None:
        raise UsageError(f"{text!r} is not a range of costs.", fix="Give the least and the most, such as 1..10.")
    least, most = _cost(match[1].strip()), _cost(match[2].strip())
    if least > most:
        raise UsageError(f"{text!r} has its least cost last.", fix=f"Give {most}..{least}.")
    return least, most


def _between(least: int, most: int, named: str, fix: str, kind: Callable[[str], Value]) -> Callable[[str], Value]:
    """Reads a number with these bounds; one that is none is refused as `named`."""

    def reader(text: str) -> Value:
        try:
            value = kind(text)
            if least <= value <= most:
                return value
        except (ValueError, ArithmeticError):
            pass
        raise UsageError(f"{text!r} is {named}.", fix=fix)

    return reader


def _temperature(text: str) -> float | Literal["auto"]:
    fix = "Give a number from 0 to 2, or auto."
    return "auto" if text == "auto" else _between(0, 2, "no temperature", fix, float)(text)


def _workers(text: str) -> int | str:
    """How many processes, or the address of a cluster."""
    fix = "Give how many processes play at once, or ray://HOST:PORT."
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
        raise UsageError(f"There is no plan {text!r} to measure.", fix=f"Choose of {', '.join(PLANS)}.")
    return text


def _role(text: str) -> tuple[RoleName, str]:
    said, _, model = (part.strip() for part in text.partition("="))
    role = role_named(said)
    if role is None or not model:
        raise UsageError(f"{text!r} gives no role a model.", fix=f"Write ROLE=MODEL; roles are {', '.join(ROLES)}.")
    return role, model


def _amount(text: str) -> "Amount":
    from ecoshell.budget import parse_amount

    return parse_amount(text)
