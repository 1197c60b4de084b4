"""The tools of ecoshell_data: results, forbidden queries and confinement to the named files."""

import asyncio
import gzip
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ecoshell import worker
from ecoshell.messages import Observation
from ecoshell.tools import ResultSize, Subject, ToolOptions, subjects_of
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.running import contained
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace

pytest.importorskip("duckdb", reason="the extra `data` is not installed")
pytest.importorskip("plotille", reason="the extra `data` is not installed")
import duckdb

from ecoshell_data import tools

SALES = "region,month,amount,note\nnorth,2026-01-01,10.5,ok\nsouth,2026-01-01,-7,\nnorth,2026-02-01,12.25,\x1b[31mred\n"
NO_CHANGE = "must be one SELECT: files are read, never changed"
NO_FUNCTION = "cannot be used here: a file in `paths` is a table"


@pytest.fixture
def folder(workspace: Workspace) -> Path:
    root = workspace.root
    (root / "sales.csv").write_text(SALES)
    (root / "sub").mkdir()
    with gzip.open(root / "sub" / "more-sales.csv.gz", "wt") as packed:
        packed.write(SALES)
    (root / "people.json").write_text(
        '[{"name": "Ada", "has": {"cats": [1, 2]}}, {"name": "Bé", "has": null}]'
    )
    (root / "lines.jsonl").write_text('{"number": 1}\n{"number": 2}\n')
    duckdb.sql("SELECT range AS number, 'row ' || range AS text FROM range(50000)").write_parquet(
        str(root / "many.parquet")
    )
    with sqlite3.connect(root / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER, total REAL, who TEXT, odd, blob BLOB)")
        shop.execute(
            "INSERT INTO orders VALUES (1, 2.5, 'Ada', 'x', x'00ff'), (2, 4, 'Bé', 7, NULL)"
        )
        shop.execute("CREATE TABLE sales (it TEXT)")
        shop.execute("CREATE VIEW dear AS SELECT id FROM orders WHERE total > 3")
        shop.execute("CREATE TABLE computed (n, twice AS (2 * n))")
        shop.execute("INSERT INTO computed VALUES (2)")
    shop.close()
    return root


