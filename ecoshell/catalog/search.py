"""Which tools fit a question: BM25 over names, descriptions and parameter names, on this machine, without a model."""

import math
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from ecoshell.messages import ToolSchema

_WEIGHTS = (4.0, 2.0, 1.0, 0.5)
"""How much a match in the name, in the server's name, in the description and in a parameter's name counts in a rank."""
_SEARCH_WEIGHTS = (2.0, 2.0, 1.0, 0.5)
"""The same in a search, where a server's tools stand for each other."""
_OF_BEST = 0.7
"""The share of its server's best score that a tool has at least."""
_OF_SIBLING = 0.1
"""What the best of its server's other tools adds to a tool's score."""
_NEXT = 0.96
"""What is left of a tool's score for each of its server's tools that goes before it. These three and the weights of a
search were chosen with ToolBench's queries in view; LiveMCPBench's came after: recall@10 0.49, 0.46 by the rank."""
_MOST_SENTENCES = 16
_SELECT = """SELECT rowid, -bm25(tools, ?, ?, ?, ?) AS score FROM tools WHERE tools MATCH ?
    ORDER BY score DESC, rowid LIMIT ?"""
_MOST_TERMS = 64
_MOST_CHARACTERS = 20_000
"""A pasted file is a question's attachment: its beginning says what is wanted."""

_WORD = re.compile(r"[^\W_]+")
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|\n+")
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_SIGNS = (
    (re.compile(r"\bhttps?://"), ("url", "web", "page")),
    (re.compile(r"(?<![\w/:.~-])[\w.~-]*/[\w.-]+/?|\b[\w-]+\.[a-z]{1,5}\b"), ("file", "path")),
    (re.compile(r"\d\s*(?:[-+*/^%×÷]\s*\d|%)"), ("calculate", "arithmetic", "expression")),
)
"""What a question shows without saying it, an address, a file or a sum, and the words that tools for these go by."""
_STOP_TEXT = """
a about all also an and any are as at be both but by can could do does each following for from get give had has have
help how i if in including information into is it its just let like make may me more most my need no not of on one or
our out please should show so some such tell than that the their them then there these they this to two up us use
using want was we were what when where which who will with would you your
api available based data details endpoint given results retrieve return returns specific specified used
"""
"""What questions and documents are full of whatever they are about."""
_STOP_WORDS = frozenset(_STOP_TEXT.split())

TOOLS_PER_TASK = 2.4
_SHARPNESS = 2
_WEAK_SCORE = 3.0
_SERVER_SHARE = 0.2
_RANDOM_SHARE = 0.1
_SUREST = 0.9
"""The constants of `Ranker.chances`, fitted by likelihood on ToolBench's queries (2.3 tools a task) and the failed runs
of LiveMCPBench (2.5), in pools of 5 to 527 tools. On its successful runs, in view while the ranker was made but not
fitted to: of tools given a chance of 7, 14, 24, 40, 59, 77 and 89 %, 7, 18, 33, 46, 63, 85 and 92 % were used."""


