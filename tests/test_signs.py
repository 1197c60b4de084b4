"""Every symbol in the program's output is in the default fonts of terminals."""

import ast
import unicodedata
from pathlib import Path

from rich.cells import cell_len

import ecoshell

_ROOT = Path(ecoshell.__file__).parent
_OUTPUT_PATHS = ("agent", "cli", "tui", "sessions/export.py", "messages.py")
"""Modules that write to a screen; other modules contain symbols that they parse."""
_SHARED = frozenset(
    "‐–—‘’“”†‡•…‰‹›€™Ω←↑→↓↔↕∂∆∏∑−√∞∩∫≈≠≡≤≥■□▪▫▲►▼◄◊○●◘◙◦ΑΒΓΔΣΩαβγδεπσστ─│┌┐└┘├┤┬┴┼═║╒╓╔╕╖╗╘╙╚╛╜╝╞╟╠╡╢╣╤╥╦╧╨╩╪╫╬▀▄█▌▐░▒▓"
)
"""The symbols of Windows Glyph List 4, which DejaVu Sans Mono, Menlo and Consolas have."""
_DRAWN = frozenset(map(chr, [*range(0x2500, 0x25A0)]))
"""Lines and blocks, which terminals draw if a font lacks them."""
_DATA = {"messages.py": {"␛"}, "standard_input.py": {"\N{REPLACEMENT CHARACTER}"}}
"""Symbols that represent characters of other programs."""


def _files():
    for name in _OUTPUT_PATHS:
        path = _ROOT / name
        yield from [path] if path.suffix else path.rglob("*.py")


def _written(path):
    """The characters of a file's strings except docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in docstrings
    )
    return {sign for node in texts if isinstance(node.value, str) for sign in node.value}


def test_every_symbol_is_in_default_fonts_and_one_cell_wide():
    missing = {
        (sign, unicodedata.name(sign, "?"), path.name)
        for path in _files()
        for sign in _written(path) - _DATA.get(path.name, set())
        if ord(sign) > 0xFF and (sign not in _SHARED | _DRAWN or cell_len(sign) != 1)
    }
    assert missing == set()
