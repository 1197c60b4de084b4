"""The tools of ecoshell_data: what they find in files, what a query may not do, and that nothing else is touched."""

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
    (root / "people.json").write_text('[{"name": "Ada", "has": {"cats": [1, 2]}}, {"name": "Bé", "has": null}]')
    (root / "lines.jsonl").write_text('{"number": 1}\n{"number": 2}\n')
    duckdb.sql("SELECT range AS number, 'row ' || range AS text FROM range(50000)").write_parquet(
        str(root / "many.parquet")
    )
    with sqlite3.connect(root / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER, total REAL, who TEXT, odd, blob BLOB)")
        shop.execute("INSERT INTO orders VALUES (1, 2.5, 'Ada', 'x', x'00ff'), (2, 4, 'Bé', 7, NULL)")
        shop.execute("CREATE TABLE sales (it TEXT)")
        shop.execute("CREATE VIEW dear AS SELECT id FROM orders WHERE total > 3")
        shop.execute("CREATE TABLE computed (n, twice AS (2 * n))")
        shop.execute("INSERT INTO computed VALUES (2)")
    shop.close()
    return root


@pytest.fixture
def run(workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a tool as in a worker process, which takes its time to begin."""
    monkeypatch.setattr(worker._workers, "inside", True)  # pyright: ignore[reportPrivateUsage]

    async def ran(name: str, **arguments: Any) -> Observation:
        return await tool(workspace, name).run(arguments)

    return ran


def tool(workspace: Workspace, name: str, **options: Any) -> FunctionTool:
    return {one.name: one for one in tools(workspace, ToolOptions(**options))}[name]


Run = Callable[..., Any]


async def ask(run: Run, query: str, *paths: str, **more: Any) -> str:
    seen = await run("data_query", query=query, paths=[*paths], **more)
    assert seen.ok, seen.text
    return seen.text


async def refused(run: Run, query: str, *paths: str) -> str:
    seen = await run("data_query", query=query, paths=[*paths])
    assert not seen.ok, seen.text
    return seen.text


def test_only_what_saves_a_file_is_asked_about_and_every_path_is_declared(workspace: Workspace) -> None:
    assert {
        name: (sorted(tool(workspace, name).effects), {*subjects_of(tool(workspace, name)).values()})
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
        ("sales.csv", ["sales.csv is CSV, with these tables:", "Table sales: 3 rows", "  amount  DOUBLE"]),
        ("sales.csv", ["region  month       amount  note", "north   2026-02-01   12.25  ␛[31mred"]),
        ("sub/more-sales.csv.gz", ["Table more_sales: 3 rows"]),
        ("people.json", ["people.json is JSON, with these tables:", "  has  STRUCT(cats BIGINT[])"]),
        ("lines.jsonl", ["Table lines: 2 rows", "  number  BIGINT"]),
        ("many.parquet", ["Table many: 50000 rows", "     2  row 2"]),
        ("shop.db", ["Table orders: 2 rows", "  total  REAL", "Table sales: 0 rows", "Table dear: 1 rows"]),
    ],
)
async def test_a_file_is_described(path: str, lines: list[str], run: Run) -> None:
    seen = await run("data_describe", path=path)
    assert seen.ok
    assert {*lines} <= {*seen.text.splitlines()}, seen.text


@pytest.mark.parametrize(
    ("query", "paths", "found"),
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
async def test_a_question_is_answered(query: str, paths: list[str], found: str, run: Run) -> None:
    rows = (await ask(run, query, *paths)).splitlines()[1:]
    assert " ".join(" ".join(rows).split()) == found


async def test_the_order_of_a_query_is_kept_and_what_is_left_out_is_counted(workspace: Workspace, run: Run) -> None:
    query = {"query": "SELECT * FROM many ORDER BY number DESC", "paths": ["many.parquet"]}
    seen = await tool(workspace, "data_query", result=ResultSize(1_000)).run(query)
    lines = seen.text.splitlines()
    assert lines[:2] == ["number  text", " 49999  row 49999"]
    assert lines[-1] == f"[truncated: {len(lines) - 2} of 50000 rows shown]"
    assert (seen.truncated, len(seen.text) <= 1_000, len(lines) > 20) == (True, True, True)


async def test_a_wide_row_and_an_empty_result_are_told(workspace: Workspace, run: Run) -> None:
    columns = ", ".join(f"repeat('x', 9000) AS c{number}" for number in range(40))
    seen = await tool(workspace, "data_query", result=ResultSize(1_000)).run(
        {"query": f"SELECT {columns} FROM lines", "paths": ["lines.jsonl"]}
    )
    assert (seen.ok, seen.truncated, len(seen.text) <= 1_000) == (True, True, True)
    assert await ask(run, "SELECT name FROM people WHERE false", "people.json") == "No rows. Columns: name."


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT amont FROM sales", '"amont" not found'),
        ("SELECT * FROM sale", "Table with name sale does not exist"),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT sum(note) FROM sales", "No function matches"),
    ],
)
async def test_wrong_sql_is_told_with_the_tables_and_columns_there_are(query: str, words: str, run: Run) -> None:
    said = await refused(run, query, "sales.csv", "shop.db")
    assert words in said
    assert "There is: sales (region VARCHAR, month DATE, amount DOUBLE, note VARCHAR); orders (id INTEGER" in said
    assert "shop.sales (it TEXT)" in said


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
        ("SELECT (SELECT content FROM read_blob('/etc/passwd')) FROM sales", f"read_blob {NO_FUNCTION}"),
        ("SELECT * FROM glob('/*')", f"glob {NO_FUNCTION}"),
        ("SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')", f"query {NO_FUNCTION}"),
        ("SELECT * FROM json_execute_serialized_sql('{{}}')", f"json_execute_serialized_sql {NO_FUNCTION}"),
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
async def test_a_query_reads_what_is_named_and_does_nothing_else(
    query: str, words: str, run: Run, folder: Path, outside: Path
) -> None:
    (outside / "secret.csv").write_text("a\n1\n")
    before = kept(folder.parent)
    said = await refused(run, query.format(outside=outside, root=folder), "sales.csv", "lines.jsonl")
    assert words in said
    assert "do not read me" not in said
    assert kept(folder.parent) == before


def kept(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


async def test_the_database_is_locked_even_for_a_query_that_would_pass(
    run: Run, folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the look at the query, and in this process, DuckDB itself refuses."""
    from ecoshell_data import database

    monkeypatch.setattr(database, "_FUNCTIONS", {"read_text", "glob", "read_csv"})
    for call in (f"read_text('{outside}/secret.txt')", "glob('/*')", "read_csv('https://example.org/a.csv')"):
        with pytest.raises(Exception, match="and no other file or address"):
            database.asked(Workspace(folder), f"SELECT * FROM {call}", ["sales.csv"])
    assert database.asked(Workspace(folder), "SELECT * FROM sales", ["sales.csv"]).total == 3


async def test_paths_outside_links_and_what_is_no_data_are_refused(run: Run, folder: Path, outside: Path) -> None:
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


async def test_a_database_that_is_being_written_is_not_read_by_half(run: Run, folder: Path) -> None:
    writer = sqlite3.connect(folder / "live.db")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t (a)")
    writer.commit()
    assert "still in live.db-wal" in await refused(run, "SELECT * FROM t", "live.db")
    writer.close()
    assert await ask(run, "SELECT count(*) AS n FROM t", "live.db") == "n\n0"


async def test_a_file_that_ends_in_other_rows_than_it_begins_with_is_told_in_a_sentence(run: Run, folder: Path) -> None:
    (folder / "long.csv").write_text("a,b\n" + "1,2\n" * 30_000 + "x,y,z\n")
    told = await run("data_describe", path="long.csv")
    assert not told.ok
    assert told.text.startswith("Invalid Input Error: CSV Error on Line: 30002 Original Line: x,y,z Expected Number")
    assert told.text.endswith("There is: long (a BIGINT, b BIGINT).")


async def test_a_table_that_cannot_be_read_keeps_nobody_from_the_others(run: Run, folder: Path) -> None:
    with sqlite3.connect(folder / "odd.db") as odd:
        odd.execute("CREATE TABLE good (n)")
        odd.execute("INSERT INTO good VALUES (7)")
        odd.execute("CREATE VIEW lost AS SELECT * FROM gone")
        odd.execute("CREATE VIEW wrong AS SELECT json_extract('{', '$') AS x FROM good")
        odd.execute("PRAGMA writable_schema = ON")
        sql = "CREATE VIRTUAL TABLE map USING far"
        odd.execute("INSERT INTO sqlite_schema VALUES ('table', 'map', 'map', 0, ?)", [sql])
    odd.close()
    told = (await run("data_describe", path="odd.db")).text
    assert "Table good: 1 rows" in told
    assert "lost cannot be read: no such table: main.gone." in told
    assert "map cannot be read: no such module: far." in told
    assert "Table wrong cannot be read: " in told  # only where its rows are looked at
    assert (await run("data_query", query="SELECT n FROM good", paths=["odd.db"])).text == "n\n7"
    lost = await run("data_query", query="SELECT * FROM lost", paths=["odd.db"])
    assert (lost.ok, lost.text) == (False, "odd.db cannot be read as SQLite: no such table: main.gone.")


async def test_names_that_are_hard_to_write_are_told_and_found(run: Run, folder: Path) -> None:
    for name in ("order.csv", "2026 costs (new).csv", "main.csv", "it's;DROP.csv", 'a"b.csv'):
        (folder / name).write_text("a\n1\n")
        told = (await run("data_describe", path=name)).text
        table = told.partition("Table ")[2].partition(": 1 rows")[0]
        assert await ask(run, f"SELECT a FROM {table}", name) == "a\n1"
    both = ["sales.csv", "sub/sales.csv"]
    (folder / "sub" / "sales.csv").write_text("a\n1\n")
    assert await ask(run, "SELECT a, count(*) AS n FROM sales, sales_2 GROUP BY a", *both) == "a  n\n1  3"


async def test_too_much_memory_is_an_error_and_the_next_question_is_answered(
    workspace: Workspace, folder: Path
) -> None:
    asking = tool(workspace, "data_query")
    for query in ("SELECT repeat('x', 2000000000)", "SELECT list(a.text || b.text) FROM many a, many b"):
        seen = await asking.run({"query": query, "paths": ["many.parquet"]})
        assert (seen.ok, "it took more than 512 MB of memory" in seen.text) == (False, True), seen.text
    counted = await asking.run({"query": "SELECT count(*) AS n FROM many", "paths": ["many.parquet"], "plot": "no"})
    assert counted.text == "    n\n50000"
    drawn = await asking.run({"query": "SELECT 'a', 1", "paths": ["many.parquet"], "plot": "bar"})
    assert drawn.text.splitlines()[1] == f"a  {'█' * 50} 1"


async def test_a_query_ends_with_its_time_and_when_it_is_stopped(workspace: Workspace, folder: Path) -> None:
    endless = {
        "query": "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 7",
        "paths": ["sales.csv"],
    }
    hasty = tool(workspace, "data_query", command_seconds=3.0)
    seen = await contained(hasty, endless, hasty.limits)
    assert (seen.ok, "took longer than 3 s" in seen.text) == (False, True)
    patient = tool(workspace, "data_query", command_seconds=600.0)
    before = working()
    call = asyncio.create_task(contained(patient, endless, patient.limits))
    while not (busy := await asyncio.to_thread(working) - before):
        pass
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while busy & await asyncio.to_thread(working):
        pass


def working() -> set[int]:
    """The worker processes of this one that have loaded DuckDB and compute."""
    found: set[int] = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status = (place / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) == os.getpid() and status[0] == "R" and "_duckdb" in (place / "maps").read_text():
                found.add(int(place.name))
        except (OSError, IndexError):  # it has ended
            continue
    return found


async def test_a_result_is_drawn_in_characters(run: Run) -> None:
    bars = await ask(run, "SELECT region || month, amount FROM sales", "sales.csv", plot="bar")
    assert bars.splitlines()[1:] == [
        f"north2026-01-01  {'█' * 43} 10.5",
        f"south2026-01-01  {'▒' * 29} -7",
        f"north2026-02-01  {'█' * 50} 12.25",
    ]
    line = await ask(
        run, "SELECT month, sum(amount) AS total FROM sales GROUP BY 1 ORDER BY 1", "sales.csv", plot="line"
    )
    assert all(part in line for part in ("(total)", "(month)", "26-01-01", "3.5 |"))
    points = await ask(run, "SELECT number, number % 7 AS a, 9 AS b FROM many LIMIT 20", "many.parquet", plot="scatter")
    assert "(a, b o)" in points
    assert "o" in points.partition("\n")[2]
    assert "\x1b" not in bars + line + points


async def test_what_is_drawn_is_bounded_and_says_what_is_left_out(run: Run) -> None:
    for kind, shown in {"bar": 50, "line": 2_000}.items():
        seen = await run("data_query", query="SELECT number, number AS n FROM many", paths=["many.parquet"], plot=kind)
        assert (seen.truncated, seen.text.splitlines()[-1]) == (True, f"[truncated: {shown} of 50000 rows shown]")
        assert len(seen.text) <= 8_000


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
async def test_whatever_has_numbers_can_be_drawn(query: str, run: Run, workspace: Workspace) -> None:
    for kind in ("bar", "line", "scatter"):
        seen = await run("data_query", query=query, paths=["sales.csv"], plot=kind)
        assert seen.ok, seen.text


async def test_what_has_no_numbers_is_told(run: Run) -> None:
    seen = await run("data_query", query="SELECT region, note FROM sales", paths=["sales.csv"], plot="bar")
    assert (
        seen.text
        == "A plot needs rows, and a column of numbers after the first: 3 rows of region VARCHAR, note VARCHAR."
    )


@pytest.mark.parametrize("kind", ["bar", "line", "scatter"])
async def test_a_plot_is_saved_as_an_image_and_undo_knows_what_was_there(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    undo = UndoLog(tmp_path / "undo")
    copies = undo.enter("session", 1)
    saving = tool(Workspace(folder, undo=undo), "data_plot")
    query = "SELECT region || '$\\frac', amount, amount * 2 AS more FROM sales"
    seen = await saving.run({"query": query, "paths": ["sales.csv"], "plot": kind, "path": "out/plot.png"})
    assert seen.ok, seen.text
    assert (folder / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [(one.path, one.existed) for one in undo.writes("session", copies)] == [("out/plot.png", False)]


async def test_an_image_takes_no_other_files_place_and_stays_inside(run: Run, folder: Path) -> None:
    for path in ("sales.csv", "notes.md", "../plot.png"):
        seen = await run("data_plot", query="SELECT 1 AS a, 2 AS b", paths=["sales.csv"], plot="bar", path=path)
        assert not seen.ok
    assert not (folder.parent / "plot.png").exists()
    assert (folder / "sales.csv").read_text() == SALES
    assert json.loads((folder / "people.json").read_text())
