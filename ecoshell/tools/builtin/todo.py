"""The tool todo: the agent's task list, which the user sees while the agent works."""

from collections.abc import Mapping
from typing import Any, cast

from ecoshell.events.work import TODO_MARKS, TodoChanged, TodoItem, TodoState
from ecoshell.messages import Effect, Observation, ToolSchema, visible_line
from ecoshell.tools.tool import caller

NAME = "todo"
_MAX_ITEMS = 50
_MAX_CHARACTERS = 200
_STATES: Mapping[str, TodoState] = {state: state for state in TODO_MARKS}
_ITEM = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "state": {"type": "string", "enum": [*_STATES]}},
    "required": ["text", "state"],
}


class TodoTool:
    """Replaces the task list. The items are objects, for which FunctionTool would import pydantic at the start."""

    schema = ToolSchema(
        NAME,
        "Keep the task list (to-do list, checklist, steps) of longer work; each call replaces the whole list.",
        {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": _ITEM, "description": "All tasks, in order."}
            },
            "required": ["items"],
        },
    )
    effects: frozenset[Effect] = frozenset()
    price_nano = 0

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Replace the list and report it as an event."""
        items = _items_of(arguments.get("items"))
        if items is None:
            return Observation(
                f"todo was not run: `items` must be a list of {{text, state}}, {_LIMITS}.", ok=False
            )
        if (calling := caller.get()) is not None:
            calling.report(TodoChanged(items))
        if not items:
            return Observation("Empty now.")
        done = sum(item.state == "done" for item in items)
        size = "1 item" if len(items) == 1 else f"{len(items)} items"
        return Observation(f"The task list has {size}, {done} of them done.")


_LIMITS = f"at most {_MAX_ITEMS}; a state is {', '.join(_STATES)}"


def _items_of(value: object) -> tuple[TodoItem, ...] | None:
    """The items of an argument; None if it is not a valid list."""
    records = cast("list[object]", value) if isinstance(value, list) else None
    if records is None or len(records) > _MAX_ITEMS:
        return None
    items = [
        _item_of(cast("Mapping[str, object]", record))
        for record in records
        if isinstance(record, Mapping)
    ]
    complete = tuple(item for item in items if item is not None)
    return complete if len(complete) == len(records) else None


def _item_of(record: Mapping[str, object]) -> TodoItem | None:
    text, state = record.get("text"), _STATES.get(str(record.get("state")))
    if not isinstance(text, str) or not text.strip() or state is None:
        return None
    return TodoItem(visible_line(text.strip(), _MAX_CHARACTERS), state)
