"""Files of the workspace as tables of an in-memory DuckDB; runs in a worker process.

A query is checked before it runs: it must be a single read-only SELECT over the tables of the named files. DuckDB is
then locked: it cannot open other files, load extensions or use the network.
"""

import json
import re
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Observation, visible_line
from ecoshell.tools.running import clip, truncation_mark
from ecoshell.tools.workspace import Workspace

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "async_threads": 1,
    "memory_limit": "200MB",  # DuckDB itself takes half of the process's memory.
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}
_READ_ONLY_NODES = frozenset(
    {"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"}
)
"""Types of statements without effects; a SELECT may contain others, even one that writes a file."""
_TABLE_FUNCTIONS = frozenset(
    {"unnest", "range", "generate_series", "repeat", "json_each", "json_tree"}
)
"""Allowed table functions; some others run an unchecked query or read memory."""
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_JSON = frozenset({".json", ".jsonl", ".ndjson", ".geojson"})
_CSV = frozenset({".csv", ".tsv", ".tab", ".psv", ".txt"})
_HIDDEN_COLUMN = 1
"""SQLite's mark of internal columns of virtual tables; generated columns have 2 and 3."""
_HEAD_BYTES = 4096
_ROWS_PER_INSERT = 10_000
_MAX_ROWS = 2_000
"""Rows of a result; further ones are only counted."""
_SAMPLE_ROWS = 3
_CELL_CHARACTERS = 80
_TYPE_CHARACTERS = 120
_OUTLINE_CHARACTERS = 1_500


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query as strings, None for NULL; `rows` are the first of `total`."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[str | None, ...]]
    total: int

    def as_table(self, characters: int) -> Observation:
        """Return a table of at most `characters`, with a mark if it is truncated."""
        if not self.total:
            return Observation(f"No rows. Columns: {', '.join(map(visible_line, self.columns))}.")
        lines = _table(self, characters)
        text, cut = clip("\n".join(lines), characters)
        rows = len(lines) - 1
        return Observation(text + self.truncation(rows), truncated=cut or self.total > rows)

    def truncation(self, rows: int) -> str:
        """Return the mark for `rows` displayed rows; empty if these are all."""
        return f"\n{truncation_mark(rows, self.total, 'rows')}" if self.total > rows else ""


def describe(workspace: Workspace, path: str, characters: int) -> Observation:
    """Describe the tables of a file; raises ToolError."""
    with _opened(workspace, [path]) as base:
        base.lock()
        parts = [
            f"{path} is {base.kind}, with these tables:"
            if base.tables
            else f"{path} is {base.kind} without tables."
        ]
        for table in base.tables:
            try:
                count = base.rows_of(table)
                base.load(table, _SAMPLE_ROWS)
            except sqlite3.OperationalError as error:
                parts.append(f"Table {table.name} cannot be read: {error}.")
                continue
            columns = "\n".join(
                f"  {visible_line(name)}  {kind[:_TYPE_CHARACTERS]}" for name, kind in table.columns
            )
            head = f"Table {table.name}: {count} rows\n{columns}"
            first = (
                base.result(f"SELECT * FROM {table.reference} LIMIT {_SAMPLE_ROWS}")
                if count
                else None
            )
            parts.append(f"{head}\n{first.as_table(characters).text}" if first else head)
        text, cut = clip("\n\n".join(parts), characters)
        return Observation(text, truncated=cut)


def run_query(workspace: Workspace, query: str, paths: Sequence[str]) -> QueryResult:
    """Run a query over files; raises ToolError, for invalid SQL with the available tables and columns."""
    if not paths:
        raise ToolError("Name the files to ask in `paths`.")
    with _opened(workspace, paths) as base:
        names = base.check(query)
        for table in base.tables:
            if table.plain.casefold() in names:
                base.load(table)
        base.lock()
        return base.result(_without_semicolon(query))


@dataclass(slots=True)
class _Table:
    """A table: its plain name, its name in a query, and an unambiguous reference.

    `source` is the SQLite database from which it is loaded on use.
    """

    plain: str
    name: str
    reference: str
    columns: list[tuple[str, str]]
    source: sqlite3.Connection | None = None


