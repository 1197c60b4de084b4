"""`ecoshell experience train`: the classifier of results, from what the person marked, and how good it is."""

import argparse
from contextlib import closing
from pathlib import Path

from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import ExperienceStore
from ecoshell.planning.judging.classifier import Accuracy, Training, save, train


def run(args: argparse.Namespace) -> int:
    """Train, keep and report; raises UsageError for too few marks, and StoreError."""
    paths = user_paths()
    with closing(ExperienceStore(paths.experience_file)) as store:
        training = train(store.uses(), all_judged=args.all_judged)
    save(training.classifier, paths.judge_file)
    if args.json:
        print_json(_record(training, paths.judge_file))
    else:
        _print(training, paths.judge_file)
    return 0


def _record(training: Training, file: Path) -> dict[str, object]:
    return {
        "file": str(file),
        "examples": training.helpful + training.unhelpful,
        "helpful": training.helpful,
        "unhelpful": training.unhelpful,
        "left_out": training.left_out,
        "folds": training.folds,
        "accuracy": {name: {"mean": found.mean, "spread": found.spread} for name, found in _rows(training).items()},
        "pays": training.pays,
    }


def _print(training: Training, file: Path) -> None:
    print(f"Trained on {training.helpful} helpful and {training.unhelpful} unhelpful results.")
    if training.left_out:
        print(f"{training.left_out} others say nothing about their tool (a mistake in the call) and were left out.")
    print(f"\nRight on results not seen in training, {training.folds}-fold cross-validation:")
    cells = [(name, f"{found.mean:.1%} ± {found.spread:.1%}") for name, found in _rows(training).items()]
    print_table(("judge", "accuracy"), cells, right=("accuracy",))
    print(f"\nKept in {file}.")
    if training.pays:
        print("It judges once you say so: ecoshell config set plan.judge classifier")
    else:
        print("Warning: it is no better than what needs no training. Mark more results before you set plan.judge.")


def _rows(training: Training) -> dict[str, Accuracy]:
    return {"classifier": training.accuracy, "rules": training.rules, "majority": training.majority}
