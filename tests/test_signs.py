"""Every sign that the program writes is in the fonts that terminals come with."""

import ast
import unicodedata
from pathlib import Path

from rich.cells import cell_len

import ecoshell

_ROOT = Path(ecoshell.__file__).parent
_ROOMS = ("agent", "cli", "tui", "sessions/export.py", "messages.py")
"""What writes to a screen; other rooms name signs that they read."""
_SHARED = frozenset(
    "‐–—‘’“”†‡•…‰‹›€™Ω←↑→↓↔↕∂∆∏∑−√∞∩∫≈≠≡≤≥■□▪▫▲►▼◄◊○●◘◙◦ΑΒΓΔΣΩαβγδεπσστ─│┌┐└┘├┤┬┴┼═║╒╓╔╕╖╗╘╙╚╛╜╝╞╟╠╡╢╣╤╥╦╧╨╩╪╫╬▀▄█▌▐░▒▓"
)
"""Windows Glyph List 4, as far as it has signs: DejaVu Sans Mono, Menlo and Consolas all have it."""
_DRAWN = frozenset(map(chr, [*range(0x2500, 0x25A0)]))
"""Lines and blocks, which terminals draw themselves where a font has them not."""
_DATA = {"messages.py": {"␛"}, "ask.py": {"\N{REPLACEMENT CHARACTER}"}}
"""Signs that stand for what somebody else wrote."""


def _files():
    for room in _ROOMS:
        path = _ROOT / room
        yield from [path] if path.suffix else path.rglob("*.py")


def _written(path):
    """The characters of a file's texts, without what only its readers see."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in notes)
    return {sign for node in texts if isinstance(node.value, str) for sign in node.value}


def test_every_sign_is_in_the_usual_fonts_and_takes_one_cell():
    missing = {
        (sign, unicodedata.name(sign, "?"), path.name)
        for path in _files()
        for sign in _written(path) - _DATA.get(path.name, set())
        if ord(sign) > 0xFF and (sign not in _SHARED | _DRAWN or cell_len(sign) != 1)
    }
    assert missing == set()
