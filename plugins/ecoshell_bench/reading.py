"""What the benchmarks read: JSON Lines, and recorded runs of agents in them. What is wrong is named with its line."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.messages import ToolDocument


def read_objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each line's object with its place, `file:line`. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix="Give a JSON Lines file.") from failure
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as failure:
            raise UsageError(f"{place} is not JSON: {failure}.", fix="Give a JSON Lines file.") from failure
        if not isinstance(record, Mapping):
            raise UsageError(f"{place} is not a JSON object.", fix="Give a JSON Lines file.")
        yield place, cast("Mapping[str, Any]", record)


class Fields:
    """The fields of a JSON object; what is missing or of another kind is a UsageError that names the object's place."""

    def __init__(self, value: object, place: str, fix: str) -> None:
        self.place = place
        self._fix = fix
        if not isinstance(value, Mapping):
            raise self.wrong("is not an object")
        self.record = cast("Mapping[str, Any]", value)

    def wrong(self, what: str) -> UsageError:
        """The error that says this of the object."""
        return UsageError(f"{self.place} {what}.", fix=self._fix)

    def value(self, name: str) -> Any:
        """A field that has to be there."""
        if name not in self.record:
            raise self.wrong(f"has no `{name}`")
        return self.record[name]

    def text(self, name: str) -> str:
        """A text that may be empty or null; what is not a text is taken as the JSON it is."""
        value = self.value(name)
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def filled(self, name: str) -> str:
        """A text that says something."""
        value = self.record.get(name)
        if not (isinstance(value, str) and value.strip()):
            raise self.wrong(f"has no text `{name}`")
        return value

    def list(self, name: str) -> Sequence[object]:
        """A list."""
        value = self.record.get(name)
        if not isinstance(value, list):
            raise self.wrong(f"has no list `{name}`")
        return cast("Sequence[object]", value)

    def objects(self, name: str) -> Iterator["Fields"]:
        """The objects of a list, each with a place of its own: `file:line: step 1` in a list of steps."""
        for number, value in enumerate(self.list(name), start=1):
            yield Fields(value, f"{self.place}: {name.removesuffix('s')} {number}", self._fix)

    def object(self, name: str) -> Mapping[str, Any]:
        """An object, empty where it is left out or null."""
        value = self.record.get(name)
        return {} if value is None else Fields(value, f"{self.place}: `{name}`", self._fix).record


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
class Tools:
    """Documents under unique names, and those names by server and own name."""

    documents: Mapping[str, ToolDocument]
    names: Mapping[tuple[str, str], str]


def read_tools(path: Path) -> Tools:
    """A catalog: one object a line with name, description, parameters and, optionally, server.

    A name that several servers have is qualified with the server's, as the shell does. Raises UsageError.
    """
    read = [Fields(record, place, "Give a catalog, one tool a line.") for place, record in read_objects(path)]
    count = Counter(tool.text("name") for tool in read)
    documents: dict[str, ToolDocument] = {}
    names: dict[tuple[str, str], str] = {}
    for tool in read:
        server, own = str(tool.record.get("server") or ""), tool.text("name")
        name = f"{server}.{own}" if count[own] > 1 and server else own
        if name in documents:
            raise tool.wrong(f"is a second tool called {name}")
        parameters = tool.record.get("parameters")
        schema = cast("Mapping[str, Any]", parameters) if isinstance(parameters, Mapping) else dict[str, Any]()
        documents[name] = ToolDocument(name, tool.text("description"), schema, server)
        names[server, own] = name
    return Tools(documents, names)


def read_runs(path: Path, tools: Tools) -> list[RecordedRun]:
    """The successful runs of a file: one object a line with query, success, steps and final. Raises UsageError."""
    runs: list[RecordedRun] = []
    for place, record in read_objects(path):
        if not record.get("success", True):
            continue
        run = Fields(record, place, "Give a file of recorded runs; DATA.md of the data set says what each line holds.")
        steps: list[RecordedStep] = []
        for step in run.objects("steps"):
            arguments: object = step.record.get("args") or {}
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            own = step.text("tool")
            known = tools.names.get((str(step.record.get("server") or ""), own))
            steps.append(RecordedStep(known, known or own, step.text("thought"), written, step.text("observation")))
        runs.append(RecordedRun(str(record.get("id", place)), run.text("query"), tuple(steps), run.text("final")))
    if not runs:
        raise UsageError(f"{path} has no successful run.", fix="Give a file of recorded runs.")
    return runs
