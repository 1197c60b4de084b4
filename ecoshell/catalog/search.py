"""Which tools fit a question: local BM25 search over names, descriptions and parameter names."""

import math
import re
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from ecoshell.messages import ToolSchema

_RANK_WEIGHTS = (4.0, 2.0, 1.0, 0.5)
"""Weights of matches in a tool's name, server name, description and parameter names."""
_SEARCH_WEIGHTS = (2.0, 2.0, 1.0, 0.5)
"""The same weights for `search`, which groups tools by server."""
_SHARE_OF_BEST = 0.7
"""The minimum score of a tool relative to the best of its server."""
_SIBLING_BONUS = 0.1
"""Share of the best sibling's score that is added to a tool's score."""
_POSITION_FACTOR = 0.96
"""Factor on a tool's score for each tool of its server that precedes it.

These three constants and the search weights were chosen with ToolBench's queries. On the queries of
LiveMCPBench, which were not used, recall@10 is 0.49, and 0.46 with `rank`.
"""
_SENTENCE_LIMIT = 16
_SELECT = """SELECT rowid, -bm25(tools, ?, ?, ?, ?) AS score FROM tools WHERE tools MATCH ?
    ORDER BY score DESC, rowid LIMIT ?"""
_TERM_LIMIT = 64
_CHARACTER_LIMIT = 20_000
"""Characters of a question that are searched; a pasted file follows the request."""

_WORD = re.compile(r"[^\W_]+")
_SENTENCE_BREAK = re.compile(r"(?<=[.?!;])\s+|\n+")
_CAMEL_CASE_BREAK = re.compile(
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])"
)
_IMPLIED_TERMS = (
    (re.compile(r"\bhttps?://"), ("url", "web", "page")),
    (
        re.compile(r"(?<![\w/:.~-])[\w.~-]*/[\w.-]+/?|\b[\w-]+\.[a-z]{1,5}\b"),
        ("file", "path"),
    ),
    (
        re.compile(r"\d\s*(?:[-+*/^%×÷]\s*\d|%)"),
        ("calculate", "arithmetic", "expression"),
    ),
)
"""Search terms for a URL, a file name and a calculation in a question."""
_STOP_TEXT = """
a about all also an and any are as at be both but by can could do does each following for from get give had has have
help how i if in including information into is it its just let like make may me more most my need no not of on one or
our out please should show so some such tell than that the their them then there these they this to two up us use
using want was we were what when where which who will with would you your
api available based data details endpoint given results retrieve return returns specific specified used
"""
_STOP_WORDS = frozenset(_STOP_TEXT.split())

TOOLS_PER_TASK = 2.4
_SHARPNESS = 2
_WEAK_SCORE = 3.0
_SERVER_SHARE = 0.2
_RANDOM_SHARE = 0.1
_MAX_CHANCE = 0.9
"""Constants of `Ranker.chances`.

They were fitted by likelihood to ToolBench's queries (2.3 tools per task) and the failed runs of
LiveMCPBench (2.5), in pools of 5 to 527 tools. On its successful runs, which were not used for the
fit, tools with a chance of 7, 14, 24, 40, 59, 77 and 89 % were used in 7, 18, 33, 46, 63, 85 and
92 % of the cases.
"""
_MAX_DRAWS = 256.0
_BISECTION_STEPS = 32


