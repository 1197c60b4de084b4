import json
import re
from pathlib import Path

import pytest
from bench_play import written

from ecoshell.cli import main
from ecoshell_bench.search import read_catalog, read_queries

FRAME = 'This is the subfunction for tool "{}", you can use this tool.'
OWN = 'The description of this function is: "{}"'


@pytest.fixture
def toolbench(tmp_path: Path) -> tuple[Path, Path]:
    """Three tools of two servers in ToolBench's format, and two queries, the second for a missing tool."""
    servers = {
        "Weather": [("Now", "The weather of a city"), ("Alerts", "")],
        "Mail-Box": [("1. Send", "Send a letter")],
    }
    rows = [
        {
            "name": f"{api.lower().replace('. ', '_')}_for_{server.lower().replace('-', '_')}",
            "description": FRAME.format(server) + (OWN.format(about) if about else ""),
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            "tool": server,
            "api": api,
        }
        for server, tools in servers.items()
        for api, about in tools
    ]
    queries = tmp_path / "queries.json"
    records = [
        {
            "query": "How is the weather? Also send a letter.",
            "relevant APIs": [["Weather", "Now"], ["Mail-Box", "1. Send"]],
        },
        {"query": "Dig a hole.", "relevant APIs": [["Spade", "Dig"]]},
    ]
    queries.write_text(json.dumps(records, indent=1), encoding="utf-8")
    return written(tmp_path / "catalog.jsonl", *rows), queries


def measured(capsys: pytest.CaptureFixture[str], catalog: Path, queries: Path, *more: str) -> str:
    assert (
        main(["bench", "search", "--catalog", str(catalog), "--queries", str(queries), *more]) == 0
    )
    return capsys.readouterr().out


def test_recall_is_reported_by_cutoff(capsys, toolbench) -> None:
    figures = json.loads(measured(capsys, *toolbench, "--json"))
    assert figures["recall"] == {"1": 0.5, "5": 1.0, "10": 1.0, "64": 1.0}
    assert figures["ms_per_query"] > 0
    assert figures["n"] == 1


def test_text_output_has_the_same_figures(capsys, toolbench) -> None:
    shares = re.findall(r"recall@(\d+) ([\d.]+)", measured(capsys, *toolbench))
    assert shares == [("1", "0.500"), ("5", "1.000"), ("10", "1.000"), ("64", "1.000")]


def test_description_template_is_removed(toolbench) -> None:
    schemas, _ = read_catalog(toolbench[0])
    assert [schema.description for schema in schemas] == [
        "The weather of a city",
        "",
        "Send a letter",
    ]
    assert [schema.server for schema in schemas] == ["Weather", "Weather", "Mail-Box"]


def test_recorded_runs_with_needed_tools_are_queries(tmp_path: Path, catalog: Path) -> None:
    runs = written(
        tmp_path / "runs.jsonl", {"query": "read it", "gold_tools": ["read_file", "gone"]}
    )
    schemas, names = read_catalog(catalog)
    assert len(schemas) == 8
    assert list(read_queries(runs, names)) == [("read it", frozenset({"read_file"}))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "cannot be read"),
        ("[1]", "query 1: it is not an object"),
        ('[{"query": "x", "relevant APIs": []}]', "No query of"),
        ('{"query": "x"}', "neither `gold_tools` nor"),
        ("", "No query of"),
    ],
)
def test_invalid_queries_are_reported(capsys, toolbench, text: str, message: str) -> None:
    catalog, queries = toolbench
    queries.write_text(text, encoding="utf-8")
    assert main(["bench", "search", "--catalog", str(catalog), "--queries", str(queries)]) == 2
    assert message in capsys.readouterr().err
