"""The arguments of `ecoshell bench umi`, and what they set off."""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.errors import UsageError
from ecoshell.options import ALL_ONE, ROLES, RoleName
from ecoshell_bench.umi.splitting import SPLITS, take
from ecoshell_bench.umi.telling import note, progress

if TYPE_CHECKING:
    from ecoshell_bench.umi.asking import Asked, Players
    from ecoshell_bench.umi.metrics import Prediction
    from ecoshell_bench.umi.report import About
    from ecoshell_bench.umi.results import Answered
    from ecoshell_bench.umi.scoring import Result

GOLD = "gold"
_KINDS = ("livemcp", "bfcl")
_POOL = 20
_MOST = 1_000_000


def add_umi(benchmarks: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:  # pyright: ignore[reportPrivateUsage]
    """Add the benchmark to the others."""
    umi = benchmarks.add_parser("umi", help="how often a model takes the step that a reference takes")
    umi.add_argument("--data", type=Path, metavar="FILE", help="reference trajectories, JSON Lines")
    umi.add_argument("--model", metavar="NAME", help="the model to ask, or gold: the reference itself")
    umi.add_argument("--mode", metavar="NAME", help="who thinks: single, umi (default: single; umi with --role)")
    umi.add_argument(
        "--role", action="append", type=_role, metavar="ROLE=MODEL", help="a role's model in the mode umi; repeatable"
    )
    umi.add_argument(
        "--tokens", action="store_true", help="what a turn takes in each mode; --model says whose price counts"
    )
    umi.add_argument(
        "--split", choices=SPLITS, default="all", help="tasks held back for measuring, the rest, or all (default: all)"
    )
    umi.add_argument("--limit", type=_number, metavar="N", help="the first N steps only; turns with --tokens")
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
    if args.tokens:
        return _tokens(args)
    if args.data is None or args.model is None:
        raise UsageError("A measurement needs --data and --model.", fix="--model gold scores the reference itself.")
    return _measure(args)


def _convert(args: argparse.Namespace) -> str:
    from ecoshell_bench.umi.converting import convert, write

    kind, runs, out = args.convert
    if kind not in _KINDS:
        raise UsageError(f"Runs of {kind!r} cannot be converted.", fix=f"Choose of {', '.join(_KINDS)}.")
    trajectories = convert(kind, Path(runs), args.documents, args.pool)
    write(trajectories, Path(out))
    steps = sum(len(one.steps) for one in trajectories)
    return f"{out}: {steps:,} steps of {len(trajectories):,} tasks."


def _tokens(args: argparse.Namespace) -> str:
    if args.data is None:
        raise UsageError("There is nothing to count without --data.", fix="Name a file of trajectories.")
    _refuse(args, ("mode", "role", "budget", "out"), "With --tokens both modes are counted, and nobody is asked.")
    from ecoshell_bench.umi.tokens import run_tokens

    return run_tokens(args)


def _refuse(args: argparse.Namespace, options: Sequence[str], told: str) -> None:
    """Raise UsageError where one of these options is given."""
    for option in options:
        if getattr(args, option) is not None:
            raise UsageError(told, fix=f"Leave out --{option}.")


def _measure(args: argparse.Namespace) -> str:
    from ecoshell_bench.umi.metrics import gold
    from ecoshell_bench.umi.reference import read_trajectories
    from ecoshell_bench.umi.report import About, as_json, as_table

    trajectories = take(read_trajectories(args.data), args.split)
    asked = [(one, number) for one in trajectories for number in range(len(one.steps))][: args.limit]
    tasks = len({one.id for one, _ in asked})
    if args.model == GOLD:
        _refuse(args, ("out", "role"), "Nobody is asked with --model gold.")
        result = _scored(asked, [gold(*one) for one in asked])
        about = About(GOLD, "none", tasks)
    else:
        players = _players(args)
        answers = _answers(args, players, asked)
        result = _scored(asked, [answer.prediction for answer in answers])
        about = _about(players, answers, tasks)
        _tell_of_failures(answers)
    if not any(one.final.strip() for one, number in asked if one.steps[number].decision == "finish"):
        note("No step here has a reference answer, so that R-L says nothing of a model.")
    return as_json(result) if args.json else as_table(result, about)


def _scored(asked: "Sequence[Asked]", predictions: "Sequence[Prediction]") -> "Result":
    from ecoshell_bench.umi.metrics import score_step
    from ecoshell_bench.umi.scoring import summarise

    pairs = groupby(zip(asked, predictions, strict=True), key=lambda pair: pair[0][0].id)
    return summarise([[score_step(*step, prediction) for step, prediction in group] for _, group in pairs])


def _answers(args: argparse.Namespace, players: "Players", asked: "Sequence[Asked]") -> "list[Answered]":
    """The model's answer to each step: those that stand in the results' file, and the others asked for now."""
    from ecoshell_bench.umi.results import Heading, ResultsFile

    heading = Heading.of(args.data, players)
    keys = [(one.id, number) for one, number in asked]
    with ExitStack() as stack:
        results = stack.enter_context(ResultsFile(args.out or heading.file(), heading))
        before = results.kept(keys)
        missing = [step for step, key in zip(asked, keys, strict=True) if key not in results.known]
        try:
            with progress(len(keys), before) as advance:

                def told(answered: "Answered") -> None:
                    results.add(answered)
                    advance()

                if missing:
                    asyncio.run(_ask(players, args.budget, missing, told))
        finally:
            kept = results.kept(keys)
            if kept < len(keys):
                note(f"{kept:,} of {len(keys):,} steps are kept in {results.path}; the same command goes on there.")
        answers = [results.known[key] for key in keys]
    if args.out is None:
        results.remove()
    return answers


async def _ask(
    players: "Players", budget: str | None, steps: "Sequence[Asked]", told: "Callable[[Answered], None]"
) -> None:
    from ecoshell_bench.umi.asking import ask_all, examinee

    async with examinee(players, budget) as one:
        await ask_all(one, steps, told)


def _players(args: argparse.Namespace) -> "Players":
    from ecoshell_bench.umi.asking import players_of

    given: Sequence[tuple[RoleName, str]] = args.role or ()
    roles = ALL_ONE
    for role, model in given:
        roles = roles.giving(role, model)
    return players_of(args.model, args.mode or ("umi" if given else "single"), roles)


def _about(players: "Players", answers: "Sequence[Answered]", tasks: int) -> "About":
    from ecoshell_bench.umi.report import About

    spent = [answer.spent_nano for answer in answers]
    known = [nano for nano in spent if nano is not None]
    return About(
        _named(players),
        players.mode,
        tasks,
        input_tokens=sum(answer.input_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        spent_nano=sum(known) if len(known) == len(spent) else None,
        seconds=sum(answer.seconds for answer in answers),
    )


def _named(players: "Players") -> str:
    return ", ".join((players.model, *(f"{role} {model}" for role, model in players.named.items())))


def _tell_of_failures(answers: "Sequence[Answered]") -> None:
    failed = [answer for answer in answers if answer.error]
    if failed:
        note(
            f"{len(failed):,} of {len(answers):,} steps have no usable reply; the first, step "
            f"{failed[0].step + 1} of {failed[0].id}: {failed[0].error}"
        )


def _role(text: str) -> tuple[RoleName, str]:
    said, _, model = (part.strip() for part in text.partition("="))
    role: RoleName | None = next((known for known in ROLES if known == said), None)
    if role is None or not model:
        raise UsageError(f"{text!r} gives no role a model.", fix=f"Write ROLE=MODEL; roles are {', '.join(ROLES)}.")
    return role, model


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST):
        raise UsageError(f"{text!r} is not a number from 1 to {_MOST}.", fix="Give a whole number.")
    return int(text)


def _amount(text: str) -> str:
    from ecoshell.budget.money import parse_amount

    parse_amount(text)
    return text
