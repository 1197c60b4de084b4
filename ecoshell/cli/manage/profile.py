"""`ecoshell profile`: what a tool takes on inputs of growing size, which planning then reckons with."""

import argparse
import asyncio
import glob
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ecoshell.assembly import load_settings, rules_of, sources_of, tool_named
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json, warn
from ecoshell.errors import ToolError, UsageError
from ecoshell.messages import Call, Footprint, ToolSchema, visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.planning.catp.costs import Profile, ProfiledRun, ProfileStore
from ecoshell.planning.catp.types import FILE, signature
from ecoshell.tools import Tool, limits_of
from ecoshell.tools.running import contained
from ecoshell.tools.workspace import Workspace, workspace_folder

_MOST_INPUTS = 1_000
_MOST_REPEATS = 1_000
_MOST_TEXT = 16 << 20
"""Bytes of a file that is given to a tool as a text."""
_FIX_INPUTS = "Give files of growing size, such as --inputs 'data/*.txt'."


Input = tuple[str, int, Mapping[str, Any]]
"""A file a tool is run on: its name, its bytes, and the arguments it is given with."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the runs on one input took, by their medians; `failed` is what the tool said instead."""

    name: str
    run: ProfiledRun
    failed: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_json(parser)
    add = parser.add_argument
    add("tool", metavar="TOOL", help="its name, as `ecoshell tools` shows it")
    add("--inputs", nargs="+", action="extend", required=True, metavar="FILE", help="files, or patterns in quotes")
    add("--repeat", type=int, default=3, metavar="N", help="runs on each input (default: 3)")
    add("--into", default="", metavar="NAME", help="the argument that takes the file (default: the first that can)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="an argument that is the same on every run")
    add("--yes", action="store_true", help="run it also if it may do more than read")


def run(args: argparse.Namespace) -> int:
    """Profile one tool and keep what it took; raises UsageError and StoreError."""
    _check_count("--repeat", args.repeat, _MOST_REPEATS)
    settings = load_settings(user_paths())
    sources = sources_of(settings, user_paths(), Workspace(workspace_folder()), warn)
    tool = tool_named(args.tool, [tool for _, tool in sources])
    inputs = _inputs(args.inputs, tool.schema, args.into, _given(args.set))
    rules = rules_of(settings, Options(yes=args.yes), user_paths())
    name = tool.schema.name
    for file, _, arguments in inputs:  # a tool that may do more than read has all its runs allowed beforehand
        judged = rules.judge(Call(name, dict(arguments)), tool)
        if judged.verdict == "deny":
            raise UsageError(f"The settings deny {name} on {file}: {judged.why}.", fix="See [approval] deny.")
        if judged.always_asks:
            raise UsageError(f"{name} is not run again and again on {file}. {judged.why}")
        if judged.verdict == "ask":
            effects = ", ".join(sorted(tool.effects)) or "nothing"
            raise UsageError(f"{name} may {effects}, and would run again and again.", fix="Say --yes if it may.")
    rows = asyncio.run(_measure(tool, inputs, args.repeat))
    runs = [row.run for row in rows if not row.failed]
    if not runs:
        raise ToolError(f"{args.tool} failed on every input: {rows[0].failed}", kept="Nothing was kept.")
    profile = Profile.of(runs)
    assert profile is not None  # there are runs
    with closing(ProfileStore(user_paths().profiles_file)) as store:
        store.replace(name, datetime.now(UTC).isoformat(timespec="seconds"), runs)
    if args.json:
        # prices are texts, in OpenCATP's units; sizes are bytes, memory is in MB of 2^20, unknown is null
        measured: list[dict[str, Any]] = []
        for row in rows:
            price = None if row.failed else f"{row.run.price():.6e}"
            took = {"size": row.run.size, "ms": round(row.run.milliseconds, 3), **asdict(row.run.footprint)}
            measured.append({"input": row.name, **took, "price": price, "failed": row.failed or None})
        costs = zip(profile.levels, profile.vector.costs, profile.vector.measured, strict=True)
        levels = [{"size": centre, "price": f"{cost:.6e}", "measured": here} for centre, cost, here in costs]
        print_json({"tool": name, "repeat": args.repeat, "runs": measured, "levels": levels})
    else:
        _print(name, rows, profile)
    return 0


def _check_count(name: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise UsageError(f"{name} {count} is not from 1 to {most:,}.", fix="Give a whole number, such as 5.")


def _given(pairs: Sequence[str]) -> dict[str, Any]:
    """Arguments that are the same on every run, `name=value`; a value that is JSON is taken as that."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"--set {pair!r} names no argument and value.", fix="Say --set NAME=VALUE.")
        try:
            given[name] = json.loads(value)
        except (ValueError, RecursionError):
            given[name] = value
    return given


def _inputs(patterns: Iterable[str], tool_schema: ToolSchema, into: str, given: Mapping[str, Any]) -> list[Input]:
    """The files, smallest first, each as arguments of the tool; raises UsageError."""
    properties: Mapping[str, Any] = tool_schema.parameters.get("properties") or {}
    if into and into not in properties:
        known = ", ".join(properties) or "none"
        raise UsageError(f"{tool_schema.name} has no argument {into!r}.", fix=f"It has: {known}.")
    each = {name: ToolSchema("", "", {"properties": {name: schema}}) for name, schema in properties.items()}
    paths = [name for name, alone in each.items() if FILE in signature(alone).takes]
    texts = [name for name, schema in properties.items() if schema.get("type") == "string"]
    takes_file = [into] if into else [name for name in (*paths, *texts) if name not in given]
    if not takes_file:
        raise UsageError(f"No argument of {tool_schema.name} takes a file.", fix="Name one with --into.")
    argument, by_path = takes_file[0], takes_file[0] in paths  # else it takes the file's text
    found: list[str] = []
    for pattern in patterns:
        try:
            named_here = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - it may be absolute
            files = [name for name in named_here if Path(name).is_file()]
        except OSError as failure:  # as of a name that is too long
            raise UsageError(f"{pattern!r} cannot be read: {failure.strerror}.", fix=_FIX_INPUTS) from failure
        if not files:
            raise UsageError(f"No file is called {pattern!r}, or is like it.", fix=_FIX_INPUTS)
        found += files
    names = [*dict.fromkeys(found)]
    _check_count("The number of inputs", len(names), _MOST_INPUTS)
    inputs: list[Input] = []
    for file in map(Path, names):
        try:
            size = file.stat().st_size
            if not by_path and size > _MOST_TEXT:
                raise UsageError(f"{file} is too large to be given as a text.", fix="Give files of at most 16 MB.")
            value = str(file) if by_path else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            raise UsageError(f"{file} cannot be read: {failure}.", fix=_FIX_INPUTS) from failure
        inputs.append((str(file), size, {**given, argument: value}))
    return sorted(inputs, key=lambda one: (one[1], one[0]))


async def _measure(tool: Tool, inputs: Sequence[Input], repeat: int) -> list[Row]:
    """Run the tool on each input; a run before that loads what it needs, and does not count."""
    limits = limits_of(tool)
    await contained(tool, inputs[0][2], limits)
    rows: list[Row] = []
    for name, size, arguments in inputs:
        seen = [await contained(tool, arguments, limits) for _ in range(repeat)]
        medians: dict[str, float] = {}  # of what is known
        for field in fields(Footprint):
            figures = [getattr(run.footprint, field.name) for run in seen if run.footprint is not None]
            if known := [figure for figure in figures if figure is not None]:
                medians[field.name] = statistics.median(known)
        milliseconds = statistics.median(run.seconds * 1000 for run in seen)
        failed = next((run.text for run in seen if not run.ok), "")
        rows.append(Row(name, ProfiledRun(size, milliseconds, Footprint(**medians)), failed))
    return rows


def _print(tool: str, rows: Sequence[Row], profile: Profile) -> None:
    cells: list[tuple[str, ...]] = []
    for row in rows:
        held = row.run.footprint
        price = f"failed: {visible_line(row.failed)}" if row.failed else f"{row.run.price():.2e}"
        memory = (held.cpu_mb, held.cpu_instant_mb, held.gpu_mb)
        figures = ("unknown" if figure is None else f"{figure:.1f}" for figure in memory)
        cells.append((row.name, f"{row.run.size:,}", f"{row.run.milliseconds:.2f}", *figures, price))
    right = ("bytes", "ms", "MB held", "MB peak", "GPU MB", "price units")
    print_table(("input", *right), cells, right=right)
    print()
    levels = zip(profile.levels, profile.vector.costs, strict=True)
    print_table(
        ("size level", "around bytes", "price units"),
        [(str(place), f"{centre:,.0f}", f"{cost:.2e}") for place, (centre, cost) in enumerate(levels, start=1)],
        right=("size level", "around bytes", "price units"),
    )
    print(f"\nKept for planning: {tool} costs {profile.usual:.2e} units; [plan] resource_price gives them a worth.")
