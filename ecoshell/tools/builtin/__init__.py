"""The built-in tools."""

from dataclasses import replace

from ecoshell.messages import Effect
from ecoshell.tools import Limits, Tool, ToolOptions
from ecoshell.tools.builtin.calculate import calculate
from ecoshell.tools.builtin.clock import current_time
from ecoshell.tools.builtin.commands import CommandTools
from ecoshell.tools.builtin.files import FileTools
from ecoshell.tools.builtin.program import SECONDS, ProgramTool
from ecoshell.tools.builtin.search import SearchTools
from ecoshell.tools.builtin.task import TaskTool
from ecoshell.tools.builtin.todo import TodoTool
from ecoshell.tools.builtin.units import convert_units
from ecoshell.tools.function import FunctionTool, WorkerTool
from ecoshell.tools.workspace import Workspace

_READ: tuple[Effect, ...] = ("read",)
_WRITE: tuple[Effect, ...] = ("read", "write")
_EXECUTE: tuple[Effect, ...] = ("read", "write", "execute", "network")
_END_SECONDS = 5.0
"""Extra seconds to end a program after its time limit and to read its output."""


def builtin_tools(workspace: Workspace, *, options: ToolOptions | None = None) -> list[Tool]:
    """Return all built-in tools for a workspace."""
    options = options or ToolOptions()
    quick = Limits(options.file_seconds, options.result)
    seconds = options.command_seconds
    programs = Limits(seconds + _END_SECONDS, options.result, sandbox=options.sandbox)
    live = replace(programs, is_live=True, sandbox=None)
    long = replace(programs, seconds=SECONDS)
    files, commands = FileTools(workspace, options), CommandTools(workspace, options)
    search = SearchTools(workspace, options)
    program = ProgramTool(commands, seconds, lambda: options.result.characters - 200)
    running = FunctionTool(commands.run_command, effects=_EXECUTE, limits=programs)
    unless = "" if options.background is None else ", unless it runs in the background"
    running.notes = {"command": f"stopped after {seconds:g} s{unless}"}
    return [
        WorkerTool(files.list_files, effects=_READ, limits=quick),
        FunctionTool(files.read_file, effects=_READ, limits=quick),
        WorkerTool(search.search_text, effects=_READ, limits=quick),
        FunctionTool(search.count_text, effects=_READ, limits=quick),
        FunctionTool(files.write_file, effects=_WRITE, limits=quick, preview=files.preview_write),
        FunctionTool(files.edit_file, effects=_WRITE, limits=quick, preview=files.preview_edit),
        running,
        FunctionTool(commands.run_python, effects=_EXECUTE, limits=programs),
        FunctionTool(commands.command_output, effects=(), limits=live),
        FunctionTool(commands.command_stop, effects=(), limits=quick),
        FunctionTool(program.run_program, effects=_EXECUTE, limits=long),
        WorkerTool(calculate, effects=(), limits=quick),
        FunctionTool(current_time, effects=(), limits=quick),
        WorkerTool(convert_units, effects=(), limits=quick),
        WorkerTool(search.json_query, effects=_READ, limits=quick),
        TodoTool(),
        TaskTool(options.result),
    ]