@pytest.fixture
def run(workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a tool in this process, as if it were a worker, which is slow to start."""
    monkeypatch.setattr(worker._workers, "inside", True)  # pyright: ignore[reportPrivateUsage]

    async def call(name: str, **arguments: Any) -> Observation:
        return await tool(workspace, name).run(arguments)

    return call


def tool(workspace: Workspace, name: str, **options: Any) -> FunctionTool:
    return {tool.name: tool for tool in tools(workspace, ToolOptions(**options))}[name]


Run = Callable[..., Any]


async def ask(run: Run, query: str, *paths: str, **more: Any) -> str:
    result = await run("data_query", query=query, paths=[*paths], **more)
    assert result.ok, result.text
    return result.text


async def refused(run: Run, query: str, *paths: str) -> str:
    result = await run("data_query", query=query, paths=[*paths])
    assert not result.ok, result.text
    return result.text


def test_only_data_plot_writes_and_all_declare_their_paths(workspace: Workspace) -> None:
    assert {
        name: (
            sorted(tool(workspace, name).effects),
            {*subjects_of(tool(workspace, name)).values()},
        )
        for name in ("data_describe", "data_query", "data_plot")
    } == {
        "data_describe": (["read"], {Subject.PATH}),
        "data_query": (["read"], {Subject.PATH}),
        "data_plot": (["read", "write"], {Subject.PATH}),
    }
    assert {*subjects_of(tool(workspace, "data_plot"))} == {"path", "paths"}


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        (
            "sales.csv",
            ["sales.csv is CSV, with these tables:", "Table sales: 3 rows", "  amount  DOUBLE"],
        ),
        ("sales.csv", ["region  month       amount  note", "north   2026-02-01   12.25  ␛[31mred"]),
        ("sub/more-sales.csv.gz", ["Table more_sales: 3 rows"]),
        (
            "people.json",
            ["people.json is JSON, with these tables:", "  has  STRUCT(cats BIGINT[])"],
        ),
        ("lines.jsonl", ["Table lines: 2 rows", "  number  BIGINT"]),
        ("many.parquet", ["Table many: 50000 rows", "     2  row 2"]),
        (
            "shop.db",
            ["Table orders: 2 rows", "  total  REAL", "Table sales: 0 rows", "Table dear: 1 rows"],
        ),
    ],
)
async def test_describe_lists_tables_columns_and_rows(
    path: str, lines: list[str], run: Run
) -> None:
    result = await run("data_describe", path=path)
    assert result.ok
    assert {*lines} <= {*result.text.splitlines()}, result.text


@pytest.mark.parametrize(
    ("query", "paths", "expected"),
    [
        ("SELECT region, sum(amount) AS s FROM sales GROUP BY 1 ORDER BY 2;", ["sales.csv"], "south -7.0 north 22.75"),
        ("SELECT count(*) AS n FROM 'sales.csv' -- all", ["sales.csv"], "3"),
        ("SELECT 'é;' AS t, 1 AS n; -- all; /* ö */", ["sales.csv"], "é; 1"),
        ('SELECT count(*) AS n FROM "sub/more-sales.csv.gz"', ["sub/more-sales.csv.gz"], "3"),
        ("SELECT has.cats[2] AS c FROM people WHERE name = 'Ada'", ["people.json"], "2"),
        ("SELECT sum(number) AS s FROM many JOIN lines USING (number)", ["many.parquet", "lines.jsonl"], "3"),
        ("SELECT who, total * 2 AS t, odd, blob FROM orders", ["shop.db"], "Ada 5.0 x 00ff Bé 8.0 7 NULL"),
        ("SELECT id FROM shop.dear", ["shop.db"], "2"),
        ("SELECT twice FROM computed", ["shop.db"], "4"),
        ("SELECT amount, it FROM sales LEFT JOIN shop.sales ON 1 LIMIT 1", ["sales.csv", "shop.db"], "10.5 NULL"),
        ("SELECT note FROM sales WHERE amount > 12", ["sales.csv"], "␛[31mred"),
    ],
)  # fmt: skip
async def test_query_returns_rows(query: str, paths: list[str], expected: str, run: Run) -> None:
    rows = (await ask(run, query, *paths)).splitlines()[1:]
    assert " ".join(" ".join(rows).split()) == expected


async def test_order_is_preserved_and_omitted_rows_are_counted(
    workspace: Workspace, run: Run
) -> None:
    query = {"query": "SELECT * FROM many ORDER BY number DESC", "paths": ["many.parquet"]}
    result = await tool(workspace, "data_query", result=ResultSize(1_000)).run(query)
    lines = result.text.splitlines()
    assert lines[:2] == ["number  text", " 49999  row 49999"]
    assert lines[-1] == f"[truncated: {len(lines) - 2} of 50000 rows shown]"
    assert (result.truncated, len(result.text) <= 1_000, len(lines) > 20) == (True, True, True)


async def test_wide_rows_are_truncated_and_empty_results_name_their_columns(
    workspace: Workspace, run: Run
) -> None:
    columns = ", ".join(f"repeat('x', 9000) AS c{number}" for number in range(40))
    result = await tool(workspace, "data_query", result=ResultSize(1_000)).run(
        {"query": f"SELECT {columns} FROM lines", "paths": ["lines.jsonl"]}
    )
    assert (result.ok, result.truncated, len(result.text) <= 1_000) == (True, True, True)
    assert (
        await ask(run, "SELECT name FROM people WHERE false", "people.json")
        == "No rows. Columns: name."
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT amont FROM sales", '"amont" not found'),
        ("SELECT * FROM sale", "Table with name sale does not exist"),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT sum(note) FROM sales", "No function matches"),
    ],
)
async def test_invalid_sql_is_reported_with_the_available_tables(
    query: str, words: str, run: Run
) -> None:
    message = await refused(run, query, "sales.csv", "shop.db")
    assert words in message
    assert (
        "Available: sales (region VARCHAR, month DATE, amount DOUBLE, note VARCHAR); orders (id INTEGER"
        in message
    )
    assert "shop.sales (it TEXT)" in message


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("COPY sales TO '{outside}/new.csv'", NO_CHANGE),
        ("COPY sales TO 'sales.csv' (USE_TMP_FILE false)", NO_CHANGE),
        ("WITH x AS (COPY lines TO '{root}/sales.csv' (USE_TMP_FILE false)) FROM sales", NO_CHANGE),
        ("WITH x AS (DELETE FROM sales RETURNING *) FROM x", NO_CHANGE),
        ("SELECT 1; COPY sales TO '{outside}/new.csv'", NO_CHANGE),
        ("ATTACH '{outside}/new.db'", NO_CHANGE),
        ("EXPORT DATABASE '{outside}/new'", NO_CHANGE),
        ("CREATE TABLE new AS FROM sales", NO_CHANGE),
        ("SET enable_external_access = true", NO_CHANGE),
        ("PRAGMA enable_logging", NO_CHANGE),
        ("INSTALL httpfs", NO_CHANGE),
        ("LOAD httpfs", NO_CHANGE),
        ("CALL enable_logging(storage_path = '{outside}')", NO_CHANGE),
        ("", NO_CHANGE),
        ("SELECT * FROM read_csv('{outside}/secret.txt')", f"read_csv {NO_FUNCTION}"),
        ("SELECT * FROM read_text('/etc/passwd')", f"read_text {NO_FUNCTION}"),
        (
            "SELECT (SELECT content FROM read_blob('/etc/passwd')) FROM sales",
            f"read_blob {NO_FUNCTION}",
        ),
        ("SELECT * FROM glob('/*')", f"glob {NO_FUNCTION}"),
        ("SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')", f"query {NO_FUNCTION}"),
        (
            "SELECT * FROM json_execute_serialized_sql('{{}}')",
            f"json_execute_serialized_sql {NO_FUNCTION}",
        ),
        ("SELECT * FROM arrow_scan(1, 2, 3)", f"arrow_scan {NO_FUNCTION}"),
        ("SELECT * FROM '{outside}/secret.txt'", "does not exist"),
        ("SELECT * FROM '{outside}/secret.csv'", "and no other file or address"),
        ("SELECT * FROM '{root}/people.json'", "and no other file or address"),
        ("SELECT * FROM 'https://example.org/a.csv'", "and no other file or address"),
        ("SELECT * FROM 's3://bucket/a.parquet'", "and no other file or address"),
        ("SELECT * FROM '/proc/self/environ'", "does not exist"),
        ("SELECT getenv('HOME')", "does not exist"),
    ],
)
async def test_query_cannot_write_or_read_other_files(
    query: str, words: str, run: Run, folder: Path, outside: Path
) -> None:
    (outside / "secret.csv").write_text("a\n1\n")
    contents = contents_of(folder.parent)
    message = await refused(
        run, query.format(outside=outside, root=folder), "sales.csv", "lines.jsonl"
    )
    assert words in message
    assert "do not read me" not in message
    assert contents_of(folder.parent) == contents


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


async def test_duckdb_itself_refuses_other_files(
    run: Run, folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of table functions."""
    from ecoshell_data import database

    monkeypatch.setattr(database, "_TABLE_FUNCTIONS", {"read_text", "glob", "read_csv"})
    for call in (
        f"read_text('{outside}/secret.txt')",
        "glob('/*')",
        "read_csv('https://example.org/a.csv')",
    ):
        with pytest.raises(Exception, match="and no other file or address"):
            database.run_query(Workspace(folder), f"SELECT * FROM {call}", ["sales.csv"])
    assert database.run_query(Workspace(folder), "SELECT * FROM sales", ["sales.csv"]).total == 3


async def test_paths_outside_links_and_other_formats_are_refused(
    run: Run, folder: Path, outside: Path
) -> None:
    (folder / "link.csv").symlink_to(outside / "secret.txt")
    (folder / "book.xlsx").write_bytes(b"PK\x03\x04\0\0")
    (folder / "torn.parquet").write_bytes(b"PAR1torn")
    (folder / "torn.db").write_bytes(b"SQLite format 3\0torn")
    for path, words in {
        "../outside/secret.txt": "outside the workspace",
        "/etc/passwd": "outside the workspace",
        "link.csv": "outside the workspace",
        "*.csv": "no such file",
        "sub": "is a folder",
        "book.xlsx": "neither CSV, JSON, Parquet nor SQLite",
        "torn.parquet": "torn.parquet cannot be read as Parquet",
        "torn.db": "torn.db cannot be read as SQLite",
    }.items():
        assert words in await refused(run, "SELECT 1", "sales.csv", path)
        assert words in (await run("data_describe", path=path)).text
    assert "Name the files" in await refused(run, "SELECT 1")


async def test_database_with_pending_changes_is_refused(run: Run, folder: Path) -> None:
    writer = sqlite3.connect(folder / "live.db")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t (a)")
    writer.commit()
    assert "still in live.db-wal" in await refused(run, "SELECT * FROM t", "live.db")
    writer.close()
    assert await ask(run, "SELECT count(*) AS n FROM t", "live.db") == "n\n0"


async def test_inconsistent_rows_are_reported_in_a_sentence(run: Run, folder: Path) -> None:
    (folder / "long.csv").write_text("a,b\n" + "1,2\n" * 30_000 + "x,y,z\n")
    result = await run("data_describe", path="long.csv")
    assert not result.ok
    assert result.text.startswith(
        "Invalid Input Error: CSV Error on Line: 30002 Original Line: x,y,z Expected Number"
    )
    assert result.text.endswith("Available: long (a BIGINT, b BIGINT).")


async def test_unreadable_table_does_not_hide_the_others(run: Run, folder: Path) -> None:
    with sqlite3.connect(folder / "odd.db") as odd:
        odd.execute("CREATE TABLE good (n)")
        odd.execute("INSERT INTO good VALUES (7)")
        odd.execute("CREATE VIEW lost AS SELECT * FROM gone")
        odd.execute("CREATE VIEW wrong AS SELECT json_extract('{', '$') AS x FROM good")
        odd.execute("PRAGMA writable_schema = ON")
        sql = "CREATE VIRTUAL TABLE map USING far"
        odd.execute("INSERT INTO sqlite_schema VALUES ('table', 'map', 'map', 0, ?)", [sql])
    odd.close()
    description = (await run("data_describe", path="odd.db")).text
    assert "Table good: 1 rows" in description
    assert "lost cannot be read: no such table: main.gone." in description
    assert "map cannot be read: no such module: far." in description
    assert "Table wrong cannot be read: " in description  # Its rows cannot be evaluated.
    assert (await run("data_query", query="SELECT n FROM good", paths=["odd.db"])).text == "n\n7"
    lost = await run("data_query", query="SELECT * FROM lost", paths=["odd.db"])
    assert (lost.ok, lost.text) == (
        False,
        "odd.db cannot be read as SQLite: no such table: main.gone.",
    )


async def test_awkward_file_names_get_usable_table_names(run: Run, folder: Path) -> None:
    for name in ("order.csv", "2026 costs (new).csv", "main.csv", "it's;DROP.csv", 'a"b.csv'):
        (folder / name).write_text("a\n1\n")
        description = (await run("data_describe", path=name)).text
        table = description.partition("Table ")[2].partition(": 1 rows")[0]
        assert await ask(run, f"SELECT a FROM {table}", name) == "a\n1"
    both = ["sales.csv", "sub/sales.csv"]
    (folder / "sub" / "sales.csv").write_text("a\n1\n")
    assert (
        await ask(run, "SELECT a, count(*) AS n FROM sales, sales_2 GROUP BY a", *both)
        == "a  n\n1  3"
    )


async def test_memory_limit_is_an_error_and_the_next_query_works(
    workspace: Workspace, folder: Path
) -> None:
    query_tool = tool(workspace, "data_query")
    for query in (
        "SELECT repeat('x', 2000000000)",
        "SELECT list(a.text || b.text) FROM many a, many b",
    ):
        result = await query_tool.run({"query": query, "paths": ["many.parquet"]})
        assert (result.ok, "it took more than 512 MB of memory" in result.text) == (False, True), (
            result.text
        )
    counted = await query_tool.run(
        {"query": "SELECT count(*) AS n FROM many", "paths": ["many.parquet"], "plot": "no"}
    )
    assert counted.text == "    n\n50000"
    drawn = await query_tool.run(
        {"query": "SELECT 'a', 1", "paths": ["many.parquet"], "plot": "bar"}
    )
    assert drawn.text.splitlines()[1] == f"a  {'█' * 50} 1"


async def test_query_ends_at_its_time_limit_and_when_cancelled(
    workspace: Workspace, folder: Path
) -> None:
    endless = {
        "query": "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 7",
        "paths": ["sales.csv"],
    }
    hasty = tool(workspace, "data_query", command_seconds=3.0)
    result = await contained(hasty, endless, hasty.limits)
    assert (result.ok, "took longer than 3 s" in result.text) == (False, True)
    patient = tool(workspace, "data_query", command_seconds=600.0)
    earlier = computing_workers()
    call = asyncio.create_task(contained(patient, endless, patient.limits))
    while not (busy := await asyncio.to_thread(computing_workers) - earlier):
        assert not call.done(), call.result()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while busy & await asyncio.to_thread(computing_workers):
        pass


def computing_workers() -> set[int]:
    """Return the worker processes that have loaded DuckDB and are computing."""
    workers: set[int] = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int(fields_of(place / "stat")[1]) != os.getpid():
                continue
            if "ecoshell.worker" not in (place / "cmdline").read_text():
                continue  # a copy of this process, which starts a worker
            states = {fields_of(file)[0] for file in place.glob("task/*/stat")}
            if "R" in states and "_duckdb" in (place / "maps").read_text():
                workers.add(int(place.name))
        except (OSError, IndexError):  # The process has ended.
            continue
    return workers


def fields_of(stat: Path) -> list[str]:
    """Return the fields of a process or a thread from its state on."""
    return stat.read_text().rpartition(")")[2].split()


async def test_result_is_drawn_as_text(run: Run) -> None:
    bars = await ask(run, "SELECT region || month, amount FROM sales", "sales.csv", plot="bar")
    assert bars.splitlines()[1:] == [
        f"north2026-01-01  {'█' * 43} 10.5",
        f"south2026-01-01  {'▒' * 29} -7",
        f"north2026-02-01  {'█' * 50} 12.25",
    ]
    line = await ask(
        run,
        "SELECT month, sum(amount) AS total FROM sales GROUP BY 1 ORDER BY 1",
        "sales.csv",
        plot="line",
    )
    assert all(part in line for part in ("(total)", "(month)", "26-01-01", "3.5 |"))
    points = await ask(
        run,
        "SELECT number, number % 7 AS a, 9 AS b FROM many LIMIT 20",
        "many.parquet",
        plot="scatter",
    )
    assert "(a, b o)" in points
    assert "o" in points.partition("\n")[2]
    assert "\x1b" not in bars + line + points


@pytest.mark.parametrize(
    ("columns", "kind", "omitted"),
    [
        ("month, amount, amount * 2 AS more", "bar", "more"),
        ("month, amount, region", "line", "region"),
        ("month, amount, amount * 2 AS more", "line", ""),
        ("month, amount", "bar", ""),
    ],
)
async def test_columns_that_a_plot_omits_are_in_a_table_below_it(
    columns: str, kind: str, omitted: str, run: Run
) -> None:
    text = await ask(run, f"SELECT {columns} FROM sales", "sales.csv", plot=kind)
    _, _, table = text.partition(f"\n\nNot drawn: {omitted}. All columns:\n")
    assert bool(table) is bool(omitted)
    assert not omitted or table == await ask(run, f"SELECT {columns} FROM sales", "sales.csv")


async def test_drawing_is_bounded_and_counts_omitted_rows(run: Run) -> None:
    for kind, shown in {"bar": 50, "line": 2_000}.items():
        result = await run(
            "data_query",
            query="SELECT number, number AS n FROM many",
            paths=["many.parquet"],
            plot=kind,
        )
        assert (result.truncated, result.text.splitlines()[-1]) == (
            True,
            f"[truncated: {shown} of 50000 rows shown]",
        )
        assert len(result.text) <= 8_000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 AS a, 2 AS b",
        "SELECT NULL AS a, NULL::INT AS b",
        "SELECT 'x' AS a, 'inf'::DOUBLE AS b",
        "SELECT DATE '2026-01-01' AS a, 1 AS b UNION ALL SELECT NULL, NULL",
        "SELECT now() AS a, 1.5 AS b",
        "SELECT DATE '0044-03-15 (BC)' AS a, 1 AS b UNION ALL SELECT 'infinity'::DATE, 2",
        "SELECT DATE '2026-01-01' AS a, 1 AS b UNION ALL SELECT DATE '9999-12-31', 2",
        "SELECT DATE '9999-12-31' AS a, 1 AS b",
        "SELECT [DATE '2026-01-01'] AS a, 1 AS b, [1.5] AS c",
        "SELECT repeat('$\\frac', 99) AS a, 1 AS b",
    ],
)
async def test_all_numeric_results_can_be_drawn(query: str, run: Run, workspace: Workspace) -> None:
    for kind in ("bar", "line", "scatter"):
        result = await run("data_query", query=query, paths=["sales.csv"], plot=kind)
        assert result.ok, result.text


