"""`ecoshell events`: the output of `ask --json`, described for readers and as a JSON schema.

The schema is derived from the dataclasses of events and their docstrings.
"""

import argparse
import inspect
from collections.abc import Mapping
from typing import Any

from ecoshell.api import Result
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.events import EVENTS, Event

PRINTED: Mapping[str, type[Event]] = {**EVENTS, Result.type: Result}
"""The kinds of lines by their `type`."""
_DESCRIPTION = (
    "A line that `ecoshell ask --json` prints: an event of the turn or, as the last line, the result. Amounts whose "
    "names end in `_nano` are nano-dollars. New types and fields may be added: ignore those you do not know."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--schema", action="store_true", help="print the JSON schema")


def run(args: argparse.Namespace) -> int:
    """Print the schema, or a table of the kinds of lines."""
    if args.schema:
        print_json(events_schema())
    else:
        print_table(
            ("type", "description"),
            [(name, inspect.getdoc(kind) or "") for name, kind in PRINTED.items()],
        )
    return 0


def events_schema() -> dict[str, Any]:
    """Return a schema (draft 2020-12) for every line; all fields of an event are always printed."""
    from pydantic import TypeAdapter  # slow to import

    _, schema = TypeAdapter[Any].json_schemas(
        [(kind, "serialization", TypeAdapter(kind)) for kind in PRINTED.values()]
    )
    definitions: dict[str, Any] = schema["$defs"]
    for name, kind in PRINTED.items():
        definition = definitions[kind.__name__]
        definition["properties"] = {"type": {"const": name}, **definition["properties"]}
    for definition in definitions.values():
        definition["required"] = list(definition["properties"])
        for field in definition["properties"].values():
            field.pop("title", None)
            field.pop("default", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": _DESCRIPTION,
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in PRINTED.values()],
        "$defs": definitions,
    }
