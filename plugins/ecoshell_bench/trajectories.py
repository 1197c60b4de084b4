"""Recorded runs of agents and the tools they had, read from JSON Lines."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.messages import ToolDocument


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
    records = [(place, _fields(record, place, "name", "description")) for place, record in read_objects(path)]
    shared = {name for name, count in Counter(fields["name"] for _, (fields, _) in records).items() if count > 1}
    documents: dict[str, ToolDocument] = {}
    names: dict[tuple[str, str], str] = {}
    for place, (fields, record) in records:
        server, own = str(record.get("server") or ""), fields["name"]
        name = f"{server}.{own}" if own in shared and server else own
        if name in documents:
            raise UsageError(
                f"{place}: a second tool is called {name}.", fix="Give each tool a name or a server of its own."
            )
        parameters = record.get("parameters")
        schema = cast("Mapping[str, Any]", parameters) if isinstance(parameters, Mapping) else dict[str, Any]()
        documents[name] = ToolDocument(name, fields["description"], schema, server)
        names[server, own] = name
    return Tools(documents, names)


def read_runs(path: Path, tools: Tools) -> list[RecordedRun]:
    """The successful runs of a file: one object a line with query, success, steps and final. Raises UsageError."""
    runs: list[RecordedRun] = []
    for place, record in read_objects(path):
        if not record.get("success", True):
            continue
        fields, _ = _fields(record, place, "query", "final")
        steps = record.get("steps")
        if not isinstance(steps, list):
            raise UsageError(f"{place}: `steps` is not a list.", fix="Give a file of recorded runs.")
        recorded = tuple(_step(step, place, tools) for step in cast("Sequence[Any]", steps))
        runs.append(RecordedRun(str(record.get("id", place)), fields["query"], recorded, fields["final"]))
    if not runs:
        raise UsageError(f"{path} has no successful run.", fix="Give a file of recorded runs.")
    return runs


def _step(value: object, place: str, tools: Tools) -> RecordedStep:
    if not isinstance(value, Mapping):
        raise UsageError(f"{place}: a step is not an object.", fix="Give a file of recorded runs.")
    fields, record = _fields(cast("Mapping[str, Any]", value), place, "tool", "thought", "observation")
    arguments: object = record.get("args") or {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    server, own = str(record.get("server") or ""), fields["tool"]
    known = tools.names.get((server, own))
    return RecordedStep(known, known or own, fields["thought"], text, fields["observation"])


def _fields(record: Mapping[str, Any], place: str, *keys: str) -> tuple[dict[str, str], Mapping[str, Any]]:
    """These fields as texts (null is the empty text), beside the record itself."""
    for key in keys:
        if key not in record:
            raise UsageError(f"{place}: `{key}` is missing.", fix="DATA.md of the data set says what each line holds.")
    return {key: str(record[key] if record[key] is not None else "") for key in keys}, record


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
