"""The arguments of `ecoshell bench umi`, and what they set off."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.errors import UsageError
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.evaluation.umi.asking import Asked
    from ecoshell.evaluation.umi.metrics import Prediction
    from ecoshell.evaluation.umi.report import About
    from ecoshell.evaluation.umi.results import Answered
    from ecoshell.evaluation.umi.scoring import Result

GOLD = "gold"
_KINDS = ("livemcp", "bfcl")
_POOL = 20
_MOST = 1_000_000


def add_umi(benchmarks: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:  # pyright: ignore[reportPrivateUsage]
    """Add the benchmark to the others."""
    umi = benchmarks.add_parser("umi", help="how often a model takes the step that a reference takes")
    umi.add_argument("--data", type=Path, metavar="FILE", help="reference trajectories, JSON Lines")
    umi.add_argument("--model", metavar="NAME", help="the model to ask, or gold: the reference itself")
    umi.add_argument("--mode", default="single", metavar="NAME", help="who thinks (default: single)")
    umi.add_argument("--limit", type=_number, metavar="N", help="the first N steps only")
    umi.add_argument("--budget", type=_amount, metavar="AMOUNT", help="the cap of the run, such as 0.50 or 20000tok")
    umi.add_argument("--out", type=Path, metavar="FILE", help="keep every answer here; a run goes on where it was")
    umi.add_argument(
        "--convert", nargs=3, metavar=("KIND", "RUNS", "OUT"), help="make trajectories of recorded runs: livemcp, bfcl"
    )
    umi.add_argument("--documents", type=Path, metavar="PATH", help="the tools' documents (default: beside the runs)")
    umi.add_argument(
        "--pool", type=_number, default=_POOL, metavar="N", help=f"tools of a LiveMCPBench task (default: {_POOL})"
    )
    return umi


def run_umi(args: argparse.Namespace) -> str:
    """What is to be printed; raises UsageError and EcoshellError."""
    if args.convert is not None:
        return _convert(args)
    if args.data is None or args.model is None:
        raise UsageError("A measurement needs --data and --model.", fix="--model gold scores the reference itself.")
    return _measure(args)


def _convert(args: argparse.Namespace) -> str:
    from ecoshell.evaluation.umi.converting import convert, write

    kind, runs, out = args.convert
    if kind not in _KINDS:
        raise UsageError(f"Runs of {kind!r} cannot be converted.", fix=f"Choose of {', '.join(_KINDS)}.")
    trajectories = convert(kind, Path(runs), args.documents, args.pool)
    write(trajectories, Path(out))
    steps = sum(len(one.steps) for one in trajectories)
    return f"{out}: {steps:,} steps of {len(trajectories):,} tasks."


def _measure(args: argparse.Namespace) -> str:
    from ecoshell.evaluation.umi.metrics import gold
    from ecoshell.evaluation.umi.reference import read_trajectories
    from ecoshell.evaluation.umi.report import About, as_json, as_table

    trajectories = read_trajectories(args.data)
    asked = [(one, number) for one in trajectories for number in range(len(one.steps))][: args.limit]
    tasks = len({one.id for one, _ in asked})
    if args.model == GOLD:
        if args.out is not None:
            raise UsageError("Nobody is asked with --model gold.", fix="Leave out --out.")
        result = _scored(asked, [gold(*one) for one in asked])
        about = About(GOLD, "none", tasks)
    else:
        answers = _answers(args, asked)
        result = _scored(asked, [answer.prediction for answer in answers])
        about = _about(args, answers, tasks)
        _tell_of_failures(answers)
    if not any(one.final.strip() for one, number in asked if one.steps[number].decision == "finish"):
        _note("No step here has a reference answer, so that R-L says nothing of a model.")
    return as_json(result) if args.json else as_table(result, about)


def _scored(asked: "Sequence[Asked]", predictions: "Sequence[Prediction]") -> "Result":
    from ecoshell.evaluation.umi.metrics import score_step
    from ecoshell.evaluation.umi.scoring import summarise

    pairs = groupby(zip(asked, predictions, strict=True), key=lambda pair: pair[0][0].id)
    return summarise([[score_step(*step, prediction) for step, prediction in group] for _, group in pairs])


def _answers(args: argparse.Namespace, asked: "Sequence[Asked]") -> "list[Answered]":
    """The model's answer to each step: those that stand in the results' file, and the others asked for now."""
    from ecoshell.evaluation.umi.asking import mode_named
    from ecoshell.evaluation.umi.results import Heading, ResultsFile

    mode_named(args.mode)
    heading = Heading.of(args.data, args.model, args.mode)
    keys = [(one.id, number) for one, number in asked]
    with ExitStack() as stack:
        results = stack.enter_context(ResultsFile(args.out or heading.file(), heading))
        before = results.kept(keys)
        missing = [step for step, key in zip(asked, keys, strict=True) if key not in results.known]
        try:
            with _progress(len(keys), before) as advance:

                def told(answered: "Answered") -> None:
                    results.add(answered)
                    advance()

                if missing:
                    asyncio.run(_ask(args, missing, told))
        finally:
            kept = results.kept(keys)
            if kept < len(keys):
                _note(f"{kept:,} of {len(keys):,} steps are kept in {results.path}; the same command goes on there.")
        answers = [results.known[key] for key in keys]
    if args.out is None:
        results.remove()
    return answers


async def _ask(args: argparse.Namespace, steps: "Sequence[Asked]", told: "Callable[[Answered], None]") -> None:
    from ecoshell.evaluation.umi.asking import ask_all, examinee

    async with examinee(args.model, args.mode, args.budget) as one:
        await ask_all(one, steps, told)


def _about(args: argparse.Namespace, answers: "Sequence[Answered]", tasks: int) -> "About":
    from ecoshell.evaluation.umi.report import About

    spent = [answer.spent_nano for answer in answers]
    known = [nano for nano in spent if nano is not None]
    return About(
        args.model,
        args.mode,
        tasks,
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        spent_nano=sum(known) if len(known) == len(spent) else None,
        seconds=sum(answer.seconds for answer in answers),
    )


def _tell_of_failures(answers: "Sequence[Answered]") -> None:
    failed = [answer for answer in answers if answer.error]
    if failed:
        _note(
            f"{len(failed):,} of {len(answers):,} steps have no usable reply and count as wrong; the first, step "
            f"{failed[0].step + 1} of {failed[0].id}: {failed[0].error}"
        )


@contextmanager
def _progress(total: int, done: int) -> Generator[Callable[[], None]]:
    """A bar on standard error where that is a terminal; what it gives is called after each step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, completed=done)
        yield lambda: progress.advance(task)


def _note(text: str) -> None:
    print(visible_line(text), file=sys.stderr)  # noqa: T201 - standard output is for the figures


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST):
        raise UsageError(f"{text!r} is not a number from 1 to {_MOST}.", fix="Give a whole number.")
    return int(text)


def _amount(text: str) -> str:
    from ecoshell.budget.money import parse_amount

    parse_amount(text)
    return text
