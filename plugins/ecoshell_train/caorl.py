"""`ecoshell train catp`: train a planner of tool graphs with cost-aware offline reinforcement learning (CATP-LLM §3.2).

A small decision transformer learns the actions of plans given their return: the value of the plan minus its cost so far
at every action. Tasks are split into folds; each fold has a model that has not seen its tasks.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.errors import UsageError
from ecoshell_train import trainer
from ecoshell_train.trainer import Estimate, Progress, Recipe, Tell

if TYPE_CHECKING:
    from ecoshell_train.caorl_data import Example, Recordings
    from ecoshell_train.caorl_planner import Model, Planner, Variant

RECIPE = Recipe(steps=300, batch=32, rate=3e-3, decay=1e-4, every=100)
"""Weight decay and clipping as in the paper (C.2)."""
FOLDS = 5
PLANNER = "planner.npz"
_DROPOUT = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this method."""
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="OpenCATP: constants.json, *_plan_pool.jsonl",
    )
    only = "variants to train: caorl, ift, no-context, no-feedback, no-masking (default: all)"
    add("--only", type=_variants, metavar="NAME,…", help=only)
    add(
        "--folds",
        type=_folds,
        default=FOLDS,
        metavar="N",
        help=f"number of folds (default: {FOLDS})",
    )
    add("--held", type=_folds, metavar="N", help="number of folds to train for (default: all)")


def _variants(text: str) -> tuple[str, ...]:
    from ecoshell_train.caorl_planner import VARIANTS

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if wrong := [name for name in names if name not in VARIANTS]:
        raise UsageError(f"Unknown variant {wrong[0]!r}.", fix=f"Available: {', '.join(VARIANTS)}.")
    return names


def _folds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:3]) <= 99):
        raise UsageError(f"{text!r} is not a number from 1 to 99.", fix="Use a number, such as 4.")
    return int(text)


def estimate(args: argparse.Namespace, recipe: Recipe) -> Estimate:
    """Estimate all runs from the first fold of each variant."""
    runs = [*_trainings(*_read(args), args, recipe)]
    variants: list[Estimate] = []
    for _, (run, *other_parts) in groupby(runs, key=lambda run: run.variant):
        numbers = sum(values.size for values in run.model.weights.values())
        part = trainer.estimate(run, run.examples, recipe, numbers=numbers)
        variants += [part] * (1 + len(other_parts))
    total = variants[0]
    for part in variants[1:]:
        total += part
    return total


def train(args: argparse.Namespace, recipe: Recipe, tell: Tell) -> dict[str, Any]:
    """Train every variant for every fold, and write the planner; raises UsageError, ModelError and StoreError."""
    trainer.require().set_num_threads(1)  # The model is too small for a second thread to help.
    planner, recordings = _read(args)
    models: dict[tuple[str, int], Model] = {}
    curve: list[dict[str, Any]] = []
    for run in _trainings(planner, recordings, args, recipe):

        def report(progress: Progress, stage: str = f"{run.variant} {run.fold + 1}") -> None:
            tell(replace(progress, stage=stage))

        folder = args.out / run.variant / str(run.fold)
        rows = trainer.train(run, run.examples, run.held, recipe, folder, report)
        curve = curve or rows
        weights = {name: value.detach().cpu().numpy() for name, value in run.trained().items()}
        models[run.variant, run.fold] = replace(run.model, weights=weights)
    file = args.out / PLANNER
    replace(planner, models=models).save(file)
    variants = [*dict.fromkeys(variant for variant, _ in models)]
    return {
        "planner": str(file),
        "mb": file.stat().st_size / 1e6,
        "variants": variants,
        "curve": curve,
    }


def _read(args: argparse.Namespace) -> "tuple[Planner, Recordings]":
    """Return a planner without models, and the recordings; raises UsageError."""
    from ecoshell_train.caorl_data import POOLS, Recordings, folds_of, read_constants, read_plans
    from ecoshell_train.caorl_planner import Planner

    constants = read_constants(args.data / "constants.json")
    pools = [args.data / name for name in POOLS if (args.data / name).is_file()]
    if not pools:
        raise UsageError(
            f"{args.data} contains no recorded plans.",
            fix=f"Use a folder with {' or '.join(POOLS)}.",
        )
    recordings = Recordings(read_plans(pools, constants), constants)
    texts = args.data / "task_description.txt"
    try:
        descriptions = (
            texts.read_text(encoding="utf-8").splitlines() if texts.is_file() else list[str]()
        )
    except (OSError, ValueError) as failure:
        raise UsageError(
            f"{texts} cannot be read: {failure}.", fix="Use OpenCATP's file or remove it."
        ) from failure
    tasks = {task: recordings.situation(task, descriptions) for task in sorted(recordings.by_task)}
    if not 2 <= args.folds <= len(tasks):
        raise UsageError(
            f"{len(tasks)} tasks cannot be split into {args.folds} folds.",
            fix="Use --folds from 2 to that number.",
        )
    common = set[str].intersection(*(set(path.words) for path in tasks.values()))
    words = tuple(sorted({word for path in tasks.values() for word in path.words} - common))
    folds, levels = folds_of(tasks, args.folds), tuple(constants.image_size_levels_px)
    return Planner(constants.types, levels, constants.alpha, words, tasks, folds), recordings


