"""`ecoshell bench search`: how many of the tools that a request needs are among the first that a search names.

Read are ToolBench's queries and tools, and any catalog with JSON Lines that name for each `query` its `gold_tools`.
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
from ecoshell.messages import ToolDocument
from ecoshell_bench.printing import note, show
from ecoshell_bench.reading import Filled, ToolRecord, read_tools
from ecoshell_train.records import checked, read_objects

AMONG = (1, 5, 10, 64)
"""How many names are looked at."""
_FRAME = re.compile(
    r'This is the subfunction for tool ".*?", you can use this tool\.'
    r'(?:The description of this function is: "(?P<own>.*)")?',
    re.DOTALL,
)
"""What ToolBench puts around the description of each of its tools."""
_NAME = re.compile(r"[^a-z0-9]+")
_FIX = "Give ToolBench's queries, or JSON Lines with `query` and `gold_tools`."


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    documents, names = read_catalog(args.catalog)
    wanted = [(query, gold) for query, gold in read_queries(args.queries, names) if gold]
    if not wanted:
        raise UsageError(f"No query of {args.queries} needs a tool of {args.catalog}.", fix=_FIX)
    wanted = wanted[: args.limit]
    recall, milliseconds = measure(Ranker(documents), wanted)
    if args.json:
        figures = {str(among): round(share, 4) for among, share in recall.items()}
        show(json.dumps({"recall": figures, "ms_per_query": round(milliseconds, 3), "n": len(wanted)}))
        return 0
    show("  ".join(f"recall@{among} {share:.3f}" for among, share in recall.items()))
    note(f"{len(wanted)} queries, {len(documents)} tools, {milliseconds:.1f} ms a query (median).")
    return 0


def measure(ranker: Ranker, wanted: Sequence[tuple[str, frozenset[str]]]) -> tuple[dict[int, float], float]:
    """The mean share of a query's tools among the first names, by how many, and the median of milliseconds."""
    ranker.search(wanted[0][0])  # builds the index
    found, taken = [0.0] * len(AMONG), list[float]()
    for query, gold in wanted:
        begun = time.perf_counter()
        names = ranker.search(query)
        taken.append(1000 * (time.perf_counter() - begun))
        for place, among in enumerate(AMONG):
            found[place] += len(gold.intersection(names[:among])) / len(gold)
    return {among: hits / len(wanted) for among, hits in zip(AMONG, found, strict=True)}, median(taken)


def read_catalog(path: Path) -> tuple[list[ToolDocument], Mapping[str, str]]:
    """The documents of a catalog, and their names by what a file of queries calls them. Raises UsageError."""
    rows = list(read_objects(path))
    if not any("api" in row for _, row in rows):
        tools = read_tools(path)
        return list(tools.documents.values()), {own: name for (_, own), name in tools.names.items()}
    documents: list[ToolDocument] = []
    names: dict[str, str] = {}
    for place, row in rows:
        tool = checked(TypeAdapter(ToolRecord), row, place, "Give ToolBench's catalog, one tool a line.")
        framed = _FRAME.fullmatch(tool.description)
        described = tool.description if framed is None else framed["own"] or ""
        server = str(row.get("tool") or "")
        documents.append(ToolDocument(tool.name, described, tool.parameters, server))
        names[_called(server, row.get("api"))] = tool.name
    return documents, names


class _Query(BaseModel):
    query: Filled
    gold_tools: list[Any] = []
    relevant_apis: Annotated[list[Any] | None, Field(alias="relevant APIs")] = None

    @model_validator(mode="after")
    def _needs_are_told(self) -> Self:
        if not self.model_fields_set & {"gold_tools", "relevant_apis"}:
            raise ValueError("it has neither `gold_tools` nor `relevant APIs`")
        return self


def read_queries(path: Path, names: Mapping[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Each query with those of the tools it needs that the catalog has. Raises UsageError."""
    adapter = TypeAdapter(_Query)
    for place, record in _rows(path):
        row = checked(adapter, record, place, _FIX)
        if row.relevant_apis is not None:
            pairs = [cast("Sequence[Any]", pair) for pair in row.relevant_apis if isinstance(pair, list)]
            needed = [_called(*pair) for pair in pairs if len(pair) == 2]
        else:
            needed = [str(name) for name in row.gold_tools]
        yield row.query, frozenset(names[name] for name in needed if name in names)


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    """The objects of a JSON list, as ToolBench has them, or of JSON Lines, each with its place."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            listed = file.read(64).lstrip().startswith("[")
            file.seek(0)
            rows = cast("list[object]", json.load(file)) if listed else None
    except (OSError, ValueError, RecursionError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix=_FIX) from failure
    if rows is None:
        yield from read_objects(path)
    else:
        yield from ((f"{path}: query {number}", row) for number, row in enumerate(rows, start=1))


def _called(server: object, tool: object) -> str:
    """What stands for a tool of ToolBench, whose names are spelled in more than one way."""
    return " ".join(_NAME.sub("_", str(part).lower()).strip("_") for part in (server, tool))
