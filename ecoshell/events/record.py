"""Events as JSON, and back."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ecoshell.budget.caps import CapState
from ecoshell.events import calls, money, plans, turn
from ecoshell.events.base import Event
from ecoshell.events.money import ModelOffer
from ecoshell.events.plans import GraphNode, PlanRow
from ecoshell.events.turn import ContextPart
from ecoshell.messages import Attachment, Usage


def _graph_node(**fields: Any) -> GraphNode:
    """A node whose lists are tuples again."""
    values: dict[str, Any] = {name: _revive(name, value) for name, value in fields.items()}
    return GraphNode(**values)


_NESTED: Mapping[str, Callable[..., Any]] = {
    "caps": CapState,
    "attachments": Attachment,
    "offers": ModelOffer,
    "rows": PlanRow,
    "nodes": _graph_node,
    "parts": ContextPart,
}
"""Fields that hold several values of their own."""
_PLAIN = (str, int, float, bool, int | None, bool | None)
"""Types of fields that JSON keeps as they are."""
_BY_NAME: dict[str, type[Event]] = {
    kind.type: kind
    for room in (turn, calls, plans, money)
    for kind in vars(room).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object whose `type` names it."""
    return {"type": event.type, **dataclasses.asdict(event)}


def from_json(record: Mapping[str, Any]) -> Event:
    """The event a JSON object stands for; raises ValueError for an unknown type, ignores unknown fields."""
    found = _BY_NAME.get(str(record.get("type")))
    if found is None:
        raise ValueError(f"unknown event type {record.get('type')!r}")
    names, nested = _field_names(found)
    values = {name: record[name] for name in names if name in record}
    for name in nested:
        if name in values:
            values[name] = _revive(name, values[name])
    return found(**values)


@cache
def _field_names(kind: type[Event]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of an event, and those of them that JSON does not keep as they are; a long session asks very often."""
    specs = dataclasses.fields(kind)
    return tuple(spec.name for spec in specs), tuple(spec.name for spec in specs if spec.type not in _PLAIN)


def _revive(name: str, value: Any) -> Any:
    """Give back the tuples and nested values that JSON turned into lists and objects."""
    if name == "usage":
        return Usage(**value)
    if name in _NESTED:
        return tuple(_NESTED[name](**one) for one in value)
    if isinstance(value, list):
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