class Ranker:
    """Ranks tools by their fit with a question; builds its index on first use, and is thread-safe."""

    def __init__(self, schemas: Iterable[ToolSchema]) -> None:
        self._lock = threading.Lock()
        self.update(schemas)

    def update(self, schemas: Iterable[ToolSchema]) -> None:
        """Replace the ranked tools; not safe while another thread ranks."""
        self._schemas = tuple(schemas)
        self._servers = {schema.name: schema.server for schema in self._schemas if schema.server}
        self._tools: dict[str, list[str]] = {}
        for name, server in self._servers.items():
            self._tools.setdefault(server, []).append(name)
        self._index: sqlite3.Connection | None = None

    def rank(
        self, query: str, limit: int | None = None, *, weights: Sequence[float] = _RANK_WEIGHTS
    ) -> list[tuple[str, float]]:
        """Return tools that share a word with the question and their BM25 scores, best first.

        Tools with equal scores are in catalog order.
        """
        query = query[:_CHARACTER_LIMIT]
        implied = (
            term for pattern, terms in _IMPLIED_TERMS if pattern.search(query) for term in terms
        )
        (words,) = _terms(query)
        terms = list(islice(dict.fromkeys((*implied, *words.split())), _TERM_LIMIT))
        if not terms:
            return []
        match = " OR ".join(f'"{term}"' for term in terms)
        with self._lock:
            if self._index is None:
                self._index = _build_index(self._schemas)
            parameters = (*weights, match, -1 if limit is None else limit)
            rows = self._index.execute(_SELECT, parameters).fetchall()
        return [(self._schemas[int(row)].name, float(score)) for row, score in rows]

    def search(self, request: str) -> list[str]:
        """Return the names of tools that fit a request, best first.

        A match with one sentence counts as much as one with the whole request, which may want
        several things. If one tool of a server fits, its other tools are included, each with a
        lower score than the one before.
        """
        request = request[:_CHARACTER_LIMIT]
        scores = dict(self.rank(request, weights=_SEARCH_WEIGHTS))
        sentences = _SENTENCE_BREAK.split(request)[:_SENTENCE_LIMIT]
        if len(sentences) > 1:
            parts = [dict(self.rank(sentence, weights=_SEARCH_WEIGHTS)) for sentence in sentences]
            scores = {
                name: score + max(part.get(name, 0.0) for part in parts)
                for name, score in scores.items()
            }
        by_server: dict[str, list[str]] = {}
        for name in sorted(scores, key=scores.__getitem__, reverse=True):
            by_server.setdefault(self._servers.get(name, name), []).append(name)
        final: dict[str, float] = {}
        for server, names in by_server.items():
            best = scores[names[0]]
            second = scores[names[1]] if len(names) > 1 else 0.0
            final[names[0]] = best + _SIBLING_BONUS * second
            siblings = [name for name in self._tools.get(server, ()) if name not in scores]
            for position, name in enumerate((*names[1:], *siblings), start=1):
                score = scores.get(name, 0.0) + _SIBLING_BONUS * best
                final[name] = max(score, _SHARE_OF_BEST * best) * _POSITION_FACTOR**position
        return sorted(final, key=final.__getitem__, reverse=True)

    def chances(self, query: str) -> dict[str, float]:
        """Return the probability of use of each tool, in catalog order.

        A task is modelled as draws of tools, weighted by their squared scores, until it has used
        `TOOLS_PER_TASK` tools. The weaker the scores, the more draws are random, as many used tools
        share no word with the question.
        """
        shares = self._draw_shares(query)
        expected = min(TOOLS_PER_TASK, 0.8 * len(shares))
        low, high = 0.0, _MAX_DRAWS  # Find the number of draws by bisection.
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2
            different = sum(1 - math.exp(-middle * share) for share in shares)
            low, high = (middle, high) if different < expected else (low, middle)
        return {
            schema.name: min(_MAX_CHANCE, 1 - math.exp(-low * share))
            for schema, share in zip(self._schemas, shares, strict=True)
        }

    def _draw_shares(self, query: str) -> list[float]:
        """Return the probability that one draw is this tool, from its own score and its siblings'."""
        scores = dict(self.rank(query))
        by_server: dict[str, list[float]] = {}
        for schema in self._schemas:
            by_server.setdefault(schema.server, []).append(scores.get(schema.name, 0.0))
        best_two = {
            server: [*sorted(server_scores, reverse=True), 0.0][:2]
            for server, server_scores in by_server.items()
            if server
        }
        weights: list[float] = []
        for schema in self._schemas:
            own = scores.get(schema.name, 0.0)
            best, second = best_two.get(schema.server, (0.0, 0.0))
            sibling = second if own == best else best
            weights.append(own**_SHARPNESS + _SERVER_SHARE * sibling**_SHARPNESS)
        factor = (1 - _RANDOM_SHARE) / (sum(weights) + _WEAK_SCORE**_SHARPNESS)
        random_share = (1 - factor * sum(weights)) / max(1, len(weights))
        return [factor * weight + random_share for weight in weights]


def shortlist(query: str, ranker: Ranker, sizes: Mapping[str, int], room: int) -> tuple[str, ...]:
    """Return all names, or those that fit the question best if they take more than `room` tokens."""
    if sum(sizes.values()) <= room:
        return tuple(sizes)
    names: list[str] = []
    for name in ranker.search(query):
        room -= sizes.get(name, 0)
        if room < 0:
            break
        names.append(name)
    return tuple(names)


def _build_index(schemas: Sequence[ToolSchema]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    columns = "name, server, description, parameters"
    index.execute(
        f"CREATE VIRTUAL TABLE tools USING fts5({columns}, tokenize = 'porter unicode61')"
    )
    rows: list[tuple[int | str, ...]] = []
    for row, schema in enumerate(schemas):
        properties = schema.parameters.get("properties")
        is_mapping = isinstance(properties, Mapping)
        parameters = " ".join(cast("Mapping[str, Any]", properties)) if is_mapping else ""
        texts = _terms(schema.name, schema.server, schema.description, parameters)
        rows.append((row, *texts))
    index.executemany(f"INSERT INTO tools (rowid, {columns}) VALUES (?, ?, ?, ?, ?)", rows)
    return index


@lru_cache(maxsize=1024)  # The same schemas are indexed for several pools.
def _terms(*texts: str) -> tuple[str, ...]:
    """Return the lower-cased words of each text without stop words, and the parts of camel-case words."""
    results: list[str] = []
    for text in texts:
        terms: list[str] = []
        for word in _WORD.findall(text):
            parts = _CAMEL_CASE_BREAK.split(word)
            terms += [part.lower() for part in ([word, *parts] if len(parts) > 1 else parts)]
        results.append(" ".join([term for term in terms if term not in _STOP_WORDS]))
    return tuple(results)
