"""Files of the workspace as tables of a DuckDB in memory; works in a worker process.

A query is looked at before it runs: it must be one SELECT that changes nothing, over the tables of the files that were
named. DuckDB itself is then locked: it opens these files and no others, loads nothing, and reaches no network.
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
    "memory_limit": "200MB",  # within that of the process, of which DuckDB holds half before it has any data
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"})
"""Kinds of statements that change nothing; others may stand within a SELECT, even one that writes a file."""
_FUNCTIONS = frozenset({"unnest", "range", "generate_series", "repeat", "json_each", "json_tree"})
"""What may stand in the place of a table; of others, some run a query that nobody has looked at, or read memory."""
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_JSON = frozenset({".json", ".jsonl", ".ndjson", ".geojson"})
_CSV = frozenset({".csv", ".tsv", ".tab", ".psv", ".txt"})
_HIDDEN = 1
"""What SQLite calls a column of a virtual table that is only for its own use; columns that are computed are 2 and 3."""
_HEAD = 4096
_CHUNK = 10_000
_ROWS = 2_000
"""Rows that are taken of a result; the others are counted."""
_SAMPLE = 3
_CELL = 80
_TYPE = 120
"""Characters of a cell, and of a column's type."""
_TOLD = 1_500
"""Characters of the tables there are, where a query was wrong."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a query as texts, None for NULL; `rows` are the first of `total`."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[str | None, ...]]
    total: int

    def told(self, characters: int) -> Observation:
        """It as a table of at most so many characters, with how much is left out."""
        if not self.total:
            return Observation(f"No rows. Columns: {', '.join(map(visible_line, self.columns))}.")
        lines = _table(self, characters)
        text, cut = clip("\n".join(lines), characters)
        shown = len(lines) - 1
        return Observation(text + self.left_out(shown), truncated=cut or self.total > shown)

    def left_out(self, rows: int) -> str:
        """The mark for the rows that are not among so many; empty where all are."""
        return f"\n{truncation_mark(rows, self.total, 'rows')}" if self.total > rows else ""


def described(workspace: Workspace, path: str, characters: int) -> Observation:
    """What is in a file; raises ToolError."""
    with _opened(workspace, [path]) as base:
        base.lock()
        parts = [
            f"{path} is {base.kind}, with these tables:" if base.tables else f"{path} is {base.kind} without tables."
        ]
        for table in base.tables:
            try:
                count = base.rows_of(table)
                base.load(table, _SAMPLE)
            except sqlite3.OperationalError as error:
                parts.append(f"Table {table.name} cannot be read: {error}.")
                continue
            columns = "\n".join(f"  {visible_line(name)}  {kind[:_TYPE]}" for name, kind in table.columns)
            head = f"Table {table.name}: {count} rows\n{columns}"
            first = base.result(f"SELECT * FROM {table.reference} LIMIT {_SAMPLE}") if count else None
            parts.append(f"{head}\n{first.told(characters).text}" if first else head)
        text, cut = clip("\n\n".join(parts), characters)
        return Observation(text, truncated=cut)


def asked(workspace: Workspace, query: str, paths: Sequence[str]) -> Found:
    """What a query finds in files; raises ToolError, for wrong SQL with the tables and columns there are."""
    if not paths:
        raise ToolError("Name the files to ask in `paths`.")
    with _opened(workspace, paths) as base:
        named = base.checked(query)
        for table in base.tables:
            if table.plain.casefold() in named:
                base.load(table)
        base.lock()
        return base.result(_without_end(query))


@dataclass(slots=True)
class _Table:
    plain: str
    """Its own name."""
    name: str
    """As it is written in a query."""
    reference: str
    """As it is surely found."""
    columns: list[tuple[str, str]]
    source: sqlite3.Connection | None = None
    """The SQLite database that it is loaded from when it is used."""


class _Base:
    """A database in memory, and the tables in it."""

    def __init__(self, connection: "DuckDBPyConnection") -> None:
        self._db = connection
        self._taken = {"main", "temp", "system", "memory", "pg_catalog", "information_schema"}
        self._places: list[str] = []
        self.tables: list[_Table] = []
        self.kind = ""
        """Of the file that was added last."""

    def add(self, file: BinaryIO, name: str, head: bytes) -> None:
        """Make the table of a file known; raises ToolError for what is no data."""
        place = f"/dev/fd/{file.fileno()}"
        if head.startswith(b"PAR1"):
            self._add_view(name, f"read_parquet({_text(place)})", "Parquet", place)
            return
        packed = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), "none")
        suffixes = {suffix.lower() for suffix in PurePosixPath(name).suffixes}
        if packed == "none" and b"\0" in head:
            raise ToolError(f"{name} is neither CSV, JSON, Parquet nor SQLite.")
        begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        kind = "JSON" if suffixes & _JSON or (not suffixes & _CSV and begins in (b"{", b"[")) else "CSV"
        self._add_view(name, f"read_{kind.lower()}({_text(place)}, compression={_text(packed)})", kind, place)

    def add_sqlite(self, source: sqlite3.Connection, name: str) -> None:
        """Make the tables of an SQLite database known; each is loaded once it is used."""
        self.kind = "SQLite"
        schema = self._named(PurePosixPath(name).stem)
        self._db.execute(f"CREATE SCHEMA {_quoted(schema)}")
        listed = (
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        )
        for (table,) in source.execute(listed).fetchall():
            reference = f"{_quoted(schema)}.{_quoted(table)}"
            written = table if self._is_word(table) else _quoted(table)
            shown = f"{schema}.{written}" if self._is_taken(table) else written
            columns: list[tuple[str, str]] = []
            with suppress(sqlite3.OperationalError):  # as of a view of what is gone: told where it is loaded
                found = source.execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
                columns = [(column, kind or "?") for _, column, kind, *_, hidden in found if hidden != _HIDDEN]
            self.tables.append(_Table(table, shown, reference, columns, source))
        for table in self.tables:
            self._taken.add(table.plain.casefold())

    def load(self, table: _Table, most: int = -1) -> None:
        """Copy a table of an SQLite database, or its first rows; nothing is to be done for any other."""
        if table.source is None:
            return
        table.source.execute(f"SELECT * FROM {_quoted(table.plain)} LIMIT 0")  # says why it cannot be read
        names = [_quoted(name) for name, _ in table.columns]
        taken = f"(SELECT {', '.join(names)} FROM {_quoted(table.plain)} LIMIT {most})"
        found = ", ".join(f"group_concat(DISTINCT typeof({name}))" for name in names)
        kinds = [_type_of(kinds) for kinds in table.source.execute(f"SELECT {found} FROM {taken}").fetchone()]
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        self._db.execute(f"CREATE TABLE {table.reference} ({columns})")
        lists = ", ".join(f"unnest(${number}::{kind}[])" for number, kind in enumerate(kinds, start=1))
        rows = table.source.execute(f"SELECT * FROM {taken}")
        while chunk := rows.fetchmany(_CHUNK):
            columns = zip(zip(*chunk, strict=True), kinds, strict=True)
            values = [[_value(cell, kind) for cell in column] for column, kind in columns]
            self._db.execute(f"INSERT INTO {table.reference} SELECT {lists}", values)

    def rows_of(self, table: _Table) -> int:
        """How many rows a table has."""
        if table.source is not None:
            return table.source.execute(f"SELECT count(*) FROM {_quoted(table.plain)}").fetchone()[0]
        return self._count(f"SELECT * FROM {table.reference}")

    def checked(self, query: str) -> set[str]:
        """The names of tables in a query, folded; raises ToolError where it is more than one SELECT."""
        tree = json.loads(cast("tuple[str]", self._db.execute("SELECT json_serialize_sql($1)", [query]).fetchone())[0])
        if tree["error"] and "SELECT" not in str(tree["error_message"]):
            raise ToolError(f"{visible_line(str(tree['error_message']))}. {self.outline()}")
        if tree["error"] or len(tree["statements"]) != 1:
            raise ToolError("`query` must be one SELECT: files are read, never changed.")
        named: set[str] = set()
        for node in _nodes(tree):
            kind = str(node.get("type"))
            if kind.endswith("_NODE") and kind not in _NODES:
                raise ToolError("`query` must be one SELECT: files are read, never changed.")
            if kind == "TABLE_FUNCTION" and (function := node["function"]["function_name"].lower()) not in _FUNCTIONS:
                raise ToolError(f"{function} cannot be used here: a file in `paths` is a table. {self.outline()}")
            if kind == "BASE_TABLE":
                named.add(str(node["table_name"]).casefold())
        return named

    def lock(self) -> None:
        """From now on only the files that were added are read, and no setting changes."""
        self._db.execute(f"SET allowed_paths = [{', '.join(map(_text, self._places))}]")
        self._db.execute(f"SET search_path = {_text(','.join(['main', *self._schemas()]))}")
        self._db.execute("SET enable_external_access = false")
        self._db.execute("SET lock_configuration = true")

    def result(self, query: str) -> Found:
        """What a query finds; raises duckdb.Error."""
        described = self._db.execute(f"DESCRIBE SELECT * FROM (\n{query}\n)").fetchall()
        found = self._db.execute(f"SELECT COLUMNS(*)::VARCHAR FROM (\n{query}\n)")  # whose order DuckDB keeps
        rows = cast("list[tuple[str | None, ...]]", found.fetchmany(_ROWS))
        total = len(rows) if len(rows) < _ROWS else self._count(query)
        return Found(tuple(name for name, *_ in described), tuple(kind for _, kind, *_ in described), rows, total)

    def outline(self) -> str:
        """The tables there are with their columns, in a sentence."""
        told = "; ".join(
            f"{table.name} ({', '.join(f'{visible_line(name)} {kind[:_TYPE]}' for name, kind in table.columns)})"
            for table in self.tables
        )
        return f"There is: {clip(told, _TOLD)[0]}."

    def _count(self, query: str) -> int:
        found = self._db.execute(f"SELECT count(*) FROM (\n{query}\n)").fetchone()
        return cast("tuple[int]", found)[0]

    def _add_view(self, name: str, call: str, kind: str, place: str) -> None:
        import duckdb

        self.kind = kind
        plain = self._named(PurePosixPath(name).stem.partition(".")[0])
        try:
            self._db.execute(f"CREATE VIEW {_quoted(plain)} AS SELECT * FROM {call}")
            columns = [(column, kind) for column, kind, *_ in self._db.execute(f"DESCRIBE {_quoted(plain)}").fetchall()]
        except duckdb.Error as error:
            raise ToolError(f"{name} cannot be read as {kind}: {_first(error).replace(place, name)}") from error
        for other in dict.fromkeys((name, PurePosixPath(name).name)):  # as some write it: FROM 'sales.csv'
            with suppress(duckdb.CatalogException):
                self._db.execute(f"CREATE VIEW {_quoted(other)} AS SELECT * FROM {_quoted(plain)}")
        written = plain if self._is_word(plain) else _quoted(plain)
        self.tables.append(_Table(plain, written, _quoted(plain), columns))
        self._places.append(place)

    def _named(self, stem: str) -> str:
        """A name for a table that can be typed and is not taken."""
        plain = re.sub(r"\W+", "_", stem).strip("_") or "data"
        name, number = plain, 2
        while self._is_taken(name):
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name.casefold())
        return name

    def _is_taken(self, name: str) -> bool:
        return name.casefold() in self._taken

    def _is_word(self, name: str) -> bool:
        """Whether a name needs no quotes."""
        reserved = "SELECT count(*) FROM duckdb_keywords() WHERE keyword_category = 'reserved' AND keyword_name = $1"
        found = cast("tuple[int]", self._db.execute(reserved, [name.lower()]).fetchone())
        return not found[0] and re.fullmatch(r"[A-Za-z_]\w*", name) is not None

    def _schemas(self) -> list[str]:
        return [*dict.fromkeys(one.reference.partition(".")[0] for one in self.tables if "." in one.reference)]


@contextmanager
def _opened(workspace: Workspace, paths: Sequence[str]) -> Generator[_Base]:
    """The files as a database; what DuckDB raises within the block becomes a ToolError, or MemoryError."""
    import duckdb  # heavy

    with ExitStack() as stack, closing(duckdb.connect(":memory:", config=_CONFIG)) as connection:
        base = _Base(connection)
        for path in dict.fromkeys(paths):
            file, name = stack.enter_context(workspace.reading(path))
            head = file.read(_HEAD)
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
            raise ToolError(f"{_first(error)} {base.outline()}") from error


@contextmanager
def _sqlite(file: BinaryIO, name: str, workspace: Workspace) -> Generator[sqlite3.Connection]:
    """An SQLite database that is read as the file is; raises ToolError where that is not all of it."""
    for more in ("-wal", "-journal"):
        real = workspace.resolve(f"{name}{more}")
        if real.is_file() and real.stat().st_size:
            raise ToolError(f"{name} has changes that are still in {name}{more}: end the program that writes it first.")
    try:
        with closing(sqlite3.connect(f"file:/dev/fd/{file.fileno()}?mode=ro&immutable=1", uri=True)) as source:
            source.text_factory = _decoded
            source.execute("PRAGMA trusted_schema = OFF")
            yield source
    except sqlite3.Error as error:
        raise ToolError(f"{name} cannot be read as SQLite: {error}.") from error


def _without_end(query: str) -> str:
    """A query without the `;` that ends it, and what follows."""
    import duckdb

    raw = query.encode()
    end = next((at for at, _ in duckdb.tokenize(query) if raw[at : at + 1] == b";"), None)
    return raw[:end].decode()


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


def _type_of(kinds: str | None) -> str:
    """DuckDB's type for what SQLite has in a column: the names of its kinds of values, with commas."""
    found = {*(kinds or "").split(",")} - {"null", ""}
    if found == {"integer"}:
        return "BIGINT"
    return "DOUBLE" if found and found <= {"integer", "real"} else "VARCHAR"


