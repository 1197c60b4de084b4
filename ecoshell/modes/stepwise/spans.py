"""Pieces of a request that can be arguments: a small model copies badly, so it is offered what there is to copy."""

import re
from collections.abc import Iterable, Iterator, Sequence

_URL = re.compile(r"https?://[^\s<>\"'`]+")
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)|“([^”]+)”")
_FILE = re.compile(
    r"(?<![\w/.~-])(?:[\w.~-]*/[\w./~-]*|[\w-]*\.\w+(?:\.\w+)*"
    r"|README|LICENSE|CHANGELOG|CONTRIBUTING|AUTHORS|NOTICE|COPYING|Makefile|Dockerfile)(?![\w/])"
)
_ENDING = re.compile(r"\w\.\w+$")
_FOLDER = re.compile(
    r"\b(?:folder|directory|dir)\s+(?:named\s+|called\s+)?([\w./~-]+)|([\w./~-]+)\s+(?:folder|directory)\b"
    r"|\b(?:in|inside|under|of)\s+(?:the\s+)?([\w./~-]+)[.?!]*$",
    re.IGNORECASE,
)
_ALL_OF_IT = frozenset(
    {"file", "files", "folder", "folders", "directory", "here", "workspace", "project", "everything"}
)
_MEASURED = re.compile(r"\d\s*((?:degrees?\s+)?[A-Za-z°µ][\w/°²³]*)")
_TARGET = re.compile(r"\b(?:to|in|into|as|how many|how much)\s+((?:degrees?\s+)?[A-Za-z°µ][\w/°²³]*)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\w)")
_SIGNS = r"[-+*/^×÷·%(),.\d\s]"
_EXPRESSION = re.compile(
    rf"(?:\b[a-z]+\()?[-(]?\s*\d{_SIGNS}*(?:\b(?:of|plus|minus|times|divided by|mod)\b\s*\d{_SIGNS}*)*", re.I
)
_OPERATOR = re.compile(r"\d\s*(?:[-+*/^×÷·%]|of\b|plus\b|minus\b|times\b|divided\b|mod\b)|\(", re.I)
_WORD = re.compile(r"[^\s,;:!?]+")
_PROPER = re.compile(r"(?<=[a-z,] )(?:[A-Z][\w-]+|[A-Z]{2,})(?: [A-Z][\w-]+)*")
_FILLER_WORDS = (
    "a an and are as at be by can could do does for from get give has have how i in into is it its make many me much "
    "my now of on one please show tell than that the there they this to turn us was we what when where which who will "
    "with you your convert change"
)
_FILLERS = frozenset(_FILLER_WORDS.split())
_LEADING = "in|into|from|to|of|on|at|the|a|file|folder|named|called"
_LONGEST = 12
"""Words of the longest piece that is offered as a text."""


def urls(request: str) -> list[str]:
    """Web addresses, without the sentence's own punctuation."""
    return _unique(found.rstrip(".,;:!?)") for found in _URL.findall(request))


def quoted(request: str) -> list[str]:
    """What stands in quotation marks or backticks."""
    return _unique(_group(match) for match in _QUOTED.finditer(request))


def paths(request: str) -> list[str]:
    """Names of files and folders, as far as they look like such."""
    return _unique((*file_paths(request), *folder_paths(request)))


def file_paths(request: str) -> list[str]:
    """Names that look like a file's: with an ending or a slash inside, or one that is known without."""
    found = (match.group().rstrip(".") for match in _FILE.finditer(_URL.sub(" ", request)))
    return _unique(name for name in found if name and not name.endswith("/") and not _is_number(name))


def folder_paths(request: str) -> list[str]:
    """Names that are called a folder, stand where one would, or end in a slash."""
    text = _URL.sub(" ", request)
    slashed = [match.group() for match in _FILE.finditer(text) if match.group().endswith("/")]
    called = [_group(match).rstrip(".") for match in _FOLDER.finditer(text)]
    plain = (name for name in (*slashed, *called) if name and not _ENDING.search(name))
    return _unique(name for name in plain if name.lower() not in _FILLERS | _ALL_OF_IT and not _is_number(name))


def numbers(request: str) -> list[str]:
    """Numbers, without separators of thousands."""
    return _unique(found.replace(",", "") for found in _NUMBER.findall(_URL.sub(" ", request)))


def expressions(request: str) -> list[str]:
    """Arithmetic as it is written: `17 * 23`, `12% of 80`, `sqrt(2)`."""
    found = (piece.strip(" \t\n.,") for piece in _EXPRESSION.findall(_URL.sub(" ", request)))
    return _unique(_balanced(piece) for piece in found if _OPERATOR.search(piece))


def measured_units(request: str) -> list[str]:
    """What the numbers of a request count: `5 miles`."""
    return _unique(found for found in _MEASURED.findall(request) if found.lower() not in _FILLERS)


def target_units(request: str) -> list[str]:
    """What a quantity is wanted in: `to km`, `how many pounds`."""
    return _unique(found for found in _TARGET.findall(request) if found.lower() not in _FILLERS)


def names(request: str) -> list[str]:
    """Capitalised names inside a sentence: places, people."""
    return _unique(_PROPER.findall(request))


def words(request: str) -> list[str]:
    """Single words that carry meaning, numbers left out."""
    found = (word.strip("\"'`().") for word in _WORD.findall(request))
    return _unique(word for word in found if word and word.lower() not in _FILLERS and not _is_number(word))


def pieces(request: str, *, without: Sequence[str] = ()) -> list[str]:
    """Runs of up to twelve words, without the sentence's last sign: what a text argument may be copied from.

    A run holds none of the texts of `without`, nor reaches over one.
    """
    body = request.strip().rstrip(".?!")
    for taken in without:
        body = re.sub(rf"(?:\b(?:{_LEADING})\s+)*(?<!\w){re.escape(taken)}(?!\w)", "\n", body)
    return _unique(run for line in body.split("\n") for run in _runs(line) if run and run.lower() not in _FILLERS)


def _runs(line: str) -> Iterator[str]:
    places = [match.span() for match in re.finditer(r"\S+", line)]
    for first in range(len(places)):
        for last in range(first, min(first + _LONGEST, len(places))):
            yield line[places[first][0] : places[last][1]].strip("\"'`,;:")


def _group(match: re.Match[str]) -> str:
    """The group of an alternation that matched."""
    return next(filter(None, match.groups()))


def _balanced(piece: str) -> str:
    """The piece without a closing bracket that opens nowhere in it."""
    while piece.endswith(")") and piece.count(")") > piece.count("("):
        piece = piece[:-1].rstrip()
    return piece


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+\d.,%]+", text))


def _unique(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))
