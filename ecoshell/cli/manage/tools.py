"""`ecoshell tools`: what an agent can be given, and what each document costs in tokens."""

import argparse
from contextlib import suppress

from ecoshell.assembly import load_settings, sources_of, tool_named
from ecoshell.budget import counted
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json, warn
from ecoshell.errors import ModelError
from ecoshell.models.local import LocalModel
from ecoshell.models.local_models import local_files
from ecoshell.models.tokens import counter_for
from ecoshell.paths import user_paths
from ecoshell.tools.workspace import Workspace, workspace_folder


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
    tokenizer, exact, count = "", True, None
    with suppress(ModelError):  # the list is of use without the model
        if files := local_files(settings.model):
            tokenizer, count = settings.model, LocalModel(files.base).count
    if count is None:  # the best estimate there is
        counter = counter_for(settings.model)
        counter.wait()
        tokenizer, exact, count = counter.name, counter.exact, counter.count
    if args.json:
        # whether sessions begin with every document
        at_once = settings.agent.registration in ("all", "all_text")
        records: list[dict[str, object]] = [
            {
                "name": tool.schema.name,
                "source": source,
                "tokens": count(tool.schema.as_text()),
                "registered": at_once,
                "effects": sorted(tool.effects),
                "description": tool.schema.description,
                "parameters": tool.schema.parameters,
            }
            for source, tool in sources
        ]
        print_json({"rows": records, "tokenizer": tokenizer, "exact": exact})
    elif name is not None:
        print_json(sources[0][1].schema.as_function()["function"])
    else:
        tokens = "tokens" if exact else "≈ tokens"
        rows: list[tuple[str, ...]] = []
        everything = 0
        for _, tool in sources:
            size, effects = count(tool.schema.as_text()), ", ".join(sorted(tool.effects)) or "-"
            everything += size
            rows.append((tool.schema.name, f"{size:,}", effects, tool.schema.summary))
        print_table(("tool", tokens, "effects", "what it does"), rows, right=(tokens,))
        known, tokens = counted(len(rows), "tool"), counted(everything, "token")
        print(f"\n{known}, {tokens} if all were registered, counted by {tokenizer}.")
    return 0
