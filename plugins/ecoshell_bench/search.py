"""`ecoshell bench search`: recall of the tools a request needs among the first search results.

Reads ToolBench's queries and tools, or any catalog and JSON Lines with the `gold_tools` of each `query`.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from ecoshell.catalog.search import Ranker
from ecoshell.errors import UsageError
from ecoshell.messages import ToolSchema
from ecoshell_bench.printing import note, show
from ecoshell_bench.reading import Filled, ToolRecord, read_tools
from ecoshell_train.records import checked, read_objects

CUTOFFS = (1, 5, 10, 64)
"""Numbers of first results among which needed tools count."""
_FRAME = re.compile(
    r'This is the subfunction for tool ".*?", you can use this tool\.'
    r'(?:The description of this function is: "(?P<own>.*)")?',
    re.DOTALL,
)
"""The template that ToolBench puts around each tool description."""
_NAME = re.compile(r"[^a-z0-9]+")
_FIX = "Give ToolBench's queries, or JSON Lines with `query` and `gold_tools`."


def run(args: argparse.Namespace) -> int:
    """Measure and print recall and search time."""
    schemas, names = read_catalog(args.catalog)
    queries = [(query, needed) for query, needed in read_queries(args.queries, names) if needed]
    if not queries:
        raise UsageError(f"No query of {args.queries} needs a tool of {args.catalog}.", fix=_FIX)
    queries = queries[: args.limit]
    recall, milliseconds = measure(Ranker(schemas), queries)
    if args.json:
        figures = {str(cutoff): round(share, 4) for cutoff, share in recall.items()}
        show(
            json.dumps(
                {"recall": figures, "ms_per_query": round(milliseconds, 3), "n": len(queries)}
            )
        )
        return 0
    show("  ".join(f"recall@{cutoff} {share:.3f}" for cutoff, share in recall.items()))
    note(f"{len(queries)} queries, {len(schemas)} tools, {milliseconds:.1f} ms per query (median).")
    return 0


def measure(
    ranker: Ranker, queries: Sequence[tuple[str, frozenset[str]]]
) -> tuple[dict[int, float], float]:
    """Return the mean recall by cutoff, and the median milliseconds per query."""
    ranker.search(queries[0][0])  # builds the index
    recall, milliseconds = dict.fromkeys(CUTOFFS, 0.0), list[float]()
    for query, needed in queries:
        started = time.perf_counter()
        names = ranker.search(query)
        milliseconds.append(1000 * (time.perf_counter() - started))
        for cutoff in CUTOFFS:
            recall[cutoff] += len(needed.intersection(names[:cutoff])) / len(needed)
    return {cutoff: total / len(queries) for cutoff, total in recall.items()}, median(milliseconds)


def read_catalog(path: Path) -> tuple[list[ToolSchema], Mapping[str, str]]:
    """Return the tool schemas of a catalog, and their names by the names used in queries. Raises UsageError."""
    rows = list(read_objects(path))
    if not any("api" in row for _, row in rows):
        tools = read_tools(path)
        return list(tools.schemas.values()), {
            original: name for (_, original), name in tools.names.items()
        }
    schemas: list[ToolSchema] = []
    names: dict[str, str] = {}
    for place, row in rows:
        tool = checked(
            TypeAdapter(ToolRecord), row, place, "Give ToolBench's catalog with one tool per line."
        )
        match = _FRAME.fullmatch(tool.description)
        description = tool.description if match is None else match["own"] or ""
        server = str(row.get("tool") or "")
        schemas.append(ToolSchema(tool.name, description, tool.parameters, server))
        names[_query_name(server, row.get("api"))] = tool.name
    return schemas, names


class _Query(BaseModel):
    query: Filled
    gold_tools: list[Any] = []
    relevant_apis: Annotated[list[Any] | None, Field(alias="relevant APIs")] = None

    @model_validator(mode="after")
    def _has_needed_tools(self) -> Self:
        if not self.model_fields_set & {"gold_tools", "relevant_apis"}:
            raise ValueError("it has neither `gold_tools` nor `relevant APIs`")
        return self


def read_queries(path: Path, names: Mapping[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each query with the needed tools that the catalog has. Raises UsageError."""
    adapter = TypeAdapter(_Query)
    for place, record in _rows(path):
        row = checked(adapter, record, place, _FIX)
        if row.relevant_apis is not None:
            pairs = [
                cast("Sequence[Any]", pair) for pair in row.relevant_apis if isinstance(pair, list)
            ]
            needed = [_query_name(*pair) for pair in pairs if len(pair) == 2]
        else:
            needed = [str(name) for name in row.gold_tools]
        yield row.query, frozenset(names[name] for name in needed if name in names)


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the objects of a JSON list (ToolBench) or of JSON Lines, each with its position for error messages."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            is_list = file.read(64).lstrip().startswith("[")
            file.seek(0)
            rows = cast("list[object]", json.load(file)) if is_list else None
    except (OSError, ValueError, RecursionError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix=_FIX) from failure
    if rows is None:
        yield from read_objects(path)
    else:
        yield from ((f"{path}: query {number}", row) for number, row in enumerate(rows, start=1))


def _query_name(server: object, tool: object) -> str:
    """Normalize the name of a ToolBench tool, which is spelled in several ways."""
    return " ".join(_NAME.sub("_", str(part).lower()).strip("_") for part in (server, tool))
