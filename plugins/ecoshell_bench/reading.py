"""What the benchmarks read: JSON Lines, and recorded runs of agents in them. What is wrong is named with its line."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, StrictBool

from ecoshell.errors import UsageError
from ecoshell.messages import ToolDocument
from ecoshell_train.records import Filled, Text, as_text, read_records


def _as_schema(value: object) -> object:
    return cast("object", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One recorded action, as it stands in a file."""

    tool: Filled
    observation: Text
    args: Any = None
    """An object, which may be written as JSON text."""
    thought: Text = ""
    server: Text = ""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One recorded task, as it stands in a file."""

    query: Text
    steps: tuple[StepRecord, ...]
    gold_tools: tuple[Filled, ...] = ()
    """What the question needs as people saw it."""
    success: StrictBool = True
    final: Text = ""
    id: Text = ""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One recorded action; `tool` is None when the catalog does not have the tool, `arguments` is JSON text."""

    tool: str | None
    called: str
    thought: str
    arguments: str
    observation: str


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One recorded task, from its question to its answer."""

    id: str
    query: str
    steps: tuple[RecordedStep, ...]
    answer: str

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the catalog's tools that were used, in the order of their first use."""
        return tuple(dict.fromkeys(step.tool for step in self.steps if step.tool is not None))


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool, as it stands in a catalog."""

    name: Filled
    description: Text
    parameters: Annotated[dict[str, Any], BeforeValidator(_as_schema)] = field(default_factory=dict[str, Any])
    server: Text = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """Documents under unique names, and those names by server and own name."""

    documents: Mapping[str, ToolDocument]
    names: Mapping[tuple[str, str], str]


def read_tools(path: Path) -> Tools:
    """A catalog: one object a line with name, description, parameters and, optionally, server.

    A name that several servers have is qualified with the server's, as the shell does. Raises UsageError.
    """
    fix = "Give a catalog, one tool a line."
    read = [*read_records(path, ToolRecord, fix)]
    count = Counter(tool.name for _, tool in read)
    documents: dict[str, ToolDocument] = {}
    names: dict[tuple[str, str], str] = {}
    for place, tool in read:
        name = f"{tool.server}.{tool.name}" if count[tool.name] > 1 and tool.server else tool.name
        if name in documents:
            raise UsageError(f"{place} is a second tool called {name}.", fix=fix)
        documents[name] = ToolDocument(name, tool.description, tool.parameters, tool.server)
        names[tool.server, tool.name] = name
    return Tools(documents, names)


def read_runs(path: Path, tools: Tools) -> list[RecordedRun]:
    """The successful runs of a file; raises UsageError."""
    fix = "Give a file of recorded runs; DATA.md of the data set says what each line holds."

    def step(one: StepRecord) -> RecordedStep:
        known = tools.names.get((one.server, one.tool))
        return RecordedStep(known, known or one.tool, one.thought, as_text(one.args or {}), one.observation)

    runs = [
        RecordedRun(run.id or place, run.query, tuple(map(step, run.steps)), run.final)
        for place, run in read_records(path, RunRecord, fix)
        if run.success
    ]
    if not runs:
        raise UsageError(f"{path} has no successful run.", fix="Give a file of recorded runs.")
    return runs
