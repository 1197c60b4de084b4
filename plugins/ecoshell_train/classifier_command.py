"""`ecoshell experience train`: train the classifier of tool results on the results that the user marked."""

import argparse
from contextlib import closing

from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import ExperienceStore
from ecoshell_train.classifier import save
from ecoshell_train.classifier_training import Training, train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the action."""
    parser.add_argument(
        "--all-judged", action="store_true", help="also learn from judgments of rules and models"
    )


def run(args: argparse.Namespace) -> int:
    """Train, save and report; raises UsageError and StoreError."""
    file = user_paths().judge_file
    with closing(ExperienceStore(user_paths().experience_file)) as store:
        training = train(store.uses(), all_judged=args.all_judged)
    save(training.classifier, file)
    accuracies = {
        "classifier": training.accuracy,
        "rules": training.rules,
        "majority": training.majority,
    }
    if args.json:
        print_json(
            {
                "file": str(file),
                "examples": training.helpful + training.unhelpful,
                "helpful": training.helpful,
                "unhelpful": training.unhelpful,
                "left_out": training.skipped,
                "folds": training.folds,
                "accuracy": {
                    name: {"mean": item.mean, "spread": item.spread}
                    for name, item in accuracies.items()
                },
                "pays": training.pays,
            }
        )
        return 0
    _print_report(training)
    cells = [(name, f"{item.mean:.1%} ± {item.spread:.1%}") for name, item in accuracies.items()]
    print_table(("judge", "accuracy"), cells, right=("accuracy",))
    print(f"\nSaved to {file}.")
    if training.pays:
        print("Use it as the judge: ecoshell config set plan.judge classifier")
    else:
        print(
            "Warning: judges without training are at least as accurate. Mark more results before you set plan.judge."
        )
    return 0


def _print_report(training: Training) -> None:
    print(f"Trained on {training.helpful} helpful and {training.unhelpful} unhelpful results.")
    if training.skipped:
        print(
            f"Skipped {training.skipped} results that say nothing about their tool (mistakes in the call)."
        )
    print(f"\nAccuracy on results not seen in training, {training.folds}-fold cross-validation:")
