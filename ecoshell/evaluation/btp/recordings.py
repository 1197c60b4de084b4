"""Recorded tasks: what was called, what came back, and whether it helped."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.evaluation.trajectories import read_objects
from ecoshell.messages import Call, Observation
from ecoshell.planning.judging.payload import unwrapped
from ecoshell.planning.judging.rules import by_rules

_FIX = "Give recorded runs, one JSON object a line, with query, gold_tools, and steps of tool, args and observation."


@dataclass(frozen=True, slots=True)
class Action:
    """One recorded call, whose id is its place in the run, with what came back and what rules say of that."""

    call: Call
    seen: Observation
    helpful: bool | None


@dataclass(frozen=True, slots=True)
class Task:
    """One recorded run, and the tools its question needs as people saw it."""

    query: str
    success: bool
    gold: tuple[str, ...]
    actions: tuple[Action, ...]
    tools: tuple[str, ...]
    """The candidates of a plan: what is needed and what was used, each once."""

    @property
    def useful(self) -> frozenset[str]:
        """Ids of the calls whose results helped."""
        return frozenset(action.call.id for action in self.actions if action.helpful)

    def as_gold(self) -> "Task":
        """The gold trajectory: each tool that is needed is called once, and helps; nothing else is done."""
        calls = (Call(tool, id=str(place)) for place, tool in enumerate(self.gold))
        return replace(self, success=True, actions=tuple(Action(call, Observation(""), True) for call in calls))


def read_tasks(path: Path) -> list[Task]:
    """The runs of a file, failed ones too: one object a line. Raises UsageError, which names the line."""
    tasks = [_task(record, place) for place, record in read_objects(path)]
    if not tasks:
        raise UsageError(f"{path} has no recorded run.", fix=_FIX)
    return tasks


def _task(record: Mapping[str, Any], place: str) -> Task:
    query = _text(record, "query", place)
    gold = tuple(dict.fromkeys(_named(tool, place) for tool in _list(record, "gold_tools", place)))
    success = record.get("success", True)
    if not isinstance(success, bool):
        raise UsageError(f"{place}: `success` is neither true nor false.", fix=_FIX)
    steps = _list(record, "steps", place)
    actions = tuple(_action(step, number, query, place) for number, step in enumerate(steps))
    used = (action.call.name for action in actions)
    return Task(query, success, gold, actions, tuple(dict.fromkeys((*gold, *used))))


def _action(step: object, number: int, query: str, place: str) -> Action:
    if not isinstance(step, Mapping):
        raise UsageError(f"{place}: step {number + 1} is not an object.", fix=_FIX)
    record = cast("Mapping[str, Any]", step)
    place = f"{place}: step {number + 1}"
    call = Call(_named(_field(record, "tool", place), place), _arguments(_field(record, "args", place)), str(number))
    text = _text(record, "observation", place)
    seen = Observation(text, ok=not unwrapped(text)[1])
    return Action(call, seen, by_rules(query, call, seen).helpful)


def _arguments(given: object) -> Mapping[str, Any]:
    """The arguments as an object, which may be written as JSON text; anything else becomes the value of one."""
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            given = json.loads(given)
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {"": given}


def _named(value: object, place: str) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{place}: {value!r} is not the name of a tool.", fix=_FIX)
    return value


def _field(record: Mapping[str, Any], key: str, place: str) -> object:
    if key not in record:
        raise UsageError(f"{place}: `{key}` is missing.", fix=_FIX)
    return record[key]


def _text(record: Mapping[str, Any], key: str, place: str) -> str:
    value = _field(record, key, place)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _list(record: Mapping[str, Any], key: str, place: str) -> Sequence[Any]:
    value = _field(record, key, place)
    if not isinstance(value, list):
        raise UsageError(f"{place}: `{key}` is not a list.", fix=_FIX)
    return cast("Sequence[Any]", value)
