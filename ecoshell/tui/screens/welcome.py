"""The welcome block and the suggested requests."""

from collections.abc import Sequence

from ecoshell.messages import visible_line
from ecoshell.paths import Paths
from ecoshell.tui.transcript.blocks import Block, Piece, row

_TEXTS = (".txt", ".md", ".rst", ".csv", ".log")
_PROMISE = "Registers its tools by name, and never exceeds your cap."
_KEYS = "f1 keys · f7 models · /budget sets a cap · esc stops a turn"


def is_first_start(paths: Paths) -> bool:
    """Whether the user has never sent anything."""
    return not paths.history_file.exists()


def welcome_block(version: str) -> Block:
    """Name, purpose and keys in two lines."""
    head = row(Piece(f"ecoshell {version}", "question"), Piece(f"  {_PROMISE}"))
    return Block("◊", "good", (head, row(Piece(_KEYS, "muted"))))


def requests_block(files: Sequence[str], *, cap: str = "") -> Block:
    """Three requests that show tools and their registration, even with the demo model, and the suggested cap."""
    requests = [
        "How many grams are 3 pounds?",
        "What time is it in Tokyo?",
        "How many km are 26 miles?",
    ]
    if files:
        requests[1] = "Which files are in this folder?"
    texts = (name for name in files if name.endswith(_TEXTS) and not set(name) & set("/ '\""))
    if text_file := next(texts, ""):
        requests[0] = f"How many lines does {visible_line(text_file)} have?"
    rows = (row(Piece(request), lead="  ") for request in requests)
    condition = f", after /budget {cap}" if cap else ""
    return Block("", "text", (row(Piece(f"Try one of these{condition}:", "muted")), *rows))
