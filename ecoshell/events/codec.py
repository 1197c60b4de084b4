"""Events as JSON objects."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast, get_args

from ecoshell.budget import CapState
from ecoshell.events import budget, context, plan, tools, turn, work
from ecoshell.events.base import Event
from ecoshell.messages import Attachment, Image, Usage

EVENTS: Mapping[str, type[Event]] = {
    kind.type: kind
    for module in (budget, turn, context, tools, plan, work)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
"""Every kind of event, by its `type`."""


def _attachment(name: str, text: str, image: Mapping[str, Any] | None = None) -> Attachment:
    return Attachment(name, text, None if image is None else Image(**image))


_NESTED: Mapping[str, Callable[..., Any]] = {
    "caps": CapState,
    "attachments": _attachment,
    "images": Image,
    "offers": budget.ModelOffer,
    "rows": plan.PlanRow,
    "nodes": plan.GraphNode,
    "parts": context.ContextPart,
    "results": context.TrimmedResult,
    "items": work.TodoItem,
}
"""Fields that hold tuples of dataclasses."""
_PLAIN = (str, int, float, bool, int | None, bool | None)
"""Field types that JSON preserves."""


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object."""
    return {"type": event.type, **dataclasses.asdict(event)}


def from_json(record: Mapping[str, Any]) -> Event:
    """The event of a JSON object; ignores unknown fields and raises ValueError if it is not an event."""
    if not isinstance(record, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("an event is an object")
    kind = EVENTS.get(str(record.get("type")))
    if kind is None:
        raise ValueError(f"unknown event type {record.get('type')!r}")
    values: dict[str, Any] = {}
    for name, types in _fields(kind).items():
        if name in record:
            values[name] = record[name] if types else _revive(name, record[name])
            if types and not isinstance(values[name], types):
                raise ValueError(f"{name} of {kind.type} is {values[name]!r}")
    return kind(**values)


@cache
def _fields(kind: type[Event]) -> Mapping[str, tuple[type, ...]]:
    """The fields with the types that JSON preserves; none for a field that must be rebuilt."""
    types_by_name: dict[str, tuple[type, ...]] = {}
    for spec in dataclasses.fields(kind):
        types = get_args(spec.type) or (cast("type", spec.type),)
        types = (*types, int) if float in types else types
        types_by_name[spec.name] = types if spec.type in _PLAIN else ()
    return types_by_name


def _revive(name: str, value: Any) -> Any:
    """Rebuild the tuples and dataclasses that JSON holds as lists and objects."""
    if name in ("usage", "estimate"):
        return None if value is None else Usage(**value)
    if name == "nodes":  # whose lists are tuples, too
        value = [{key: _revive(key, item) for key, item in node.items()} for node in value]
    if name in _NESTED:
        return tuple(_NESTED[name](**item) for item in value)
    if isinstance(value, list):
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