async def test_plot_without_numbers_is_refused(run: Run) -> None:
    result = await run(
        "data_query", query="SELECT region, note FROM sales", paths=["sales.csv"], plot="bar"
    )
    assert (
        result.text
        == "A plot needs rows and a numeric column after the first: 3 rows of region VARCHAR, note VARCHAR."
    )


@pytest.mark.parametrize("kind", ["bar", "line", "scatter"])
async def test_plot_is_saved_as_an_image_and_can_be_undone(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    undo = UndoLog(tmp_path / "undo")
    copies = undo.enter("session", 1)
    plot_tool = tool(Workspace(folder, undo=undo), "data_plot")
    query = "SELECT region || '$\\frac', amount, amount * 2 AS more FROM sales"
    result = await plot_tool.run(
        {"query": query, "paths": ["sales.csv"], "plot": kind, "path": "out/plot.png"}
    )
    assert result.ok, result.text
    assert (folder / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [(write.path, write.existed) for write in undo.writes("session", copies)] == [
        ("out/plot.png", False)
    ]


async def test_image_cannot_replace_other_files_or_leave_the_workspace(
    run: Run, folder: Path
) -> None:
    for path in ("sales.csv", "notes.md", "../plot.png"):
        result = await run(
            "data_plot", query="SELECT 1 AS a, 2 AS b", paths=["sales.csv"], plot="bar", path=path
        )
        assert not result.ok
    assert not (folder.parent / "plot.png").exists()
    assert (folder / "sales.csv").read_text() == SALES
    assert json.loads((folder / "people.json").read_text())