class _Base:
    """An in-memory database and its tables; `kind` is the format of the file added last."""

    def __init__(self, connection: "DuckDBPyConnection") -> None:
        self._db = connection
        self._used_names = {"main", "temp", "system", "memory", "pg_catalog", "information_schema"}
        self._places: list[str] = []
        self.tables: list[_Table] = []
        self.kind = ""

    def add(self, file: BinaryIO, name: str, head: bytes) -> None:
        """Add the table of a file; raises ToolError for an unsupported format."""
        place = f"/dev/fd/{file.fileno()}"
        if head.startswith(b"PAR1"):
            self._add_view(name, f"read_parquet({_text(place)})", "Parquet", place)
            return
        compression = next(
            (kind for magic, kind in _COMPRESSIONS.items() if head.startswith(magic)), "none"
        )
        suffixes = {suffix.lower() for suffix in PurePosixPath(name).suffixes}
        if compression == "none" and b"\0" in head:
            raise ToolError(f"{name} is neither CSV, JSON, Parquet nor SQLite.")
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        kind = (
            "JSON" if suffixes & _JSON or (not suffixes & _CSV and start in (b"{", b"[")) else "CSV"
        )
        self._add_view(
            name,
            f"read_{kind.lower()}({_text(place)}, compression={_text(compression)})",
            kind,
            place,
        )

    def add_sqlite(self, source: sqlite3.Connection, name: str) -> None:
        """Add the tables of an SQLite database; each is loaded on use."""
        self.kind = "SQLite"
        schema = self._unused_name(PurePosixPath(name).stem)
        self._db.execute(f"CREATE SCHEMA {_quoted(schema)}")
        tables_query = (
            "SELECT name FROM sqlite_schema"
            " WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        )
        for (table,) in source.execute(tables_query).fetchall():
            reference = f"{_quoted(schema)}.{_quoted(table)}"
            name = table if self._needs_no_quotes(table) else _quoted(table)
            name = f"{schema}.{name}" if self._is_used(table) else name
            columns: list[tuple[str, str]] = []
            with suppress(
                sqlite3.OperationalError
            ):  # For example a broken view; loading it reports the error.
                rows = source.execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
                columns = [
                    (column, kind or "?")
                    for _, column, kind, *_, hidden in rows
                    if hidden != _HIDDEN_COLUMN
                ]
            self.tables.append(_Table(table, name, reference, columns, source))
        for table in self.tables:
            self._used_names.add(table.plain.casefold())

    def load(self, table: _Table, row_limit: int = -1) -> None:
        """Copy a table of an SQLite database, or its first rows; other tables need no loading."""
        if table.source is None:
            return
        table.source.execute(
            f"SELECT * FROM {_quoted(table.plain)} LIMIT 0"
        )  # Raises the reason if it is unreadable.
        names = [_quoted(name) for name, _ in table.columns]
        selection = f"(SELECT {', '.join(names)} FROM {_quoted(table.plain)} LIMIT {row_limit})"
        types = ", ".join(f"group_concat(DISTINCT typeof({name}))" for name in names)
        kinds = [
            _type_of(kinds)
            for kinds in table.source.execute(f"SELECT {types} FROM {selection}").fetchone()
        ]
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        self._db.execute(f"CREATE TABLE {table.reference} ({columns})")
        lists = ", ".join(
            f"unnest(${number}::{kind}[])" for number, kind in enumerate(kinds, start=1)
        )
        rows = table.source.execute(f"SELECT * FROM {selection}")
        while chunk := rows.fetchmany(_ROWS_PER_INSERT):
            columns = zip(zip(*chunk, strict=True), kinds, strict=True)
            values = [[_value(cell, kind) for cell in column] for column, kind in columns]
            self._db.execute(f"INSERT INTO {table.reference} SELECT {lists}", values)

    def rows_of(self, table: _Table) -> int:
        """Return the number of rows of a table."""
        if table.source is not None:
            return table.source.execute(f"SELECT count(*) FROM {_quoted(table.plain)}").fetchone()[
                0
            ]
        return self._count(f"SELECT * FROM {table.reference}")

    def check(self, query: str) -> set[str]:
        """Return the case-folded names of tables in a query; raises ToolError unless it is one SELECT."""
        tree = json.loads(
            cast(
                "tuple[str]", self._db.execute("SELECT json_serialize_sql($1)", [query]).fetchone()
            )[0]
        )
        if tree["error"] and "SELECT" not in str(tree["error_message"]):
            raise ToolError(f"{visible_line(str(tree['error_message']))}. {self.outline()}")
        if tree["error"] or len(tree["statements"]) != 1:
            raise ToolError("`query` must be one SELECT: files are read, never changed.")
        names: set[str] = set()
        for node in _nodes(tree):
            kind = str(node.get("type"))
            if kind.endswith("_NODE") and kind not in _READ_ONLY_NODES:
                raise ToolError("`query` must be one SELECT: files are read, never changed.")
            if (
                kind == "TABLE_FUNCTION"
                and (function := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS
            ):
                raise ToolError(
                    f"{function} cannot be used here: a file in `paths` is a table. {self.outline()}"
                )
            if kind == "BASE_TABLE":
                names.add(str(node["table_name"]).casefold())
        return names

    def lock(self) -> None:
        """Prevent access to other files and changes of settings."""
        self._db.execute(f"SET allowed_paths = [{', '.join(map(_text, self._places))}]")
        self._db.execute(f"SET search_path = {_text(','.join(['main', *self._schemas()]))}")
        self._db.execute("SET enable_external_access = false")
        self._db.execute("SET lock_configuration = true")

    def result(self, query: str) -> QueryResult:
        """Run a query; raises duckdb.Error."""
        columns = self._db.execute(f"DESCRIBE SELECT * FROM (\n{query}\n)").fetchall()
        selected = self._db.execute(
            f"SELECT COLUMNS(*)::VARCHAR FROM (\n{query}\n)"
        )  # Keeps the order.
        rows = cast("list[tuple[str | None, ...]]", selected.fetchmany(_MAX_ROWS))
        total = len(rows) if len(rows) < _MAX_ROWS else self._count(query)
        names = tuple(name for name, *_ in columns)
        return QueryResult(names, tuple(kind for _, kind, *_ in columns), rows, total)

    def outline(self) -> str:
        """Return a sentence with the available tables and columns."""
        tables: list[str] = []
        for table in self.tables:
            columns = [
                f"{visible_line(name)} {kind[:_TYPE_CHARACTERS]}" for name, kind in table.columns
            ]
            tables.append(f"{table.name} ({', '.join(columns)})")
        return f"Available: {clip('; '.join(tables), _OUTLINE_CHARACTERS)[0]}."

    def _count(self, query: str) -> int:
        row = self._db.execute(f"SELECT count(*) FROM (\n{query}\n)").fetchone()
        return cast("tuple[int]", row)[0]

    def _add_view(self, name: str, call: str, kind: str, place: str) -> None:
        import duckdb

        self.kind = kind
        plain = self._unused_name(PurePosixPath(name).stem.partition(".")[0])
        try:
            self._db.execute(f"CREATE VIEW {_quoted(plain)} AS SELECT * FROM {call}")
            columns = [
                (column, kind)
                for column, kind, *_ in self._db.execute(f"DESCRIBE {_quoted(plain)}").fetchall()
            ]
        except duckdb.Error as error:
            raise ToolError(
                f"{name} cannot be read as {kind}: {_message(error).replace(place, name)}"
            ) from error
        for other in dict.fromkeys(
            (name, PurePosixPath(name).name)
        ):  # Allow FROM 'sales.csv', too.
            with suppress(duckdb.CatalogException):
                self._db.execute(f"CREATE VIEW {_quoted(other)} AS SELECT * FROM {_quoted(plain)}")
        name = plain if self._needs_no_quotes(plain) else _quoted(plain)
        self.tables.append(_Table(plain, name, _quoted(plain), columns))
        self._places.append(place)

    def _unused_name(self, stem: str) -> str:
        """Return an unused table name that needs no quotes."""
        plain = re.sub(r"\W+", "_", stem).strip("_") or "data"
        name, number = plain, 2
        while self._is_used(name):
            name, number = f"{plain}_{number}", number + 1
        self._used_names.add(name.casefold())
        return name

    def _is_used(self, name: str) -> bool:
        return name.casefold() in self._used_names

    def _needs_no_quotes(self, name: str) -> bool:
        reserved = "SELECT count(*) FROM duckdb_keywords() WHERE keyword_category = 'reserved' AND keyword_name = $1"
        row = cast("tuple[int]", self._db.execute(reserved, [name.lower()]).fetchone())
        return not row[0] and re.fullmatch(r"[A-Za-z_]\w*", name) is not None

    def _schemas(self) -> list[str]:
        return [
            *dict.fromkeys(
                table.reference.partition(".")[0] for table in self.tables if "." in table.reference
            )
        ]


@contextmanager
def _opened(workspace: Workspace, paths: Sequence[str]) -> Generator[_Base]:
    """Open the files as a database; errors of DuckDB in the block become ToolError or MemoryError."""
    import duckdb  # heavy

    with ExitStack() as stack, closing(duckdb.connect(":memory:", config=_CONFIG)) as connection:
        base = _Base(connection)
        for path in dict.fromkeys(paths):
            file, name = stack.enter_context(workspace.reading(path))
            head = file.read(_HEAD_BYTES)
            if head.startswith(b"SQLite format 3\0"):
                base.add_sqlite(stack.enter_context(_sqlite(file, name, workspace)), name)
            else:
                base.add(file, name, head)
        try:
            yield base
        except duckdb.OutOfMemoryException as error:
            raise MemoryError from error
        except duckdb.PermissionException as error:
            why = "The query may use the tables of the files in `paths`, and no other file or address."
            raise ToolError(f"{why} {base.outline()}") from error
        except duckdb.Error as error:
            raise ToolError(f"{_message(error)} {base.outline()}") from error


@contextmanager
def _sqlite(file: BinaryIO, name: str, workspace: Workspace) -> Generator[sqlite3.Connection]:
    """Open an SQLite database read-only; raises ToolError if a journal contains further changes."""
    for suffix in ("-wal", "-journal"):
        real = workspace.resolve(f"{name}{suffix}")
        if real.is_file() and real.stat().st_size:
            raise ToolError(
                f"{name} has changes that are still in {name}{suffix}: end the program that writes it first."
            )
    try:
        with closing(
            sqlite3.connect(f"file:/dev/fd/{file.fileno()}?mode=ro&immutable=1", uri=True)
        ) as source:
            source.text_factory = _decoded
            source.execute("PRAGMA trusted_schema = OFF")
            yield source
    except sqlite3.Error as error:
        raise ToolError(f"{name} cannot be read as SQLite: {error}.") from error


def _without_semicolon(query: str) -> str:
    """Return a query up to the semicolon that ends it."""
    import duckdb

    raw = query.encode()
    end = next((at for at, _ in duckdb.tokenize(query) if raw[at : at + 1] == b";"), None)
    return raw[:end].decode()


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


def _type_of(kinds: str | None) -> str:
    """Return DuckDB's type for a column with these types of values in SQLite, separated by commas."""
    types = {*(kinds or "").split(",")} - {"null", ""}
    if types == {"integer"}:
        return "BIGINT"
    return "DOUBLE" if types and types <= {"integer", "real"} else "VARCHAR"


def _value(cell: object, kind: str) -> object:
    """Convert a value of SQLite to a column type."""
    if cell is None or kind != "VARCHAR":
        return cell
    return cell.hex() if isinstance(cell, bytes) else str(cell)


def _table(result: QueryResult, characters: int) -> list[str]:
    """Return the header and as many rows as fit, at least one; numbers are right-aligned."""
    cells: list[list[str]] = []
    widths = [0] * len(result.columns)
    for row in (result.columns, *result.rows):
        cells.append([_cell(value) for value in row])
        wider = [max(width, len(cell)) for width, cell in zip(widths, cells[-1], strict=True)]
        if len(cells) > 2 and (sum(wider) + 2 * len(wider)) * len(cells) > characters:
            cells.pop()
            break
        widths = wider
    numbers = [is_number(kind) for kind in result.types]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]


def is_number(kind: str) -> bool:
    """Whether a DuckDB type is numeric."""
    return not kind.endswith("]") and kind.partition("(")[0].removeprefix("U") in _NUMERIC_TYPES


_NUMERIC_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL"}
)


def _cell(value: str | None) -> str:
    return (
        "NULL" if value is None else visible_line(value[: _CELL_CHARACTERS * 2], _CELL_CHARACTERS)
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a tree of objects and lists."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield cast("dict[str, Any]", node)
            pending += cast("dict[str, Any]", node).values()
        elif isinstance(node, list):
            pending += cast("list[Any]", node)


def _message(error: Exception) -> str:
    """Return DuckDB's error message without the position."""
    text = visible_line(re.split(r"\n\s*\n|\nLINE ", str(error))[0])
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
