"""Which tools fit a question: BM25 over names, descriptions and parameter names, on this machine, without a model."""

import math
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ecoshell.messages import ToolDocument

_WEIGHTS = (4.0, 1.0, 0.5)
"""How much a match in the name, in the description and in a parameter's name counts."""
_MOST_TERMS = 64
_MOST_CHARACTERS = 20_000
"""A pasted file is a question's attachment: its beginning says what is wanted."""

_WORD = re.compile(r"\w+")
_JOINT = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_STOP_WORDS = frozenset(
    """a about all also an and any are as at be both but by can could do does each for from get give had has have how i if in
    into is it its just let like make may me more most my need no not of on one or our out please should show so some such
    than that the their them then there these they this to two up us use using want was we were what when where which who
    will with would you your""".split()
)


class Ranker:
    """Ranks documents by their fit with a question; the index is built at the first question and may be asked from any thread."""

    def __init__(self, documents: Iterable[ToolDocument]) -> None:
        self._documents = tuple(documents)
        self._index: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def rank(self, query: str, limit: int | None = None) -> list[tuple[str, float]]:
        """Names of the tools that share a word with the question and their BM25 scores, best first; ties in catalog order."""
        terms = list(islice(dict.fromkeys(_terms(query[:_MOST_CHARACTERS])), _MOST_TERMS))
        if not terms:
            return []
        match = " OR ".join(f'"{term}"' for term in terms)
        with self._lock:
            if self._index is None:
                self._index = _build(self._documents)
            rows = self._index.execute(
                "SELECT rowid, -bm25(tools, ?, ?, ?) AS score FROM tools WHERE tools MATCH ? ORDER BY score DESC, rowid LIMIT ?",
                (*_WEIGHTS, match, -1 if limit is None else limit),
            ).fetchall()
        return [(self._documents[row].name, score) for row, score in rows]


def _build(documents: Sequence[ToolDocument]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute("CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, tokenize = 'porter unicode61')")
    index.executemany(
        "INSERT INTO tools (rowid, name, description, parameters) VALUES (?, ?, ?, ?)",
        ((row, *_columns(document)) for row, document in enumerate(documents)),
    )
    return index


def _columns(document: ToolDocument) -> tuple[str, str, str]:
    properties = document.parameters.get("properties")
    names = " ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
    return tuple(" ".join(_terms(text)) for text in (document.name, document.description, names))


def _terms(text: str) -> Iterator[str]:
    """The words of a text, lower-cased; `snake_case` and `camelCase` are taken apart, stop words are left out."""
    for word in _WORD.findall(text):
        for part in _JOINT.split(word):
            term = part.lower()
            if term and term not in _STOP_WORDS:
                yield term
