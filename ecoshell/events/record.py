"""Events as JSON, and back."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast, get_args

from ecoshell import events
from ecoshell.budget import CapState
from ecoshell.events import ContextPart, Event, GraphNode, ModelOffer, PlanRow
from ecoshell.messages import Attachment, Usage

_NESTED: Mapping[str, Callable[..., Any]] = {
    "caps": CapState,
    "attachments": Attachment,
    "offers": ModelOffer,
    "rows": PlanRow,
    "nodes": GraphNode,
    "parts": ContextPart,
}
"""Fields that hold several values of their own."""
_PLAIN = (str, int, float, bool, int | None, bool | None)
"""Types of fields that JSON keeps as they are."""
EVENTS: Mapping[str, type[Event]] = {
    kind.type: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
"""Every kind of event, by the `type` that names it."""


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object whose `type` names it."""
    return {"type": event.type, **dataclasses.asdict(event)}


def from_json(record: Mapping[str, Any]) -> Event:
    """The event a JSON object stands for; raises ValueError where it stands for none, ignores unknown fields."""
    if not isinstance(record, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("an event is an object")
    found = EVENTS.get(str(record.get("type")))
    if found is None:
        raise ValueError(f"unknown event type {record.get('type')!r}")
    plain, nested = _fields(found)
    values: dict[str, Any] = {}
    for name, kinds in plain:
        if name in record:
            values[name] = value = record[name]
            if not isinstance(value, kinds):
                raise ValueError(f"{name} of {found.type} is {value!r}")
    for name in nested:
        if name in record:
            values[name] = _revive(name, record[name])
    return found(**values)


@cache
def _fields(kind: type[Event]) -> tuple[tuple[tuple[str, tuple[type, ...]], ...], tuple[str, ...]]:
    """The fields that JSON keeps as they are, with their types, and the others; a long session asks very often."""
    plain: list[tuple[str, tuple[type, ...]]] = []
    others: list[str] = []
    for spec in dataclasses.fields(kind):
        if spec.type in _PLAIN:
            kinds = get_args(spec.type) or (cast("type", spec.type),)
            plain.append((spec.name, (*kinds, int) if float in kinds else kinds))
        else:
            others.append(spec.name)
    return tuple(plain), tuple(others)


def _revive(name: str, value: Any) -> Any:
    """Give back the tuples and nested values that JSON turned into lists and objects."""
    if name in ("usage", "estimate"):
        return None if value is None else Usage(**value)
    if name == "nodes":  # whose lists are tuples, too
        value = [{below: _revive(below, item) for below, item in one.items()} for one in value]
    if name in _NESTED:
        return tuple(_NESTED[name](**one) for one in value)
    if isinstance(value, list):
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
