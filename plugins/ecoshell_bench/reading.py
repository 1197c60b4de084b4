"""Read tool catalogs and recorded agent runs from JSON Lines; errors name the line."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, StrictBool

from ecoshell.errors import UsageError
from ecoshell.messages import ToolSchema
from ecoshell_train.records import Filled, Text, as_text, read_records


def _as_schema(value: object) -> object:
    return cast("object", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A recorded action, as stored in a file."""

    tool: Filled
    observation: Text
    args: Any = None
    """An object, or its JSON text."""
    thought: Text = ""
    server: Text = ""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A recorded task, as stored in a file."""

    query: Text
    steps: tuple[StepRecord, ...]
    gold_tools: tuple[Filled, ...] = ()
    """The tools the question needs, according to annotators."""
    success: StrictBool = True
    final: Text = ""
    id: Text = ""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded action; `tool` is None if the catalog does not have the tool, `arguments` is JSON text."""

    tool: str | None
    called: str
    thought: str
    arguments: str
    observation: str


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded task, from its question to its answer."""

    id: str
    query: str
    steps: tuple[RecordedStep, ...]
    answer: str

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the catalog's tools in the order of their first use."""
        return tuple(dict.fromkeys(step.tool for step in self.steps if step.tool is not None))


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool, as stored in a catalog."""

    name: Filled
    description: Text
    parameters: Annotated[dict[str, Any], BeforeValidator(_as_schema)] = field(
        default_factory=dict[str, Any]
    )
    server: Text = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """Tool schemas by unique name, and the unique names by server and original name."""

    schemas: Mapping[str, ToolSchema]
    names: Mapping[tuple[str, str], str]


def read_tools(path: Path) -> Tools:
    """Read a catalog: one object per line with name, description, parameters and, optionally, server.

    A name used by several servers is qualified with the server's name, as in the shell. Raises UsageError.
    """
    fix = "Give a catalog with one tool per line."
    records = [*read_records(path, ToolRecord, fix)]
    count = Counter(tool.name for _, tool in records)
    schemas: dict[str, ToolSchema] = {}
    names: dict[tuple[str, str], str] = {}
    for place, tool in records:
        name = f"{tool.server}.{tool.name}" if count[tool.name] > 1 and tool.server else tool.name
        if name in schemas:
            raise UsageError(f"{place} repeats the tool name {name}.", fix=fix)
        schemas[name] = ToolSchema(name, tool.description, tool.parameters, tool.server)
        names[tool.server, tool.name] = name
    return Tools(schemas, names)


def read_runs(path: Path, tools: Tools) -> list[RecordedRun]:
    """Read the successful runs of a file; raises UsageError."""
    fix = "Give a file of recorded runs; DATA.md of the data set describes its lines."

    def step(record: StepRecord) -> RecordedStep:
        name = tools.names.get((record.server, record.tool))
        arguments = as_text(record.args or {})
        return RecordedStep(
            name, name or record.tool, record.thought, arguments, record.observation
        )

    runs = [
        RecordedRun(run.id or place, run.query, tuple(map(step, run.steps)), run.final)
        for place, run in read_records(path, RunRecord, fix)
        if run.success
    ]
    if not runs:
        raise UsageError(f"{path} has no successful run.", fix="Give a file of recorded runs.")
    return runs
