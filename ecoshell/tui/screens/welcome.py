"""The welcome block and the suggested requests."""

from collections.abc import Sequence

from ecoshell.messages import visible_line
from ecoshell.paths import Paths
from ecoshell.tui.transcript.blocks import Block, Piece, row

_TEXTS = (".txt", ".md", ".rst", ".csv", ".log")
_PROMISE = "Registers its tools by name, and never exceeds your cap."
_KEYS = "f1 keys · f7 models · /budget 0.50 sets a cap · esc stops a turn"


def is_first_start(paths: Paths) -> bool:
    """Whether the user has never sent anything."""
    return not paths.history_file.exists()


def welcome_block(version: str) -> Block:
    """Name, purpose and keys in two lines."""
    head = row(Piece(f"ecoshell {version}", "question"), Piece(f"  {_PROMISE}"))
    return Block("◊", "good", (head, row(Piece(_KEYS, "muted"))))


def requests_block(files: Sequence[str], *, is_free: bool = True, is_capped: bool = False) -> Block:
    """Three requests that show tools and their registration, even with the demo model.

    Without a cap, one is suggested: in tokens for a free model, otherwise in dollars.
    """
    text_file = next(
        (name for name in files if name.endswith(_TEXTS) and not set(name) & set("/ '\"")), ""
    )
    lines = (
        f"How many lines does {visible_line(text_file)} have?"
        if text_file
        else "How many km are 26 miles?"
    )
    changes = "Which files are in this folder?" if files else "What time is it in Tokyo?"
    requests = (lines, changes, "What is 15% of 80?")
    rows = (row(Piece(request), lead="  ") for request in requests)
    cap = "" if is_capped else f", after /budget {'20000tok' if is_free else '0.10'}"
    return Block("", "text", (row(Piece(f"Try one of these{cap}:", "muted")), *rows))
