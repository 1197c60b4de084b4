"""`ecoshell train`: train local models for the requests of the shell."""

import argparse
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.cli.manage.show import print_json
from ecoshell.cli.parser import Parser, add_actions
from ecoshell.errors import UsageError
from ecoshell.messages import visible

if TYPE_CHECKING:
    from ecoshell_train.trainer import Progress, Recipe, Tell

METHODS: Mapping[str, tuple[str, str]] = {
    "umi": ("ecoshell_train.umi", "adapters for choosing, calling and answering (GLPFT, SPEC §4)"),
    "catp": ("ecoshell_train.caorl", "a planner of tool graphs (CAORL, SPEC §3)"),
}
"""The module and the description of each method.

A module has `RECIPE`, `add_arguments(parser)`, `estimate(args, recipe)` and `train(args, recipe, tell)`. The last
writes to the folder `args.out` and returns a mapping for JSON, with the rows of the curve as `curve`.
"""

_NUMBERS: Mapping[str, str] = {
    "steps": "optimizer steps",
    "batch": "examples per step",
    "rate": "the highest learning rate",
    "tokens": "tokens per forward pass, at most",
    "every": "steps between checkpoints",
    "seed": "random seed",
}
"""The numeric options of a recipe."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the methods and their options."""
    add = add_actions(parser, default="")
    for name, (module, about) in METHODS.items():
        method = add(name, about)
        if isinstance(method, Parser):
            method.add_own_arguments = partial(_fill, module)


def _fill(module: str, parser: argparse.ArgumentParser) -> None:
    """Load a method and add the common options and its own to its parser."""
    method = import_module(module)
    usual: Recipe = method.RECIPE

    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the run's folder; an existing run is continued"
    )
    for name, about in _NUMBERS.items():
        default: float = getattr(usual, name)
        text, kind = f"{about} (default: {default:g})", partial(_positive, type(default))
        parser.add_argument(f"--{name}", type=kind, default=default, metavar="N", help=text)
    parser.add_argument(
        "--dry-run", action="store_true", help="estimate the effort without training"
    )
    method.add_arguments(parser)


def _positive(kind: type[int] | type[float], text: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise UsageError(f"{text!r} is not a number above 0.", fix="Use a number, such as 8.")
    return value


def run(args: argparse.Namespace) -> int:
    """Train or estimate the effort; raises UsageError, ModelError and StoreError."""
    if not args.action:
        raise UsageError("No method was given.", fix=f"Available: {', '.join(METHODS)}.")
    method = import_module(METHODS[args.action][0])
    recipe = replace(method.RECIPE, **{name: getattr(args, name) for name in _NUMBERS})
    if args.dry_run:
        estimate = method.estimate(args, recipe)
        if args.json:
            print_json(
                {name: value for name, value in asdict(estimate).items() if name != "note" or value}
            )
        else:
            hours = (
                "unknown (ecoshell[train] is not installed)"
                if estimate.hours is None
                else f"{estimate.hours:.2f}"
            )
            print(
                f"{estimate.tokens:,} tokens, {estimate.steps:,} steps, hours: {hours}, {estimate.disk_mb:.1f} MB"
            )
            if estimate.note:
                print(visible(estimate.note))
        return 0
    if args.out is None:
        from ecoshell.paths import user_paths

        args.out = user_paths().data / "training" / args.action
    with _bars(quiet=args.json) as tell:
        results: dict[str, Any] = method.train(args, recipe, tell)
    curve = results.pop("curve", [])
    if args.json:
        print_json(results)
        return 0
    from ecoshell_train.trainer import plotted

    print(plotted(curve))
    for name, value in results.items():
        print(f"{name}: {visible(str(value))}")
    return 0


@contextmanager
def _bars(*, quiet: bool) -> "Generator[Tell]":
    """Display progress on standard error: a bar for each stage, its losses and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars

    stages: dict[str, TaskID] = {}
    stage, losses = TextColumn("{task.description}"), TextColumn("{task.fields[status]}")
    with Bars(
        stage,
        BarColumn(),
        MofNCompleteColumn(),
        losses,
        console=Console(stderr=True),
        disable=quiet,
    ) as bars:

        def tell(progress: "Progress") -> None:
            if progress.note and not quiet:
                bars.console.print(progress.note, markup=False)
            if progress.stage not in stages:
                stages[progress.stage] = bars.add_task(
                    progress.stage, total=progress.steps, status=""
                )
            status = "" if progress.loss is None else f"loss {progress.loss:.3f}"
            if progress.validation is not None:
                status += f", validation {progress.validation:.3f}"
            if progress.seconds_left is not None:
                status += f", {progress.seconds_left / 60:.0f} min left"
            bars.update(stages[progress.stage], completed=progress.step, status=status)

        yield tell
