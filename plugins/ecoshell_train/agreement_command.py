"""`ecoshell experience apprentice`: which calls of paid models the apprentice predicts, and what that would save."""

import argparse
from contextlib import closing

from ecoshell.agent.command_table import dollars
from ecoshell.budget import nano_to_usd_text
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.paths import user_paths
from ecoshell_train.agreement import Agreement, Predictions, agreements


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the action has only `--json`."""


def run(args: argparse.Namespace) -> int:
    """Print the agreement for each tool; raises StoreError."""
    with closing(Predictions.under(user_paths())) as records:
        results = agreements(records.of())
    if args.json:
        print_json({"rows": [_record(item) for item in results]})
        return 0
    if not results:
        print("Nothing was predicted yet: [plugins.train] apprentice names the model that does.")
        return 0
    cells = [
        (
            item.model,
            item.tool,
            f"{item.alike} of {item.uses}",
            f"{item.lower:.0%}",
            "yes" if item.good else "no",
            dollars(item.saved_nano),
        )
        for item in results
    ]
    head = ("model", "tool", "matches", "at least", "good", "would save")
    print_table(head, cells, right=("matches", "at least", "would save"))
    total = sum(item.saved_nano for item in results if item.good)
    print(f"\nFor the tools predicted well, it would have saved {dollars(total)}.")
    return 0


def _record(item: Agreement) -> dict[str, object]:
    """Return an agreement as JSON."""
    return {
        "model": item.model,
        "tool": item.tool,
        "uses": item.uses,
        "alike": item.alike,
        "lower": round(item.lower, 4),
        "good": item.good,
        "would_save_usd": nano_to_usd_text(item.saved_nano),
    }
