"""`ecoshell tools`: what an agent can be given, and what each document costs in tokens."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from ecoshell.assembly.parts import load_settings, sources_of, tool_named
from ecoshell.budget.money import counted
from ecoshell.cli.arguments import add_json
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import warn
from ecoshell.errors import ModelError
from ecoshell.models.local import LocalModel
from ecoshell.models.local_models import local_files
from ecoshell.models.tokens import counter_for
from ecoshell.paths import user_paths
from ecoshell.tools.workspace import Workspace, workspace_folder


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """How a document's tokens are counted, and whether that is how the model counts."""

    name: str
    exact: bool
    count: Callable[[str], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_json(parser)
    parser.add_argument("name", nargs="?", help="print this tool's document")


def run(args: argparse.Namespace) -> int:
    """Print all tools, or one tool's document; raises UsageError for an unknown name."""
    name: str | None = args.name
    settings = load_settings(user_paths())
    sources = sources_of(settings, user_paths(), Workspace(workspace_folder()), warn)
    if name is not None:
        wanted = tool_named(name, [tool for _, tool in sources])
        sources = [one for one in sources if one[1] is wanted]
    tokenizer = tokenizer_of(settings.model)
    if args.json:
        # whether sessions begin with every document
        at_once = settings.agent.registration in ("all", "all_text")
        records: list[dict[str, object]] = []
        for source, tool in sources:
            document = tool.document
            records.append(
                {
                    "name": document.name,
                    "source": source,
                    "tokens": tokenizer.count(document.as_text()),
                    "registered": at_once,
                    "effects": sorted(tool.effects),
                    "description": document.description,
                    "parameters": document.parameters,
                }
            )
        print_json({"rows": records, "tokenizer": tokenizer.name, "exact": tokenizer.exact})
    elif name is not None:
        print_json(sources[0][1].document.as_function()["function"])
    else:
        tokens = "tokens" if tokenizer.exact else "≈ tokens"
        rows: list[tuple[str, ...]] = []
        everything = 0
        for _, tool in sources:
            count, effects = tokenizer.count(tool.document.as_text()), ", ".join(sorted(tool.effects)) or "-"
            everything += count
            rows.append((tool.document.name, f"{count:,}", effects, tool.document.description))
        print_table(("tool", tokens, "effects", "what it does"), rows, right=(tokens,))
        known, size = counted(len(rows), "tool"), counted(everything, "token")
        print(f"\n{known}, {size} if all were registered, counted by {tokenizer.name}.")
    return 0


def tokenizer_of(model: str) -> Tokenizer:
    """The model's own tokenizer where it is at hand, else the best estimate."""
    try:
        if files := local_files(model):
            return Tokenizer(model, exact=True, count=LocalModel(files.base).count)
    except ModelError:
        pass  # the list is of use without the model
    counter = counter_for(model)
    counter.wait()
    return Tokenizer(counter.name, counter.exact, counter.count)
