"""`ecoshell bench umi`: how often a model takes the step that a reference takes (α-UMi, Appendix C)."""

import argparse
import asyncio
import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path

from ecoshell.budget import amount_text
from ecoshell.errors import UsageError
from ecoshell.messages import visible_line
from ecoshell.options import NO_ROLE_MODELS
from ecoshell.paths import user_paths
from ecoshell_bench.printing import note, progress, show, show_record
from ecoshell_bench.results import ResultsFile, known_sum
from ecoshell_bench.umi.asking import Answered, Asked, ModelSetup, ask_all
from ecoshell_bench.umi.metrics import as_record, gold, score_step, summarise
from ecoshell_bench.umi.reference import KINDS, convert, write
from ecoshell_train.trajectories import read_trajectories

GOLD = "gold"


def run(args: argparse.Namespace) -> int:
    """Measure, count tokens, or convert; raises UsageError and EcoshellError."""
    if args.convert is not None:
        kind, runs, out = args.convert
        if kind not in KINDS:
            raise UsageError(f"Runs of {kind!r} cannot be converted.", fix=f"Choose of {', '.join(KINDS)}.")
        trajectories = convert(kind, Path(runs), args.documents, args.pool)
        write(trajectories, Path(out))
        steps = sum(len(one.steps) for one in trajectories)
        show(f"{out}: {steps:,} steps of {len(trajectories):,} tasks.")
    elif args.tokens:
        if args.data is None:
            raise UsageError("There is nothing to count without --data.", fix="Name a file of trajectories.")
        _refuse(args, ("mode", "role", "budget", "out"), "With --tokens both modes are counted, and nobody is asked.")
        from ecoshell_bench.umi.tokens import run_tokens

        run_tokens(args)
    elif args.data is None or args.model is None:
        raise UsageError("A measurement needs --data and --model.", fix="--model gold scores the reference itself.")
    else:
        _measure(args)
    return 0


def _refuse(args: argparse.Namespace, options: Sequence[str], told: str) -> None:
    """Raise UsageError where one of these options is given."""
    for option in options:
        if getattr(args, option) is not None:
            raise UsageError(told, fix=f"Leave out --{option}.")


def _measure(args: argparse.Namespace) -> None:
    trajectories = read_trajectories(args.data, args.split)
    asked = [(one, number) for one in trajectories for number in range(len(one.steps))][: args.limit]
    about = f"{len(asked):,} steps of {len({one.id for one, _ in asked}):,} tasks."
    if args.model == GOLD:
        _refuse(args, ("out", "role"), "Nobody is asked with --model gold.")
        predictions, about = [gold(*one) for one in asked], f"The reference beside itself: {about}"
    else:
        roles = NO_ROLE_MODELS
        for role, model in args.role or ():
            roles = roles.with_role(role, model)
        setup = ModelSetup.of(args.model, args.mode or ("umi" if args.role else "single"), roles)
        answers = _answers(args, setup, asked)
        predictions = [answer.prediction for answer in answers]
        spent = known_sum(answer.spent_nano for answer in answers)
        price = "unknown" if spent is None else amount_text(spent, "usd")
        said, written = (sum(getattr(one, f"{way}_tokens") for one in answers) for way in ("input", "output"))
        about = (
            f"{', '.join((setup.model, *(f'{role} {model}' for role, model in setup.named.items())))}, mode "
            f"{setup.mode}: {about}\nTokens in {said:,}, out {written:,}; price {price}; "
            f"{sum(answer.seconds for answer in answers):,.1f} s."
        )
        if failed := [answer for answer in answers if answer.error]:
            note(
                f"{len(failed):,} of {len(answers):,} steps have no usable reply; the first, step "
                f"{failed[0].step + 1} of {visible_line(f'{failed[0].id}: {failed[0].error}')}"
            )
    if not any(one.final.strip() for one, number in asked if one.steps[number].decision == "finish"):
        note("No step here has a reference answer, so that R-L says nothing of a model.")
    pairs = groupby(zip(asked, predictions, strict=True), key=lambda pair: pair[0][0].id)
    result = summarise([[score_step(*step, prediction) for step, prediction in group] for _, group in pairs])
    show_record(as_record(result), as_json=args.json, notes=about)


def _answers(args: argparse.Namespace, setup: ModelSetup, asked: Sequence[Asked]) -> list[Answered]:
    """The model's answer to each step: those that stand in the results' file, and the others asked for now.

    An answer is the same whatever else was asked, so that the file does not say which steps are.
    """
    data = hashlib.sha256(args.data.read_bytes()).hexdigest()
    heading = {"data": data, "model": setup.model, "mode": setup.mode, "roles": setup.named}
    digest = hashlib.sha256(json.dumps(heading).encode()).hexdigest()[:16]
    place: Path = args.out or user_paths().data / "bench" / f"umi-{digest}.jsonl"
    keys = [(one.id, number) for one, number in asked]
    with closing(ResultsFile(place, heading, Answered)) as results:

        def kept() -> int:
            return sum(key in results.by_key for key in keys)

        def told(answered: Answered) -> None:
            results.add(answered)
            advance()

        try:
            with progress(len(keys), kept()) as advance:
                if missing := [step for step, key in zip(asked, keys, strict=True) if key not in results.by_key]:
                    asyncio.run(ask_all(setup, args.budget, missing, told))
        finally:
            if (there := kept()) < len(keys):
                note(f"{there:,} of {len(keys):,} steps are kept in {place}; the same command goes on there.")
    if args.out is None:
        place.unlink(missing_ok=True)
    return [results.by_key[key] for key in keys]