def _trainings(
    planner: "Planner", recordings: "Recordings", args: argparse.Namespace, recipe: Recipe
) -> "Iterator[Training]":
    import numpy as np

    from ecoshell_train.caorl_planner import VARIANTS, Model, fresh

    for variant, how in VARIANTS.items():
        if args.only and variant not in args.only:
            continue
        for fold, validation in enumerate(planner.folds[: args.held]):
            tasks = sorted({*planner.tasks} - {*validation})
            examples = recordings.examples(tasks, planner)
            returns = [name.returns(planner.alpha, feedback=how.feedback) for name in examples]
            targets: dict[str, float] = {}
            for name, (first, *_) in zip(examples, returns, strict=True):
                for kind in ("", "+".join(planner.tasks[name.task].outputs)):
                    targets[kind] = max(targets.get(kind, first), first)
            every = np.concatenate(returns)
            scale = float(every.mean()), max(float(every.std()), 1e-6)
            costs = np.array(recordings.costs(tasks), np.float32)
            model = Model(fresh(planner, recipe.seed), costs, targets, scale)
            if how.imitates:
                best: dict[tuple[int, int], Example] = {}  # The best plan for each task and level.
                for name in examples:
                    existing = best.setdefault((name.task, name.level), name)
                    if name.worth(planner.alpha) > existing.worth(planner.alpha):
                        best[name.task, name.level] = name
                examples = [*best.values()]
            yield Training(
                planner, variant, fold, model, examples, recordings.examples(validation, planner)
            )


@dataclass(frozen=True)
class Training:
    """The training of one variant for one fold."""

    planner: "Planner"
    variant: str
    fold: int
    model: "Model"
    examples: "Sequence[Example]"
    held: "Sequence[Example]"
    _trained: dict[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def _how(self) -> "Variant":
        from ecoshell_train.caorl_planner import VARIANTS

        return VARIANTS[self.variant]

    def trained(self) -> Mapping[str, Any]:
        """Return the weights as parameters."""
        if not self._trained:
            torch = trainer.require()
            for name, values in self.model.weights.items():
                self._trained[name] = torch.nn.Parameter(
                    torch.from_numpy(values).to(trainer.device())
                )
        return self._trained

    def tokens(self, example: "Example") -> int:
        """Return the number of tools, words and actions, and the input level."""
        words = len(self.planner.tasks[example.task].words)
        return len(self.planner.language.tools) + words + 1 + len(example.actions)

    def weight(self, example: "Example") -> int:
        """Return the number of actions with alternatives."""
        return sum(len(allowed) > 1 for allowed in self._allowed(example))

    def loss(self, examples: "Sequence[Example]") -> Any:
        """Return the cross entropy of each action over the allowed ones."""
        import numpy as np

        from ecoshell_train.caorl_planner import forward, inputs

        torch = trainer.require()
        alpha, feedback = self.planner.alpha, self._how.feedback
        batch = [
            (
                self.planner.tasks[item.task],
                item.level,
                item.actions,
                item.returns(alpha, feedback=feedback),
            )
            for item in examples
        ]
        arrays = inputs(self.planner, self._how, self.model, batch)
        open_ = np.zeros((*arrays["actions"].shape, self.planner.language.start), bool)
        target = np.full(arrays["actions"].shape, -100, np.int64)
        for row, item in enumerate(examples):
            for step, allowed in enumerate(self._allowed(item)):
                open_[row, step, list(allowed)] = True
                if len(allowed) > 1:
                    target[row, step] = item.actions[step]
        tensors = {
            name: torch.from_numpy(values).to(trainer.device()) for name, values in arrays.items()
        }

        def drop(x: Any) -> Any:
            return torch.nn.functional.dropout(x, _DROPOUT, training=torch.is_grad_enabled())

        scores = forward(self.trained(), tensors, torch, drop).float()
        scores = scores.masked_fill(~torch.from_numpy(open_).to(scores.device), -1e9)
        targets = torch.from_numpy(target).to(scores.device)
        return torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), targets.flatten(), reduction="sum"
        )

    def _allowed(self, example: "Example") -> Sequence[Sequence[int]]:
        """Return the alternatives of each action."""
        if self._how.masking:
            return example.allowed
        return [
            self.planner.language.head(example.actions[:step])
            for step in range(len(example.actions))
        ]
