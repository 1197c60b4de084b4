"""`ecoshell tools`: list the tools and skills with their sizes."""

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ecoshell.assembly import load_settings, sources_of, tool_named, usable_skills
from ecoshell.budget import counted
from ecoshell.catalog.catalog import Skill
from ecoshell.cli.fence import warn
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json
from ecoshell.errors import ModelError
from ecoshell.messages import visible
from ecoshell.models.local import LocalModel
from ecoshell.models.local_models import local_files
from ecoshell.models.tokens import counter_for
from ecoshell.paths import user_paths
from ecoshell.tools import Tool
from ecoshell.tools.workspace import Workspace, workspace_folder


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Counts tokens as the session's model does, exactly or by an estimate."""

    name: str
    count: Callable[[str], int]
    exact: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    parser.add_argument("name", nargs="?", help="print the schema of this tool")


def run(args: argparse.Namespace) -> int:
    """Print all tools and skills, or the schema or text of one; raises UsageError for an unknown name."""
    name: str | None = args.name
    settings, workspace = load_settings(user_paths()), Workspace(workspace_folder())
    sources = sources_of(settings, user_paths(), workspace, warn)
    tool_names = {tool.schema.name for _, tool in sources}
    skills = usable_skills(settings, user_paths(), workspace, tool_names, warn)
    if name is not None and (named := [skill for skill in skills if skill.name == name]):
        sources, skills = [], named
    elif name is not None:
        skills = ()
        tool = tool_named(name, [tool for _, tool in sources])
        sources = [source for source in sources if source[1] is tool]
    if args.json:
        has_all_schemas = settings.agent.registration in ("all", "all_text")
        tokenizer = _tokenizer(settings.model)
        records: list[dict[str, object]] = [
            {
                "name": tool.schema.name,
                "source": source,
                "tokens": tokenizer.count(tool.schema.as_text()),
                "registered": has_all_schemas,
                "effects": sorted(tool.effects),
                "description": tool.schema.description,
                "parameters": tool.schema.parameters,
            }
            for source, tool in sources
        ]
        more: list[dict[str, object]] = [
            {
                "name": skill.name,
                "source": "skill",
                "tokens": tokenizer.count(skill.text()),
                "registered": False,
                "effects": [],
                "description": skill.description,
                "file": skill.source,
            }
            for skill in skills
        ]
        print_json(
            {"rows": [*records, *more], "tokenizer": tokenizer.name, "exact": tokenizer.exact}
        )
    elif name is not None and skills:
        print(visible(skills[0].text()))
    elif name is not None:
        print_json(sources[0][1].schema.as_function()["function"])
    else:
        _print_tools([tool for _, tool in sources], skills, _tokenizer(settings.model))
    return 0


def _tokenizer(model: str) -> Tokenizer:
    with suppress(ModelError):  # the list does not need a local model's file
        if files := local_files(model):
            return Tokenizer(model, LocalModel(files.base).count, exact=True)
    counter = counter_for(model)
    counter.wait()
    return Tokenizer(counter.name, counter.count, counter.exact)


def _print_tools(tools: Sequence[Tool], skills: Sequence[Skill], tokenizer: Tokenizer) -> None:
    sizes = [tokenizer.count(tool.schema.as_text()) for tool in tools]
    head = "tokens" if tokenizer.exact else "≈ tokens"
    rows = [
        (tool.schema.name, f"{size:,}", ", ".join(sorted(tool.effects)) or "-", tool.schema.summary)
        for tool, size in zip(tools, sizes, strict=True)
    ]
    print_table(("tool", head, "effects", "description"), rows, right=(head,))
    total = f"{counted(len(tools), 'tool')}, {counted(sum(sizes), 'token')}"
    print(f"\n{total} if all were registered, counted by {tokenizer.name}.")
    if skills:
        print()
        loaded = [
            (skill.name, f"{tokenizer.count(skill.text()):,}", skill.schema.summary)
            for skill in skills
        ]
        print_table(("skill", head, "description"), loaded, right=(head,))
