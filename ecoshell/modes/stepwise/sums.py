"""Sums in words, as expressions: `multiply 4 by 3` is `4 * 3`."""

import re
from collections.abc import Callable, Sequence

from ecoshell.modes.stepwise import spans

_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?%?"
_OPERAND = rf"(?:{_NUMBER}(?:\s+of\s+{_NUMBER}|(?:\s*[-+*/^×÷]\s*\(?{_NUMBER}\)?)+)?)"
_LISTED = rf"{_OPERAND}(?:\s*,\s*(?:and\s+)?{_OPERAND}|\s+and\s+{_OPERAND})+"
_PAIRS = (
    (rf"\badd\s+(?P<b>{_OPERAND})\s+to\s+(?P<a>{_OPERAND})", "{a} + {b}"),
    (rf"\b(?:subtract|take|deduct|remove)\s+(?P<b>{_OPERAND})\s+from\s+(?P<a>{_OPERAND})", "{a} - {b}"),
    (rf"\bmultiply\s+(?P<a>{_OPERAND})\s+(?:by|with|and|times)\s+(?P<b>{_OPERAND})", "{a} * {b}"),
    (rf"\bdivide\s+(?P<a>{_OPERAND})\s+(?:by|and)\s+(?P<b>{_OPERAND})", "{a} / {b}"),
    (rf"\b(?:ratio|quotient)\s+(?:of|between)\s+(?P<a>{_OPERAND})\s+(?:and|to)\s+(?P<b>{_OPERAND})", "{a} / {b}"),
    (rf"\bdifference\s+(?:of|between)\s+(?P<a>{_OPERAND})\s+and\s+(?P<b>{_OPERAND})", "{a} - {b}"),
    (rf"\b(?:increase|raise)\s+(?P<a>{_OPERAND})\s+by\s+(?P<b>{_OPERAND})", "{a} + {b}"),
    (rf"\b(?:decrease|reduce|lower)\s+(?P<a>{_OPERAND})\s+by\s+(?P<b>{_OPERAND})", "{a} - {b}"),
    (rf"\b(?:double|twice)\s+(?P<a>{_OPERAND})", "2 * {a}"),
    (rf"\b(?:triple|three times)\s+(?P<a>{_OPERAND})", "3 * {a}"),
    (rf"\b(?:halve|half(?:\s+of)?)\s+(?P<a>{_OPERAND})", "{a} / 2"),
    (rf"\bsquare(?:\s+of)?\s+(?P<a>{_OPERAND})", "{a}^2"),
    (rf"\bcube(?:\s+of)?\s+(?P<a>{_OPERAND})", "{a}^3"),
)
_LISTS: tuple[tuple[str, Callable[[Sequence[str]], str]], ...] = (
    (rf"\b(?:add(?:\s+up)?|(?:sum|total)(?:\s+up)?(?:\s+of)?)\s+(?P<list>{_LISTED})", " + ".join),
    (rf"\b(?:multiply|product\s+of)\s+(?P<list>{_LISTED})", " * ".join),
    (rf"\b(?:average|mean)(?:\s+of)?\s+(?P<list>{_LISTED})", lambda all_: f"({' + '.join(all_)}) / {len(all_)}"),
)

_ROOT = re.compile(r"\b(?:square|cube|cubic)\s+root\b", re.IGNORECASE)
_OPERATIONS = re.compile(
    r"\b(?:add|subtract|deduct|multiply|divide|sum|total|product|difference|average|mean|quotient|ratio|double|twice|"
    r"triple|halve|half|squared?|cubed?|increase|raise|decrease|reduce|lower|rounded|round)\b",
    re.IGNORECASE,
)


def expressions(request: str) -> list[str]:
    """Arithmetic in a request: what it says in words, else what it writes with signs."""
    written = spans.expressions(request)
    nested = len(_OPERATIONS.findall(_ROOT.sub("", request))) > len(_OPERATIONS.findall(" ".join(written)))
    return worded(request) or ([] if nested else written)


def worded(request: str) -> list[str]:
    """Arithmetic that a request says in words about numbers, as expressions; none where it says more than they do."""
    found: list[str] = []
    for pattern, written in _PAIRS:
        for match in re.finditer(pattern, request, re.IGNORECASE):
            if not re.match(r"\s*(?:,|and\b)\s*\d", request[match.end() :]):  # of a longer list
                found.append(written.format(**{side: _operand(text) for side, text in match.groupdict().items()}))
    for pattern, joined in _LISTS:
        for match in re.finditer(pattern, request, re.IGNORECASE):
            found.append(joined([_operand(text) for text in re.findall(_OPERAND, match["list"], re.IGNORECASE)]))
    return list(dict.fromkeys(found)) if len(_OPERATIONS.findall(request)) <= len(found) else []


def _operand(text: str) -> str:
    """A number as it is, without separators of thousands; anything longer, or negative, in brackets."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.strip())
    return text if re.fullmatch(r"\d+(?:\.\d+)?%?", text) else f"({text})"
