"""`ecoshell bench umi`: measure a model, count tokens, or convert recorded data (α-UMi, Appendix C)."""

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
from ecoshell_bench.umi.asking import ModelAnswer, ModelSetup, StepId, ask_all
from ecoshell_bench.umi.metrics import as_record, gold, score_step, summarise
from ecoshell_bench.umi.reference import KINDS, convert, write
from ecoshell_train.trajectories import Trajectory, read_trajectories

GOLD = "gold"


def run(args: argparse.Namespace) -> int:
    """Measure, count tokens, or convert; raises UsageError and EcoshellError."""
    if args.convert is not None:
        kind, runs, out = args.convert
        if kind not in KINDS:
            raise UsageError(
                f"Runs of {kind!r} cannot be converted.", fix=f"Available: {', '.join(KINDS)}."
            )
        trajectories = convert(kind, Path(runs), args.documents, args.pool)
        write(trajectories, Path(out))
        steps = sum(len(trajectory.steps) for trajectory in trajectories)
        show(f"{out}: {steps:,} steps of {len(trajectories):,} tasks.")
    elif args.tokens:
        if args.data is None:
            raise UsageError("--tokens needs --data.", fix="Give a file of trajectories.")
        _refuse(
            args,
            ("mode", "role", "budget", "out"),
            "--tokens counts both modes without asking a model.",
        )
        from ecoshell_bench.umi.tokens import run_tokens

        run_tokens(args)
    elif args.data is None or args.model is None:
        raise UsageError(
            "A measurement needs --data and --model.",
            fix="--model gold scores the reference itself.",
        )
    else:
        _measure(args)
    return 0


def _refuse(args: argparse.Namespace, options: Sequence[str], message: str) -> None:
    """Raise UsageError if one of these options is set."""
    for option in options:
        if getattr(args, option) is not None:
            raise UsageError(message, fix=f"Remove --{option}.")


def _measure(args: argparse.Namespace) -> None:
    trajectories = read_trajectories(args.data, args.split)
    steps = [
        (trajectory, number)
        for trajectory in trajectories
        for number in range(len(trajectory.steps))
    ]
    steps = steps[: args.limit]
    notes = f"{len(steps):,} steps of {len({trajectory.id for trajectory, _ in steps}):,} tasks."
    if args.model == GOLD:
        _refuse(args, ("out", "role"), "--model gold asks no model.")
        predictions, notes = (
            [gold(*step) for step in steps],
            f"The reference compared with itself: {notes}",
        )
    else:
        roles = NO_ROLE_MODELS
        for role, model in args.role or ():
            roles = roles.with_role(role, model)
        setup = ModelSetup.of(args.model, args.mode or ("umi" if args.role else "single"), roles)
        answers = _answers(args, setup, steps)
        predictions = [answer.prediction for answer in answers]
        notes = _summary(setup, answers, notes)
        if failed := [answer for answer in answers if answer.error]:
            note(
                f"{len(failed):,} of {len(answers):,} steps have no usable reply; the first, step "
                f"{failed[0].step + 1} of {visible_line(f'{failed[0].id}: {failed[0].error}')}"
            )
    if not any(
        trajectory.final.strip() for trajectory, number in steps if _finishes(trajectory, number)
    ):
        note("No step has a reference answer, so R-L is not meaningful.")
    pairs = groupby(zip(steps, predictions, strict=True), key=lambda pair: pair[0][0].id)
    result = summarise(
        [[score_step(*step, prediction) for step, prediction in group] for _, group in pairs]
    )
    show_record(as_record(result), as_json=args.json, notes=notes)


def _finishes(trajectory: Trajectory, number: int) -> bool:
    return trajectory.steps[number].decision == "finish"


def _summary(setup: ModelSetup, answers: Sequence[ModelAnswer], steps: str) -> str:
    """Describe the models, the steps, the tokens, the price and the time of a run."""
    spent = known_sum(answer.spent_nano for answer in answers)
    price = "unknown" if spent is None else amount_text(spent, "usd")
    models = ", ".join(
        (setup.model, *(f"{role} {model}" for role, model in setup.role_models.items()))
    )
    return (
        f"{models}, mode {setup.mode}: {steps}\n"
        f"Tokens in {sum(answer.input_tokens for answer in answers):,}, "
        f"out {sum(answer.output_tokens for answer in answers):,}; price {price}; "
        f"{sum(answer.seconds for answer in answers):,.1f} s."
    )


def _answers(
    args: argparse.Namespace, setup: ModelSetup, steps: Sequence[StepId]
) -> list[ModelAnswer]:
    """Return the model's answer to each step, from the results file or by asking now.

    Answers do not depend on other steps, so the file's heading does not list the steps.
    """
    data = hashlib.sha256(args.data.read_bytes()).hexdigest()
    heading = {"data": data, "model": setup.model, "mode": setup.mode, "roles": setup.role_models}
    digest = hashlib.sha256(json.dumps(heading).encode()).hexdigest()[:16]
    path: Path = args.out or user_paths().data / "bench" / f"umi-{digest}.jsonl"
    keys = [(trajectory.id, number) for trajectory, number in steps]
    with closing(ResultsFile(path, heading, ModelAnswer)) as results:

        def done() -> int:
            return sum(key in results.by_key for key in keys)

        def add(answer: ModelAnswer) -> None:
            results.add(answer)
            advance()

        try:
            with progress(len(keys), done()) as advance:
                if missing := [
                    step for step, key in zip(steps, keys, strict=True) if key not in results.by_key
                ]:
                    asyncio.run(ask_all(setup, args.budget, missing, add))
        finally:
            if (count := done()) < len(keys):
                note(
                    f"{count:,} of {len(keys):,} steps are kept in {path}; repeat the command to resume."
                )
    if args.out is None:
        path.unlink(missing_ok=True)
    return [results.by_key[key] for key in keys]
