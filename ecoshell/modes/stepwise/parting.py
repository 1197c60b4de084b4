"""Where one request of a question ends and the next begins.

A request begins with a command or a question word, after a comma, `and`, a word of sequence (`then`, `after that`,
`also`), a semicolon, or the end of a sentence. What is quoted, and names of files and addresses, are never cut.
"""

import re
from collections.abc import Collection

from ecoshell.modes.stepwise import spans

_COMMAND_WORDS = (
    "add append average calculate change check compare compute convert copy count create cube cut delete describe "
    "display divide double download draw edit evaluate explain fetch find fix get give grep halve list look make "
    "measure move multiply open play please print put query read remove rename repeat replace round run save say "
    "search send set show sing sort split square start store subtract sum summarise summarize take tell translate "
    "triple turn update use work write"
)
_COMMANDS = frozenset(_COMMAND_WORDS.split())
_WHAT = r"how|what(?:['’]s)?|why"
_QUESTIONS = rf"{_WHAT}|(?:can|could|would)\s+you"
_ASKING = "which|who|when|where"
"""Words that begin a question, but after a comma alone a clause about what stands before it."""
_OBJECTLESS = r"(?!\s+(?:of|in|is|are|was|were|and|or)\b)"
_SEQUENCE = (
    r"(?:(?:then|after\s+(?:that|this)|afterwards|next|also|finally|lastly|first|firstly|second|secondly|third|thirdly)"
    r"\b,?\s+)"
)
_AND = r"(?:(?:and|but|&|plus|as\s+well\s+as)\s+)"
_BULLET = r"(?:(?:[-*•]|\d+[.)])\s+)?"
_SENTENCE = r"(?<=[.?!])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)\s+"
_NAMED = "\x01"
"""Stands for each character of a file's name or an address where a text is masked."""
_QUOTED = "\x00"
_GAPPED = re.compile(
    rf"(?<!\s)(?:\s*,\s*{_AND}?|\s+{_AND})"
    rf"(?=(?:the\s+)?(?:[^\W\d_]+\s+){{1,4}}?(?:in|of|from)\s+{_NAMED}|-?\d[\d.,]*\s+\S+\s+(?:to|in|into)\s+[a-z])",
    re.IGNORECASE,
)
_COMPLETE = re.compile(rf"{_NAMED}|\d\s*\S+\s+(?:to|in|into)\s+[a-z]", re.IGNORECASE)
"""What a request must hold for another to be able to go on without its verb."""
_FRAGMENT = re.compile(
    rf"(?:{_AND}|{_SEQUENCE})*(?P<names>{_NAMED}+(?:(?:\s*,\s*|\s+){_AND}?{_NAMED}+)*)[.?!]*", re.IGNORECASE
)
"""Names alone, of which the same is asked as of those before them."""
_VERB = re.compile(r"(?:please\s+)?\w+(?:\s+(?:me|us))?\b", re.IGNORECASE)
_COURTESY = re.compile(
    r"[\W_]*(?:\d+[.)]|(?:hi|hello|hey|thanks|thank you|please|ok|okay|then|next|also|finally|lastly|first(?:ly)?|"
    r"second(?:ly)?|third(?:ly)?)(?:\s+(?:there|you|all|a lot))*)?[\W_]*",
    re.IGNORECASE,
)
"""What asks nothing: signs, the number of a list's line, a courtesy."""
_JOINED = re.compile(
    rf"\s(?:{_AND}|(?:along|together)\s+with\s|while\s|before\s|after\s)|[.?!,]\s+(?=\S)", re.IGNORECASE
)


def parts(question: str, verbs: Collection[str] = ()) -> list[str]:
    """The requests of a question, one after another; `verbs` are commands beside the common ones."""
    masked = _masked(question)
    words = "|".join(sorted(map(re.escape, _COMMANDS | set(verbs)), key=len, reverse=True))
    command = rf"(?:(?:{words})\b{_OBJECTLESS}|(?:{_QUESTIONS})\b)(?=\s+\S|[\s.?!]*$)"
    # what stands between two requests holds no word of either
    joint = rf"(?<!\s)(?:\s*,\s*{_AND}?|\s+{_AND}|\s*\n\s*{_BULLET}|\s+(?={_SEQUENCE})){_SEQUENCE}*(?={command})"
    asking = rf"(?<!\s)(?:\s*,)?\s+{_AND}(?=(?:{_ASKING})\s)"
    then = rf"(?<!\s)(?:\s*,)?\s+{_AND}?then\s+"
    boundary = re.compile(rf"{joint}|{asking}|{then}|(?<!\s)\s*;\s*|{_SENTENCE}", re.IGNORECASE)
    boundaries = list(boundary.finditer(masked))
    begins = [0, *(boundary.end() for boundary in boundaries)]
    ends = [*(boundary.start() for boundary in boundaries), len(question)]
    lead = re.compile(rf"\s*{_BULLET}(?:{_AND}|{_SEQUENCE})*(?={command})", re.IGNORECASE)
    found: list[str] = []
    for begin, end in zip(begins, ends, strict=True):
        led = lead.match(masked, begin, end)
        start = led.end() if led else begin
        request = question[start:end].strip()
        found += _ungapped(_whole(request, found[-1] if found else ""))
    return [part for part in found if not _COURTESY.fullmatch(part)] or [question]


def verb(request: str) -> str:
    """The word a request begins with, by which alike requests are known."""
    first = _VERB.match(request)
    return first.group().lower() if first else ""


def asks(request: str) -> bool:
    """Whether a request begins with a question word: it is to be told something, and nothing is to be done."""
    return re.match(rf"(?:{_WHAT}|{_ASKING})\b", request, re.IGNORECASE) is not None


def _whole(request: str, before: str) -> str:
    """The request; where it is names alone, what was asked before of one name, asked of them: `count a, then b`."""
    fragment, asked = _FRAGMENT.fullmatch(_masked(request)), list(re.finditer(f"{_NAMED}+", _masked(before)))
    if fragment is None or len(asked) != 1:
        return request
    names = request[fragment.start("names") : fragment.end("names")]
    return f"{before[: asked[0].start()]}{names}{before[asked[0].end() :]}"


def _ungapped(request: str) -> list[str]:
    """The request, cut where it goes on without its verb, which is said again: `count the words in a, lines in b`."""
    masked, found, begin = _masked(request), list[str](), 0
    for gap in _GAPPED.finditer(masked):
        if _COMPLETE.search(masked, begin, gap.start()):
            found.append(request[begin : gap.start()])
            begin = gap.end()
    said = _VERB.match(request)
    rest = [*found, request[begin:]]
    return [rest[0], *(f"{said.group()} {one}" for one in rest[1:])] if said else [request]


def joined(request: str) -> list[str]:
    """What stands between words that join a request to more, as far as that was not taken for several requests."""
    joints = list(_JOINED.finditer(_masked(request)))
    begins = [0, *(joint.end() for joint in joints)]
    ends = [*(joint.start() for joint in joints), len(request)]
    return [request[begin:end].strip(" ,.?!") for begin, end in zip(begins, ends, strict=True)]


def _masked(text: str) -> str:
    return spans.masked(text, named=_NAMED, quoted=_QUOTED)
