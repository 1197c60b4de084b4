"""How names stand in a plan's text: labels with their index, quoted where they could be taken for something else."""

import json
import re

from ecoshell.planning.catp.base import TASK, Node

MOST_INDEX = 9_999
_INDEX = re.compile(r"#([1-9]\d{0,3})\Z", re.ASCII)
STRING = r'"(?:[^"\\]|\\.)*+"'
"""A JSON string, by what closes it; `.` has to match newlines."""
WORD = r'[^\s\[\]<>"\\]++'
"""What stands within the brackets of a token without quotes."""
_BARE = re.compile(WORD)
TASK_NAMES = frozenset({TASK, "task", "input_of_query"})
"""How the dependency on what the user gave may be written; OpenCATP's recorded plans have the last."""
_RESERVED = TASK_NAMES | {"SoP", "EoP", "SoD", "EoD"}


def written_label(node: Node) -> str:
    """The label as it stands in a text: `read_file`, `read_file#2`, and `c#2#1` where the tool itself is `c#2`."""
    if node.index > 1:
        return f"{node.tool}#{node.index}"
    return f"{node.tool}#1" if _INDEX.search(node.tool) else node.tool


def read_label(label: str) -> tuple[str, int]:
    """A tool's name and the index of its use."""
    found = _INDEX.search(label)
    return (label[: found.start()], int(found[1])) if found and found.start() else (label, 1)


def quoted(text: str) -> str:
    """A JSON string; characters that could steer a terminal are escaped in it."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def token_word(label: str) -> str:
    """A label within the brackets of a token: bare, or quoted where it has brackets, blanks or a reserved name."""
    plain = _BARE.fullmatch(label) and label.isprintable() and label not in _RESERVED
    return label if plain else quoted(label)
