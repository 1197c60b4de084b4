"""Tools that describe, query and plot CSV, Parquet, JSON and SQLite files of the workspace.

DuckDB runs in a worker process with limits of memory and time, and reads only the files that a call names. Only
`data_plot`, which saves a PNG file, needs approval.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Literal, ParamSpec, TypeVar

from ecoshell.errors import DependencyMissing, ToolError
from ecoshell.messages import Effect, Observation
from ecoshell.plugins import hookimpl
from ecoshell.tools import Limits, Subject, ToolOptions
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.workspace import Workspace
from ecoshell.worker import in_worker

from . import database, plots

P = ParamSpec("P")
T = TypeVar("T")
DataFiles = Annotated[
    list[Annotated[str, Subject.PATH]],
    "The files, relative to the workspace; sales.csv is the table sales.",
]
Query = Annotated[str, "One SELECT in DuckDB's SQL."]
Kind = Literal["bar", "line", "scatter"]
_MIN_TABLE = 500
"""Characters of the table below a plot, at least."""


class DataTools:
    """The tools of one workspace; each public method is one."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._result = options.result
        self._seconds = options.command_seconds

    def data_describe(self, path: Annotated[str, "The file.", Subject.PATH]) -> Observation:
        """Describe a data file (CSV, Parquet, JSON, SQLite): its tables, columns, types, rows, and the first rows."""
        return self._in_worker(
            database.describe, self._workspace, path, self._result.characters - 200
        )

    def data_query(
        self,
        query: Query,
        paths: DataFiles,
        plot: Annotated[
            Literal["no", "bar", "line", "scatter"], "Draw it: first column across, numbers up."
        ] = "no",
    ) -> Observation:
        """Ask CSV, Parquet, JSON or SQLite files a question in SQL: count, sum, average, group, sort, join, filter."""
        result = self._query(query, paths)
        if plot == "no":
            return result.as_table(self._result.characters - 200)
        text, rows = self._in_worker(plots.draw_text, plot, result)
        text, truncated = text + result.truncation(rows), result.total > rows
        if omitted := plots.omitted(plot, result):
            text += f"\n\nNot drawn: {', '.join(omitted)}. All columns:\n"
            table = result.as_table(max(_MIN_TABLE, self._result.characters - 200 - len(text)))
            text, truncated = text + table.text, truncated or table.truncated
        return Observation(text, truncated=truncated)

    def data_plot(
        self,
        query: Query,
        paths: DataFiles,
        plot: Annotated[Kind, "First column across, columns of numbers up."],
        path: Annotated[str, "Where to save it: a .png file.", Subject.PATH],
    ) -> str:
        """Save a plot (chart, diagram, graph) of data files as a PNG image: the result of a query in SQL."""
        if not path.lower().endswith(".png"):
            raise ToolError(f"{path} is not the name of a PNG file, such as plot.png.")
        if find_spec("matplotlib") is None:
            raise ToolError(
                "A PNG needs matplotlib: pip install 'ecoshell[plot]'. `data_query` plots without it."
            )
        result = self._query(query, paths)
        image, rows = self._in_worker(plots.draw_png, plot, result)
        name = self._workspace.write_bytes(path, image)
        return f"{name} saved: {rows} rows of {', '.join(result.columns)}.{result.truncation(rows)}"

    def _query(self, query: str, paths: list[str]) -> database.QueryResult:
        return self._in_worker(database.run_query, self._workspace, query, paths)

    def _in_worker(self, work: Callable[P, T], *arguments: P.args, **_: P.kwargs) -> T:
        """Call a function in a process that ends afterwards, as DuckDB and matplotlib do not release memory."""
        return in_worker(work, *arguments, seconds=self._seconds, once=True)


@hookimpl
def tools(workspace: Workspace, options: ToolOptions) -> list[FunctionTool]:
    """Return `data_describe`, `data_query` and `data_plot`."""
    if missing := [name for name in ("duckdb", "plotille") if find_spec(name) is None]:
        raise DependencyMissing(f"needs {' and '.join(missing)}: pip install 'ecoshell[data]'")
    methods = DataTools(workspace, options)
    limits = Limits(options.command_seconds, options.result)
    reading: tuple[Effect, ...] = ("read",)
    writing: tuple[Effect, ...] = ("read", "write")
    return [
        FunctionTool(methods.data_describe, effects=reading, limits=limits),
        FunctionTool(methods.data_query, effects=reading, limits=limits),
        FunctionTool(methods.data_plot, effects=writing, limits=limits),
    ]
