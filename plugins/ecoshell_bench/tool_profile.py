"""`ecoshell profile`: measure a tool's time and memory on inputs of growing size, for planning."""

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

from ecoshell.agent.rules import Rules
from ecoshell.assembly import load_settings, rules_of, sources_of, tool_named
from ecoshell.cli.fence import warn
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_json
from ecoshell.errors import ToolError, UsageError
from ecoshell.messages import Call, Footprint, ToolSchema, visible_line
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.planning.catp.costs import Profile, ProfiledRun, ProfileStore
from ecoshell.planning.catp.types import FILE, signature
from ecoshell.tools import Tool, limits_of
from ecoshell.tools.running import contained
from ecoshell.tools.workspace import Workspace, workspace_folder

_MAX_INPUTS = 1_000
_MAX_REPEATS = 1_000
_MAX_TEXT_BYTES = 16 << 20
"""Size of a file whose content is passed to a tool as text."""
_INPUTS_FIX = "Give files of growing size, such as --inputs 'data/*.txt'."


@dataclass(frozen=True, slots=True)
class Input:
    """A file and the arguments with which the tool runs on it."""

    name: str
    size: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The medians of the runs on one input; `failure` is the tool's error, if any run failed."""

    name: str
    run: ProfiledRun
    failure: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    add = parser.add_argument
    add("tool", metavar="TOOL", help="name of the tool, as in `ecoshell tools`")
    add(
        "--inputs",
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="files, or patterns in quotes",
    )
    add("--repeat", type=int, default=3, metavar="N", help="runs on each input (default: 3)")
    add(
        "--into",
        default="",
        metavar="NAME",
        help="argument that takes the file (default: the first that can)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument that is the same in every run",
    )
    add("--yes", action="store_true", help="run the tool even if it may write or execute")


def run(args: argparse.Namespace) -> int:
    """Profile one tool and store the result; raises UsageError and StoreError."""
    _check_count("--repeat", args.repeat, _MAX_REPEATS)
    settings = load_settings(user_paths())
    sources = sources_of(settings, user_paths(), Workspace(workspace_folder()), warn)
    tools = [tool for _, tool in sources]
    tool = tool_named(args.tool, tools)
    inputs = _inputs(args.inputs, tool.schema, args.into, _constants(args.set))
    names = {each.schema.name for each in tools}
    rules = rules_of(settings, Options(yes=args.yes), user_paths(), names)
    _require_approval(tool, inputs, rules)
    measurements = asyncio.run(_measure(tool, inputs, args.repeat))
    runs = [measurement.run for measurement in measurements if not measurement.failure]
    if not runs:
        raise ToolError(
            f"{args.tool} failed on every input: {measurements[0].failure}",
            kept="Nothing was stored.",
        )
    profile = Profile.of(runs)
    assert profile is not None  # there are runs
    with closing(ProfileStore(user_paths().profiles_file)) as store:
        store.replace(tool.schema.name, datetime.now(UTC).isoformat(timespec="seconds"), runs)
    if args.json:
        print_json(
            {"tool": tool.schema.name, "repeat": args.repeat, **_record(measurements, profile)}
        )
    else:
        _print(tool.schema.name, measurements, profile)
    return 0


def _require_approval(tool: Tool, inputs: Sequence[Input], rules: Rules) -> None:
    """Raise UsageError unless the rules or --yes allow every run in advance."""
    name = tool.schema.name
    for tool_input in inputs:
        judgment = rules.judge(Call(name, dict(tool_input.arguments)), tool)
        if judgment.verdict == "deny":
            raise UsageError(
                f"The settings deny {name} on {tool_input.name}: {judgment.why}.",
                fix="See [approval] deny.",
            )
        if judgment.always_asks:
            raise UsageError(f"{name} cannot run repeatedly on {tool_input.name}. {judgment.why}")
        if judgment.verdict == "ask":
            effects = ", ".join(sorted(tool.effects)) or "nothing"
            raise UsageError(
                f"{name} may {effects}, and would run repeatedly.", fix="Allow that with --yes."
            )


def _check_count(name: str, count: int, maximum: int) -> None:
    if not 1 <= count <= maximum:
        raise UsageError(
            f"{name} {count} is not from 1 to {maximum:,}.", fix="Give a whole number, such as 5."
        )