def _value(cell: object, kind: str) -> object:
    """A value of SQLite for a column of this type."""
    if cell is None or kind != "VARCHAR":
        return cell
    return cell.hex() if isinstance(cell, bytes) else str(cell)


def _table(found: Found, characters: int) -> list[str]:
    """A table as lines, its head first, and as many rows as fit, one at least; numbers stand to the right."""
    cells: list[list[str]] = []
    widths = [0] * len(found.columns)
    for row in (found.columns, *found.rows):
        cells.append([_cell(value) for value in row])
        wider = [max(width, len(cell)) for width, cell in zip(widths, cells[-1], strict=True)]
        if len(cells) > 2 and (sum(wider) + 2 * len(wider)) * len(cells) > characters:
            cells.pop()
            break
        widths = wider
    numbers = [is_number(kind) for kind in found.types]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]


def is_number(kind: str) -> bool:
    """Whether a type of DuckDB is one of numbers."""
    return not kind.endswith("]") and kind.partition("(")[0].removeprefix("U") in _NUMBERS


_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL"})


def _cell(value: str | None) -> str:
    return "NULL" if value is None else visible_line(value[: _CELL * 2], _CELL)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object in a tree of objects and lists."""
    left = [tree]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield cast("dict[str, Any]", one)
            left += cast("dict[str, Any]", one).values()
        elif isinstance(one, list):
            left += cast("list[Any]", one)


def _first(error: Exception) -> str:
    """What DuckDB says is wrong, without where."""
    text = visible_line(re.split(r"\n\s*\n|\nLINE ", str(error))[0])
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
