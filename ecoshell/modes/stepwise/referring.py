"""Words that speak of what came before: `multiply that by 3`, `add the two numbers`, `read it`.

Here is only where they stand, of how many things they speak, and what becomes of them when those are known.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ecoshell.modes.stepwise import spans

Number = Literal["one", "each", "all"] | int
"""Of how many things before them words speak; a number is just so many."""

_COUNTED = {"two": 2, "three": 3, "four": 4, "five": 5}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_QUANTITIES = "number|result|value|amount|count|figure|answer|quantity|price|size|length"
_SUMS = "sum|total|product|difference|quotient|ratio|average|mean"
_TEXTS = "output|text|content|contents|list|listing|file|page|site|article|document|address|link"
_PLURALS = "numbers|results|values|amounts|counts|figures|answers|outputs"
QUANTITY = re.compile(rf"\b(?:numbers?|amounts?|counts?|quantity|{_SUMS})\b", re.IGNORECASE)
"""Words that mean the number of a result, and not all that it says."""
_AFTER_PRONOUN = (
    r"(?=\s*(?:$|[.,;:?!)]|(?:by|to|from|in|into|and|with|as|at|on|for|of|up|together|times|plus|minus|divided|"
    r"multiplied|squared|cubed|equals?)\b|[-+*/^×÷%]))"
)
_NOT_NAMED = r"(?!\s+(?:of|called|named|between)\b)(?!\s*[\x00\x01\"'`“])(?!\s+-?\d)"
"""What follows a noun says that it speaks of something else."""
_OWN = r"(?P<owned>(?:square\s+|cubic\s+|cube\s+)?\w+)"
_WORDS = re.compile(
    rf"\b(?:"
    rf"(?P<each>each(?:\s+(?:one|of\s+(?:them|those|these)|(?:{_QUANTITIES})))?{_AFTER_PRONOUN})"
    rf"|(?:the|those|these|all)\s+(?P<counted>two|three|four|five)(?:\s+(?:{_PLURALS}|of\s+them))?\b{_NOT_NAMED}"
    rf"|(?P<both>both(?:\s+(?:of\s+them|{_PLURALS}))?{_AFTER_PRONOUN})"
    rf"|the\s+(?P<nth>{'|'.join(_ORDINALS)})(?:\s+(?:one|{_QUANTITIES})\b{_NOT_NAMED}|{_AFTER_PRONOUN})"
    rf"|their\s+(?P<theirs>\w+)"
    rf"|(?P<all>them\b|(?:all\s+)?(?:the|those|these)\s+(?:{_PLURALS})\b{_NOT_NAMED}"
    rf"|(?:those|these)(?:\s+(?:files|texts|pages|lists)\b|{_AFTER_PRONOUN}))"
    rf"|(?:the|this|that)\s+(?P<sum>{_SUMS})\b{_NOT_NAMED}"
    rf"|its\s+{_OWN}"
    rf"|(?P<one>(?:that|this)(?:\s+(?:many|much)\b|{_AFTER_PRONOUN})"
    rf"|(?:the|this|that)\s+(?:\w+\s+)?(?:{_QUANTITIES})\b{_NOT_NAMED}"
    rf"|(?:the|this|that)\s+(?:{_TEXTS})\b{_NOT_NAMED}"
    rf"|the\s+number\s+of\s+\w+\b(?!\s+(?:in|of)\b)"
    rf"|it\b(?!['’]s\b))"
    rf")",
    re.IGNORECASE,
)
_DUMMY = re.compile(
    r"\b(?:what|which)\s+\w+\s+(?:is\s+it|it\s+is|it\s+was|was\s+it)\b|\bhow\s+(?:late|early)\s+(?:is\s+it|it\s+is)\b",
    re.IGNORECASE,
)
"""`what time is it`, where it speaks of nothing."""
_IMPLIED = (
    (re.compile(r"^(multiply|divide|increase|decrease|reduce|raise|lower)\s+(?=by\b)", re.IGNORECASE), r"\1 it "),
    (re.compile(r"^(add)\s+(-?\d[\d,]*(?:\.\d+)?%?)(?=[.?!]*$)", re.IGNORECASE), r"\1 \2 to it"),
    (re.compile(r"^(subtract|deduct)\s+(-?\d[\d,]*(?:\.\d+)?%?)(?=[.?!]*$)", re.IGNORECASE), r"\1 \2 from it"),
    (re.compile(r"^(double|triple|halve|square|cube|round)(?=[.?!]*$)", re.IGNORECASE), r"\1 it"),
)
"""Operations that are said without what they are done to."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Words of a request that speak of what came before it."""

    words: str
    number: Number


def said_out(request: str) -> str:
    """The request, with `it` where it leaves out what it speaks of: `multiply by 3`."""
    for pattern, written in _IMPLIED:
        request = pattern.sub(written, request)
    return request


def references(request: str) -> list[Reference]:
    """The words of a request that speak of something before it."""
    return [Reference(match.group(), _number(match)) for match in _matches(request)]


def furthest(request: str) -> int:
    """The place of the last thing that the request counts off: 2 for `divide the first by the second`; else 0."""
    return max((_ORDINALS[match["nth"].lower()] for match in _matches(request) if match["nth"]), default=0)


def replaced(request: str, things: Sequence[str]) -> str:
    """The request with what it speaks of in the place of the words that do; `things` are as many as it counts off."""
    end, pieces = 0, list[str]()
    listed = things[0] if len(things) == 1 else f"{', '.join(things[:-1])} and {things[-1]}"
    for match in _matches(request):
        owned = match["owned"] or match["theirs"] or (match["sum"] if len(things) > 1 else None)
        if match["nth"]:
            said = things[_ORDINALS[match["nth"].lower()] - 1]
        else:
            said = f"the {owned} of {listed}" if owned else listed
        pieces += [request[end : match.start()], said]
        end = match.end()
    return "".join((*pieces, request[end:]))


def _matches(request: str) -> Iterator[re.Match[str]]:
    """The words in their places, which are none in what is quoted or named, nor in `what time is it`."""
    masked = spans.masked(request, named="\x01", quoted="\x00")
    return _WORDS.finditer(_DUMMY.sub(lambda match: "\x00" * len(match.group()), masked))


def _number(match: re.Match[str]) -> Number:
    if match["each"]:
        return "each"
    if match["counted"]:
        return _COUNTED[match["counted"].lower()]
    if match["both"] or match["nth"]:
        return max(2, _ORDINALS.get((match["nth"] or "").lower(), 0))
    return "all" if match["all"] or match["theirs"] or match["sum"] else "one"
