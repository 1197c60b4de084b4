"""`ecoshell events`: what `ask --json` prints, for people and as a JSON schema.

The schema is made from the dataclasses of events and what their docstrings say.
"""

import argparse
import inspect
from collections.abc import Mapping
from typing import Any

from ecoshell.api import Result
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.events import EVENTS, Event

PRINTED: Mapping[str, type[Event]] = {**EVENTS, Result.type: Result}
"""The kinds of lines, by the `type` that names them."""
_ABOUT = (
    "A line that `ecoshell ask --json` prints: an event of the turn or, as the last line, the result. Amounts whose "
    "names end in `_nano` are nano-dollars. New types and fields may be added: ignore those you do not know."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--schema", action="store_true", help="print the JSON schema")


def run(args: argparse.Namespace) -> int:
    """Print the schema, or each kind of line and what it tells."""
    if args.schema:
        print_json(events_schema())
    else:
        print_table(("type", "tells"), [(name, inspect.getdoc(kind) or "") for name, kind in PRINTED.items()])
    return 0


def events_schema() -> dict[str, Any]:
    """A schema (draft 2020-12) under which every line is valid; all fields of an event are always printed."""
    from pydantic import TypeAdapter  # heavy, and seldom needed

    _, schema = TypeAdapter[Any].json_schemas([(kind, "serialization", TypeAdapter(kind)) for kind in PRINTED.values()])
    defined: dict[str, Any] = schema["$defs"]
    for name, kind in PRINTED.items():
        one = defined[kind.__name__]
        one["properties"] = {"type": {"const": name}, **one["properties"]}
    for one in defined.values():
        one["required"] = list(one["properties"])
        for about in one["properties"].values():
            about.pop("title", None)
            about.pop("default", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": _ABOUT,
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in PRINTED.values()],
        "$defs": defined,
    }