class Ranker:
    """Ranks documents by their fit with a question; builds its index at the first one; any thread may ask."""

    def __init__(self, schemas: Iterable[ToolSchema]) -> None:
        self._lock = threading.Lock()
        self.follow(schemas)

    def follow(self, schemas: Iterable[ToolSchema]) -> None:
        """Rank these documents from now on; nothing may be asked meanwhile."""
        self._schemas = tuple(schemas)
        self._servers = {schema.name: schema.server for schema in self._schemas if schema.server}
        self._tools: dict[str, list[str]] = {}
        for name, server in self._servers.items():
            self._tools.setdefault(server, []).append(name)
        self._index: sqlite3.Connection | None = None

    def rank(
        self, query: str, limit: int | None = None, *, weights: Sequence[float] = _WEIGHTS
    ) -> list[tuple[str, float]]:
        """Names of tools that share a word with the question, with BM25 scores, best first; ties in catalog order."""
        query = query[:_MOST_CHARACTERS]
        shown = (term for sign, terms in _SIGNS if sign.search(query) for term in terms)
        terms = list(islice(dict.fromkeys((*shown, *_terms(query))), _MOST_TERMS))
        if not terms:
            return []
        match = " OR ".join(f'"{term}"' for term in terms)
        with self._lock:
            if self._index is None:
                self._index = _build(self._schemas)
            rows = self._index.execute(_SELECT, (*weights, match, -1 if limit is None else limit)).fetchall()
        return [(self._schemas[int(row)].name, float(score)) for row, score in rows]

    def search(self, request: str) -> list[str]:
        """Names of the tools that may serve a request, best first; none where no tool shares a word with it.

        A request may want several things: what fits one of its sentences counts as much as what fits the whole. Where
        one tool of a server fits, its others may be needed, too, so they are named, each a little later than the last.
        """
        request = request[:_MOST_CHARACTERS]
        scores = dict(self.rank(request, weights=_SEARCH_WEIGHTS))
        sentences = _SENTENCE.split(request)[:_MOST_SENTENCES]
        if len(sentences) > 1:
            parts = [dict(self.rank(sentence, weights=_SEARCH_WEIGHTS)) for sentence in sentences]
            scores = {name: score + max(part.get(name, 0.0) for part in parts) for name, score in scores.items()}
        servers: dict[str, list[str]] = {}
        for name in sorted(scores, key=scores.__getitem__, reverse=True):
            servers.setdefault(self._servers.get(name, name), []).append(name)
        worth: dict[str, float] = {}
        for server, names in servers.items():
            best, next_best = scores[names[0]], scores[names[1]] if len(names) > 1 else 0.0
            worth[names[0]] = best + _OF_SIBLING * next_best
            others = (name for name in self._tools.get(server, ()) if name not in scores)
            for place, name in enumerate((*names[1:], *others), start=1):
                own = scores.get(name, 0.0) + _OF_SIBLING * best
                worth[name] = max(own, _OF_BEST * best) * _NEXT**place
        return sorted(worth, key=worth.__getitem__, reverse=True)

    def chances(self, query: str) -> dict[str, float]:
        """How likely each tool is to be used for this question, from its fit and the number of tools; in catalog order.

        A task is expected to use `TOOLS_PER_TASK` tools of any pool, drawn by the square of their scores; the weaker
        these are, the more draws are random, as many a tool is used that shares no word with the question.
        """
        scores = dict(self.rank(query))
        by_server: dict[str, list[float]] = {}
        for schema in self._schemas:
            by_server.setdefault(schema.server, []).append(scores.get(schema.name, 0.0))
        best_two = {server: [*sorted(found, reverse=True), 0.0][:2] for server, found in by_server.items() if server}
        weights: list[float] = []
        for schema in self._schemas:  # its own score and, for less, the best one among its server's other tools
            own = scores.get(schema.name, 0.0)
            best, second = best_two.get(schema.server, (0.0, 0.0))
            beside = second if own == best else best
            weights.append(own**_SHARPNESS + _SERVER_SHARE * beside**_SHARPNESS)
        strong = (1 - _RANDOM_SHARE) / (sum(weights) + _WEAK_SCORE**_SHARPNESS)
        even = (1 - strong * sum(weights)) / max(1, len(weights))
        shares = [strong * weight + even for weight in weights]
        wanted = min(TOOLS_PER_TASK, 0.8 * len(shares))
        draws, most = 0.0, 256.0  # how many find so many different tools on average; found by halving
        for _ in range(32):
            middle, found = (draws + most) / 2, 0.0
            for share in shares:
                found += 1 - math.exp(-middle * share)
            draws, most = (middle, most) if found < wanted else (draws, middle)
        return {
            schema.name: min(_SUREST, 1 - math.exp(-draws * share))
            for schema, share in zip(self._schemas, shares, strict=True)
        }


def shortlist(query: str, ranker: Ranker, sizes: Mapping[str, int], room: int) -> tuple[str, ...]:
    """The names to show with a question: all of them, or, when their tokens exceed `room`, those that fit it best."""
    if sum(sizes.values()) <= room:
        return tuple(sizes)
    chosen: list[str] = []
    for name in ranker.search(query):
        room -= sizes.get(name, 0)
        if room < 0:
            break
        chosen.append(name)
    return tuple(chosen)


def _build(schemas: Sequence[ToolSchema]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    columns = "name, server, description, parameters"
    index.execute(f"CREATE VIRTUAL TABLE tools USING fts5({columns}, tokenize = 'porter unicode61')")
    rows: list[tuple[int, str, str, str, str]] = []
    for row, one in enumerate(schemas):
        properties = one.parameters.get("properties")
        names = " ".join(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else ""
        rows.append((row, _indexed(one.name), _indexed(one.server), _indexed(one.description), _indexed(names)))
    index.executemany(
        f"INSERT INTO tools (rowid, {columns}) VALUES (?, ?, ?, ?, ?)",
        rows,
    )
    return index


@lru_cache(maxsize=4096)
def _indexed(text: str) -> str:
    """A text as it stands in the index; remembered, as the same documents are indexed for one pool after another."""
    return " ".join(_terms(text))


def _terms(text: str) -> Iterator[str]:
    """The words of a text, lower-cased and without stop words; `snake_case` is split, `camelCase` kept and split."""
    for word in _WORD.findall(text):
        parts = _JOINT.split(word)
        for part in [word, *parts] if len(parts) > 1 else parts:
            if (term := part.lower()) not in _STOP_WORDS:
                yield term
