"""Reference trajectories out of recorded runs: LiveMCPBench's, and the multi-turn ones of BFCL."""

import ast
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from ecoshell.errors import UsageError
from ecoshell.messages import ToolDocument
from ecoshell.sessions.export import write_new
from ecoshell_bench.trajectories import RecordedRun, RecordedStep, Tools, read_objects, read_runs, read_tools
from ecoshell_bench.umi.reference import ReferenceStep, Trajectory

Kind = Literal["livemcp", "bfcl"]
BESIDE: Mapping[Kind, str] = {"livemcp": "tools_flat.jsonl", "bfcl": "multi_turn_func_doc"}
"""Where a data set's tool documents are, beside its runs: a file, or a folder of files."""
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""BFCL writes some types as Python calls them."""
_FINISH = ReferenceStep("", "finish", "", {}, "")
_FIX = "Give the data set's replay.jsonl, with its tool documents beside it or named by --documents."


def convert(kind: Kind, runs: Path, documents: Path | None, pool: int) -> list[Trajectory]:
    """The trajectories of a file of recorded runs; raises UsageError, which names the line.

    `pool` is the least number of tools that a task of LiveMCPBench has; a run of BFCL says which it had.
    """
    place = documents or runs.parent / BESIDE[kind]
    return _livemcp(runs, place, pool) if kind == "livemcp" else _bfcl(runs, place)


def write(trajectories: Iterable[Trajectory], path: Path) -> None:
    """A new file of trajectories; raises UsageError for one that exists, StoreError for one that cannot be written."""
    lines = (f"{json.dumps(one.as_record(), ensure_ascii=False)}\n" for one in trajectories)
    write_new(path, "".join(lines), kept="Nothing was written.")


def _livemcp(runs: Path, documents: Path, pool: int) -> list[Trajectory]:
    """The successful runs; a call of a tool that has no document is left out, as nothing says how to call it."""
    tools = read_tools(documents)
    return [
        Trajectory(
            run.id,
            _pool(run, tools, pool),
            run.query,
            (*(_livemcp_step(step, step.tool, run) for step in run.steps if step.tool is not None), _FINISH),
            run.answer,
        )
        for run in read_runs(runs, tools)
    ]


def _pool(run: RecordedRun, tools: Tools, size: int) -> tuple[ToolDocument, ...]:
    """The tools it used, and others drawn by its id, in the catalog's order, which gives none away."""
    others = [name for name in tools.documents if name not in run.used]
    missing = min(len(others), max(0, size - len(run.used)))
    chosen = {*run.used, *random.Random(run.id).sample(others, missing)}
    return tuple(document for name, document in tools.documents.items() if name in chosen)


def _livemcp_step(step: RecordedStep, tool: str, run: RecordedRun) -> ReferenceStep:
    try:
        arguments = json.loads(step.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise UsageError(f"The run {run.id} calls {tool} with arguments that are no JSON object.", fix=_FIX)
    return ReferenceStep(step.thought, "call", tool, cast("dict[str, Any]", arguments), step.observation)


def _bfcl(runs: Path, documents: Path) -> list[Trajectory]:
    known = _bfcl_documents(documents)
    return [_bfcl_run(record, place, known) for place, record in read_objects(runs)]


def _bfcl_documents(folder: Path) -> dict[str, ToolDocument]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder} holds no tool documents.", fix=_FIX)
    found: dict[str, ToolDocument] = {}
    for file in files:
        for place, record in read_objects(file):
            name, about, parameters = (record.get(key) for key in ("name", "description", "parameters"))
            if not (isinstance(name, str) and isinstance(about, str) and isinstance(parameters, dict)):
                raise UsageError(f"{place} is not a tool's document.", fix=_FIX)
            found[name] = ToolDocument(name, about, _schema(parameters))
    return found


def _schema(value: Any) -> Any:
    """A schema with the types that JSON Schema knows."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: _JSON_TYPES.get(part, part) if key == "type" and isinstance(part, str) else _schema(part)
            for key, part in fields.items()
        }
    return [_schema(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value


def _bfcl_run(record: Mapping[str, Any], place: str, known: Mapping[str, ToolDocument]) -> Trajectory:
    """One conversation as one task: its turns line by line, all their calls, and a finish without recorded words."""
    try:
        turns, names, steps = record["turns"], record["tools"], record["steps"]
        tools = tuple(known[name] for name in names)
        taken = tuple(_bfcl_step(step, place, known) for turn in steps for step in turn)
        return Trajectory(str(record["id"]), tools, "\n".join(turns), (*taken, _FINISH), "")
    except KeyError as missing:
        raise UsageError(f"{place}: {missing.args[0]!r} is missing, or has no document.", fix=_FIX) from missing
    except TypeError as failure:
        raise UsageError(f"{place} is not a recorded run: {failure}.", fix=_FIX) from failure


def _bfcl_step(step: Mapping[str, Any], place: str, known: Mapping[str, ToolDocument]) -> ReferenceStep:
    tool = known[step["tool"]]
    arguments = _arguments(step["call"], tuple(tool.parameters.get("properties") or ()), place)
    return ReferenceStep("", "call", tool.name, arguments, step["observation"])


def _arguments(call: str, parameters: Sequence[str], place: str) -> dict[str, Any]:
    """The arguments of a call as Python writes it; those without a name are the first parameters."""
    wrong = UsageError(f"{place}: {call!r} is not a call with plain arguments.", fix=_FIX)
    try:
        made = ast.parse(call, mode="eval").body
        if not isinstance(made, ast.Call) or len(made.args) > len(parameters):
            raise wrong
        given = {name: ast.literal_eval(value) for name, value in zip(parameters, made.args, strict=False)}
        given |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in made.keywords if keyword.arg}
        return json.loads(json.dumps(given))
    except (SyntaxError, ValueError, TypeError, RecursionError) as failure:
        raise wrong from failure