def _constants(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse the arguments of every run, `name=value`; valid JSON becomes its value, anything else text."""
    constants: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"--set {pair!r} is not NAME=VALUE.", fix="Use --set NAME=VALUE.")
        try:
            constants[name] = json.loads(value)
        except (ValueError, RecursionError):
            constants[name] = value
    return constants


def _inputs(
    patterns: Iterable[str], schema: ToolSchema, into: str, constants: Mapping[str, Any]
) -> list[Input]:
    """Return the files, smallest first, as arguments of the tool; raises UsageError."""
    argument, takes_path = _file_argument(schema, into, constants)
    files = [*dict.fromkeys(file for pattern in patterns for file in _matching_files(pattern))]
    _check_count("The number of inputs", len(files), _MAX_INPUTS)
    inputs: list[Input] = []
    for file in map(Path, files):
        try:
            size = file.stat().st_size
            if not takes_path and size > _MAX_TEXT_BYTES:
                raise UsageError(
                    f"{file} is too large to pass as text.", fix="Give files of at most 16 MB."
                )
            value = str(file) if takes_path else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}.", fix=_INPUTS_FIX) from error
        inputs.append(Input(str(file), size, {**constants, argument: value}))
    return sorted(inputs, key=lambda tool_input: (tool_input.size, tool_input.name))


def _file_argument(schema: ToolSchema, into: str, constants: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the argument that takes the file, and whether it takes the path rather than the content."""
    properties: Mapping[str, Any] = schema.parameters.get("properties") or {}
    if into and into not in properties:
        raise UsageError(
            f"{schema.name} has no argument {into!r}.",
            fix=f"Available: {', '.join(properties) or 'none'}.",
        )
    single = {
        name: ToolSchema("", "", {"properties": {name: value}})
        for name, value in properties.items()
    }
    paths = [name for name, argument in single.items() if FILE in signature(argument).takes]
    texts = [name for name, value in properties.items() if value.get("type") == "string"]
    candidates = [into] if into else [name for name in (*paths, *texts) if name not in constants]
    if not candidates:
        raise UsageError(f"No argument of {schema.name} takes a file.", fix="Name one with --into.")
    return candidates[0], candidates[0] in paths


def _matching_files(pattern: str) -> list[str]:
    try:
        names = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - it may be absolute
        files = [name for name in names if Path(name).is_file()]
    except OSError as error:  # such as a name that is too long
        raise UsageError(
            f"{pattern!r} cannot be read: {error.strerror}.", fix=_INPUTS_FIX
        ) from error
    if not files:
        raise UsageError(f"No file matches {pattern!r}.", fix=_INPUTS_FIX)
    return files


async def _measure(tool: Tool, inputs: Sequence[Input], repeat: int) -> list[Measurement]:
    """Run the tool on each input, after one run that loads what it needs and does not count."""
    limits = limits_of(tool)
    await contained(tool, inputs[0].arguments, limits)
    measurements: list[Measurement] = []
    for tool_input in inputs:
        runs = [await contained(tool, tool_input.arguments, limits) for _ in range(repeat)]
        medians: dict[str, float] = {}
        for field in fields(Footprint):
            figures = [
                getattr(run.footprint, field.name) for run in runs if run.footprint is not None
            ]
            if known_figures := [figure for figure in figures if figure is not None]:
                medians[field.name] = statistics.median(known_figures)
        milliseconds = statistics.median(run.seconds * 1000 for run in runs)
        failure = next((run.text for run in runs if not run.ok), "")
        profiled = ProfiledRun(tool_input.size, milliseconds, Footprint(**medians))
        measurements.append(Measurement(tool_input.name, profiled, failure))
    return measurements


def _record(measurements: Sequence[Measurement], profile: Profile) -> dict[str, Any]:
    """Return the runs and size levels as JSON.

    Prices are text in OpenCATP's units, sizes are bytes, memory is in MB of 2^20; unknown is null.
    """
    runs: list[dict[str, Any]] = []
    for measurement in measurements:
        run, failure = measurement.run, measurement.failure
        price = None if failure else f"{run.price():.6e}"
        resources = {"size": run.size, "ms": round(run.milliseconds, 3), **asdict(run.footprint)}
        runs.append(
            {"input": measurement.name, **resources, "price": price, "failed": failure or None}
        )
    costs = zip(profile.levels, profile.vector.costs, profile.vector.measured, strict=True)
    levels = [
        {"size": size, "price": f"{cost:.6e}", "measured": measured}
        for size, cost, measured in costs
    ]
    return {"runs": runs, "levels": levels}


def _print(tool: str, measurements: Sequence[Measurement], profile: Profile) -> None:
    cells: list[tuple[str, ...]] = []
    for measurement in measurements:
        run, footprint = measurement.run, measurement.run.footprint
        failure = measurement.failure
        price = f"failed: {visible_line(failure)}" if failure else f"{run.price():.2e}"
        memory = (footprint.cpu_mb, footprint.cpu_instant_mb, footprint.gpu_mb)
        figures = ("unknown" if figure is None else f"{figure:.1f}" for figure in memory)
        cells.append(
            (measurement.name, f"{run.size:,}", f"{run.milliseconds:.2f}", *figures, price)
        )
    right = ("bytes", "ms", "MB held", "MB peak", "GPU MB", "price units")
    print_table(("input", *right), cells, right=right)
    print()
    levels = zip(profile.levels, profile.vector.costs, strict=True)
    print_table(
        ("size level", "around bytes", "price units"),
        [
            (str(level), f"{size:,.0f}", f"{cost:.2e}")
            for level, (size, cost) in enumerate(levels, start=1)
        ],
        right=("size level", "around bytes", "price units"),
    )
    print(
        f"\nStored for planning: {tool} costs {profile.usual:.2e} units; [plan] resource_price sets their price."
    )
