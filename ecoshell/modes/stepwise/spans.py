"""Pieces of a request that can be arguments: a small model copies badly, so it is offered what there is to copy."""

import re
from collections.abc import Iterable, Sequence

_URL = re.compile(r"https?://[^\s<>\"'`]+")
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)|“([^”]+)”")
_FILE = re.compile(
    r"(?<![\w/.~-])(?:[\w.~-]*/[\w./~-]*|[\w-]*\.\w+(?:\.\w+)*"
    r"|README|LICENSE|CHANGELOG|CONTRIBUTING|AUTHORS|NOTICE|COPYING|Makefile|Dockerfile)(?![\w/])"
)
_ENDING = re.compile(r"\w\.\w+$")
_FOLDER = re.compile(
    r"\b(?:folder|directory|dir)\s+(?:named\s+|called\s+)?([\w./~-]+)"
    r"|\b(?!(?:the|a|this|that|my|which|what)\b)([\w./~-]+)\s+(?:folder|directory)\b"
    r"|\b(?:in|inside|under|of)\s+(?:the\s+)?([\w./~-]+)[.?!]*$",
    re.IGNORECASE,
)
_ALL_OF_IT = frozenset(
    {"file", "files", "folder", "folders", "directory", "here", "workspace", "project", "everything"}
)
_MEASURED = re.compile(
    r"\d\s*(?:degrees?\s+)?(?!from\b)([A-Za-z°µ][\w/°²³]*)"
    r"|\bfrom\s+(?:degrees?\s+)?([A-Za-z°µ][\w/°²³]*)(?=\s+(?:to|in|into)\s)"
)
_TARGET = re.compile(r"\b(?:to|in|into|as|how many|how much)\s+(?:degrees?\s+)?([A-Za-z°µ][\w/°²³]*)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\w)")
_SIGNS = r"[-+*/^×÷·%(),.\d\s]"
_EXPRESSION = re.compile(
    rf"(?:\b(?:square|cube|cubic) root of\s+|\b[a-z]+\(\s*)?(?:[-(]\s*)?\d{_SIGNS}*"
    rf"(?:\b(?:of|plus|minus|times|divided by|mod)\b\s*\d{_SIGNS}*|\b(?:squared|cubed)\b\s*)*",
    re.IGNORECASE,
)
_OPERATOR = re.compile(
    r"\d\s*(?:[-+*/^×÷·%]|of\b|plus\b|minus\b|times\b|divided\b|mod\b|squared\b|cubed\b)|\(|\broot of\b", re.I
)
_WORD = re.compile(r"[^\s,;:!?]+")
_PROPER = re.compile(r"(?<=[a-z,] )(?:[A-Z][\w-]+|[A-Z]{2,})(?: [A-Z][\w-]+)*")
_FILLER_WORDS = (
    "a an and are as at be by can could do does for from get give has have how i in into is it its make many me much "
    "my now of on one please show tell than that the there they this to turn us was we what when where which who will "
    "with you your convert change"
)
_FILLERS = frozenset(_FILLER_WORDS.split())
_LEADING = "in|into|from|to|of|on|at|the|a|file|folder|named|called"
_JOINT = re.compile(r"\s+(?:in|into|with|to|from|for|by|on|of|as)\s+")
_ANNOUNCING_WORDS = (
    "a all an any as by called code command containing field file files folder following for from function in into is "
    "key me named new of on pattern phrase program python saying script shell string term text that the this to value "
    "with word words"
)
_ANNOUNCING = frozenset(_ANNOUNCING_WORDS.split())


def urls(request: str) -> list[str]:
    """Web addresses, without the sentence's own punctuation."""
    return _unique(found.rstrip(".,;:!?)") for found in _URL.findall(request))


def masked(request: str, *, named: str, quoted: str) -> str:
    """The request with one sign for each character of what it quotes, and of the files and addresses it names."""
    for pattern, sign in ((_QUOTED, quoted), (_URL, named), (_FILE, named)):
        request = pattern.sub(lambda match, sign=sign: _masked(match.group(), sign), request)
    return request


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
    found: list[str] = []
    for piece in _EXPRESSION.findall(_URL.sub(" ", request)):
        written = piece.strip(" \t\n.,")
        if _OPERATOR.search(written):
            while written.endswith(")") and written.count(")") > written.count("("):  # which opens nowhere in it
                written = written[:-1].rstrip()
            found.append(written)
    return _unique(found)


def measured_units(request: str) -> list[str]:
    """What the numbers of a request count: `5 miles`, `from miles to km`."""
    found = map(_group, _MEASURED.finditer(request))
    return _unique(unit for unit in found if unit.lower() not in _FILLERS)


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


def phrases(request: str, *, without: Sequence[str] = ()) -> list[str]:
    """What a text argument may be copied from: phrases between prepositions, and the longer ones over them.

    The verb the request begins with and words that only announce a text (`the word …`) are left out, and so are the
    texts of `without`, over which no phrase reaches.
    """
    body = request.strip().rstrip(".?!")
    for taken in without:
        body = re.sub(rf"(?:\b(?:{_LEADING})\s+)*(?<!\w){re.escape(taken)}(?!\w)", "\n", body)
    _, _, rest = body.lstrip().partition(" ")
    found: list[str] = []
    for part in (part for line in rest.split("\n") for part in (*_JOINT.split(line), line)):
        bare = part.strip()
        first, _, after = bare.partition(" ")
        while bare and first.strip(":,;").lower() in _ANNOUNCING:
            bare = after.lstrip()
            first, _, after = bare.partition(" ")
        found.append(bare.strip("\"'`,;: "))
    return _unique(filter(None, found))


def _masked(text: str, sign: str) -> str:
    """Signs in the text's place; what ends a sentence stays, and so do numbers."""
    bare = text.rstrip(".,;:!?")
    return text if _is_number(bare) else sign * len(bare) + text[len(bare) :]


def _group(match: re.Match[str]) -> str:
    """The group of an alternation that matched."""
    return next(filter(None, match.groups()))


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+\d.,%]+", text))


def _unique(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))
