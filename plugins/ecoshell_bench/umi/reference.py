"""Reference trajectories: what was decided at each step, with which tools, and what came back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ecoshell.errors import UsageError
from ecoshell.messages import META_TOOLS, ToolDocument
from ecoshell_bench.trajectories import read_objects

Decision = Literal["call", "finish", "give_up"]
_DECISIONS: tuple[Decision, ...] = get_args(Decision)
_FIX = "docs/bench-umi.md says what each line holds; --convert makes such a file of recorded runs."


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step; tool, arguments and observation are empty where it ends the trajectory."""

    thought: str
    decision: Decision
    tool: str
    arguments: Mapping[str, Any]
    observation: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One task, from its question to its answer."""

    id: str
    tools: tuple[ToolDocument, ...]
    query: str
    steps: tuple[ReferenceStep, ...]
    final: str

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools it has."""
        return frozenset(tool.name for tool in self.tools)

    def as_record(self) -> dict[str, Any]:
        """The line of a file that `read_trajectories` reads."""
        return {
            "id": self.id,
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
                for tool in self.tools
            ],
            "query": self.query,
            "steps": [_step_record(step) for step in self.steps],
            "final": self.final,
        }


def read_trajectories(path: Path) -> list[Trajectory]:
    """The trajectories of a file: one object a line. Raises UsageError, which names the line."""
    trajectories: list[Trajectory] = []
    places: dict[str, str] = {}
    for place, record in read_objects(path):
        one = _trajectory(record, place)
        if one.id in places:
            raise UsageError(f"{place}: {places[one.id]} has the id {one.id!r} too.", fix="Give each line an id.")
        places[one.id] = place
        trajectories.append(one)
    if not trajectories:
        raise UsageError(f"{path} has no trajectory.", fix=_FIX)
    return trajectories


def _trajectory(record: Mapping[str, Any], place: str) -> Trajectory:
    tools = tuple(_tool(tool, f"{place}: tool {n}") for n, tool in enumerate(_list(record, "tools", place), start=1))
    names = frozenset(tool.name for tool in tools)
    if len(names) < len(tools):
        raise _wrong(place, "has two tools of one name")
    given = _list(record, "steps", place)
    if not given:
        raise _wrong(place, "has no steps")
    steps = tuple(_step(step, names, f"{place}: step {number}") for number, step in enumerate(given, start=1))
    for number, step in enumerate(steps[:-1], start=1):
        if step.decision != "call":
            raise _wrong(place, f"goes on after step {number}, which is its end ({step.decision})")
    named = record.get("id")
    if not isinstance(named, str | int) or isinstance(named, bool) or not str(named).strip():
        raise _wrong(place, "has no `id`")
    final = _text(record, "final", place) if steps[-1].decision == "finish" else str(record.get("final") or "")
    return Trajectory(str(named), tools, _filled(record, "query", place), steps, final)


def _tool(value: object, place: str) -> ToolDocument:
    record = _object(value, place)
    name = _filled(record, "name", place)
    if name in META_TOOLS:
        raise _wrong(place, f"is called {name}, which is no tool's name but the shell's own")
    parameters = record.get("parameters")
    schema = dict[str, Any]() if parameters is None else _object(parameters, f"{place}: `parameters`")
    return ToolDocument(name, _text(record, "description", place), schema)


def _step(value: object, names: frozenset[str], place: str) -> ReferenceStep:
    record = _object(value, place)
    said = record.get("decision")
    decision: Decision | None = next((known for known in _DECISIONS if known == said), None)
    if decision is None:
        raise _wrong(place, f"has the decision {said!r}, which is none of {', '.join(_DECISIONS)}")
    thought = _text(record, "thought", place) if "thought" in record else ""
    if decision != "call":
        if record.get("tool") or record.get("arguments"):
            raise _wrong(place, f"ends the trajectory ({decision}) and calls a tool")
        return ReferenceStep(thought, decision, "", {}, "")
    tool = _filled(record, "tool", place)
    if tool not in names:
        raise _wrong(place, f"calls {tool!r}, which is not among its tools")
    given = record.get("arguments")
    arguments = dict[str, Any]() if given is None else _object(given, f"{place}: `arguments`")
    return ReferenceStep(thought, decision, tool, arguments, _text(record, "observation", place))


def _step_record(step: ReferenceStep) -> dict[str, Any]:
    calls = step.decision == "call"
    return {
        "thought": step.thought,
        "decision": step.decision,
        "tool": step.tool if calls else None,
        "arguments": dict(step.arguments) if calls else None,
        "observation": step.observation if calls else None,
    }


def _object(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(place, "is not an object")
    return cast("Mapping[str, Any]", value)


def _list(record: Mapping[str, Any], key: str, place: str) -> Sequence[object]:
    value = record.get(key)
    if not isinstance(value, list):
        raise _wrong(place, f"has no list `{key}`")
    return cast("Sequence[object]", value)


def _filled(record: Mapping[str, Any], key: str, place: str) -> str:
    value = record.get(key)
    if not (isinstance(value, str) and value.strip()):
        raise _wrong(place, f"has no text `{key}`")
    return value


def _text(record: Mapping[str, Any], key: str, place: str) -> str:
    """A text that may be empty or null; what is not a text is taken as the JSON it is."""
    if key not in record:
        raise _wrong(place, f"has no `{key}`")
    value = record[key]
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _wrong(place: str, what: str) -> UsageError:
    return UsageError(f"{place} {what}.", fix=_FIX)
