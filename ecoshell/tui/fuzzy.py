"""Fuzzy search: which texts a few typed letters may stand for, the likeliest first; linear in the text's length.

`textual.fuzzy` tries every way in which the letters could stand in a text: `aaaz` in one name of 152 letters takes it
seconds, and five letters in 800 paths 0.8 s where this takes 5 ms. File names are anybody's, and each key asks anew.
"""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import TypeVar

T = TypeVar("T")
_WHOLE, _START, _WORD, _INSIDE, _SCATTERED = 5.0, 4.0, 3.0, 2.0, 1.0
"""What a typed word is worth: it is the whole text, its start, the start of a word, inside one, or letters apart."""
_FROM_THE_START = 0.5
"""What scattered letters are worth besides when the first of them is the text's first."""


def best(typed: str, items: Iterable[tuple[str, T]], limit: int) -> tuple[list[T], int]:
    """The best `limit` of these items by their texts, given in lower case, equals in their order; and how many fit."""
    words = typed.lower().split()
    found = [(worth, item) for text, item in items if (worth := score(words, text))]
    return [item for _, item in nlargest(limit, found, key=lambda one: one[0])], len(found)


def score(words: Sequence[str], text: str) -> float:
    """How well a text fits words, both in lower case; every word must be in it, whatever their order; else 0."""
    total = 1.0
    for nth, word in enumerate([*words, " ".join(words)] if len(words) > 1 else words):
        at = _as_it_stands(word, text)
        if at == 0:
            total += _WHOLE if len(word) == len(text) else _START
        elif at > 0:
            total += _INSIDE if text[at - 1].isalnum() else _WORD
        elif nth == len(words):  # they are not side by side, as they were typed
            pass
        elif found := _letter_by_letter(word, text):  # the closer together the letters are, the more
            total += _SCATTERED * len(found) / (found[-1] + 1 - found[0]) + (0 if found[0] else _FROM_THE_START)
        else:
            return 0.0
    return total


def places(words: Iterable[str], text: str) -> list[int]:
    """Where in a text that fits the words' letters are."""
    found: list[int] = []
    for word in words:
        at = _as_it_stands(word, text)
        found += range(at, at + len(word)) if at >= 0 else _letter_by_letter(word, text)
    return found


def _as_it_stands(word: str, text: str) -> int:
    """Where the text has the word: at the start of a word if it is at one anywhere; -1 if nowhere."""
    first = at = text.find(word)
    while at > 0 and text[at - 1].isalnum():
        at = text.find(word, at + 1)
    return first if at < 0 else at


def _letter_by_letter(word: str, text: str) -> Sequence[int]:
    """The letters in their order with others between them, read back from the last one, which draws them together."""
    end = -1
    for letter in word:
        end = text.find(letter, end + 1)
        if end < 0:
            return ()
    found: list[int] = []
    at = end + 1
    for letter in reversed(word):
        at = text.rfind(letter, 0, at)
        found.append(at)
    return found[::-1]
