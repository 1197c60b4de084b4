"""Reference trajectories: what was decided at each step, with which tools, and what came back.

They are read from a file of ecoshell's own form (docs/bench-umi.md), made of recorded runs (LiveMCPBench's, and the
multi-turn ones of BFCL), or of generated tasks that the shell plays. Some of their tasks are held back for measuring;
what learns from trajectories takes the rest.
"""

import ast
import asyncio
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BeforeValidator

from ecoshell.errors import UsageError
from ecoshell.messages import META_TOOLS, ToolDocument
from ecoshell.sessions.export import write_new
from ecoshell.training.records import read_objects, read_records
from ecoshell_bench.reading import Filled, Text, read_runs, read_tools

Decision = Literal["call", "finish", "give_up"]
Split = Literal["held", "rest", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)
Kind = Literal["livemcp", "bfcl", "generated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_BESIDE = {"livemcp": "tools_flat.jsonl", "bfcl": "multi_turn_func_doc"}
"""Where a data set's tool documents are, beside its runs: a file, or a folder of files."""
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""BFCL writes some types as Python calls them."""
_FIX = "docs/bench-umi.md says what each line holds; --convert makes such a file of recorded runs."
_FIX_RUNS = "Give the data set's replay.jsonl, with its tool documents beside it or named by --documents."


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step; tool, arguments and observation are empty where it ends the trajectory."""

    thought: Text = ""
    decision: Decision = "call"
    tool: Text = ""
    arguments: Annotated[dict[str, Any], BeforeValidator(lambda given: given or {})] = field(
        default_factory=dict[str, Any]
    )
    observation: Text = ""

    def __post_init__(self) -> None:
        if self.decision != "call" and (self.tool or self.arguments):
            raise ValueError(f"it ends the trajectory ({self.decision}) and calls a tool")

    def as_record(self) -> dict[str, Any]:
        """As it stands in a file."""
        called = (self.tool, self.arguments, self.observation) if self.decision == "call" else (None,) * 3
        named = dict(zip(("tool", "arguments", "observation"), called, strict=True))
        return {"thought": self.thought, "decision": self.decision, **named}


_FINISH = ReferenceStep(decision="finish")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One task, from its question to its answer."""

    id: Annotated[Filled, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
    tools: tuple[ToolDocument, ...]
    query: Filled
    steps: tuple[ReferenceStep, ...]
    final: Text = ""

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        for name in names:
            if name in META_TOOLS or not name.strip() or names.count(name) > 1:
                raise ValueError(f"{name!r} is no tool's name, the shell's own, or that of two tools")
        if not self.steps:
            raise ValueError("it has no steps")
        for number, step in enumerate(self.steps, start=1):
            if step.decision != "call" and number < len(self.steps):
                raise ValueError(f"it goes on after step {number}, which is its end ({step.decision})")
            if step.decision == "call" and step.tool not in names:
                raise ValueError(f"step {number} calls {step.tool!r}, which is not among its tools")

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools it has."""
        return frozenset(tool.name for tool in self.tools)

    def as_record(self) -> dict[str, Any]:
        """The line of a file that `read_trajectories` reads."""
        tools = [{key: getattr(tool, key) for key in ("name", "description", "parameters")} for tool in self.tools]
        steps = [step.as_record() for step in self.steps]
        return {"id": self.id, "tools": tools, "query": self.query, "steps": steps, "final": self.final}


def is_held(identity: str) -> bool:
    """Whether the task with this id is held back: the first 64 bits of its SHA-256 divide by three.

    A third is held: of the 240 steps that LiveMCPBench's recordings give, a fifth would leave fewer than a hundred.
    """
    digest = sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0


def read_trajectories(path: Path, split: Split = "all") -> list[Trajectory]:
    """The trajectories of a file that are in a split: one object a line. Raises UsageError, which names the line."""
    found: dict[str, Trajectory] = {}
    for place, one in read_records(path, Trajectory, _FIX):
        if one.id in found:
            raise UsageError(f"{place}: an earlier line has the id {one.id!r} too.", fix="Give each line an id.")
        found[one.id] = one
    if not found:
        raise UsageError(f"{path} has no trajectory.", fix=_FIX)
    taken = [one for one in found.values() if split == "all" or is_held(one.id) == (split == "held")]
    if not taken:
        raise UsageError(f"No task of the file is in the split {split!r}.", fix="Leave out --split, or add tasks.")
    return taken


# Trajectories of recorded runs


def convert(kind: Kind, runs: Path, documents: Path | None, pool: int) -> list[Trajectory]:
    """The trajectories of a file of recorded runs, or of so many generated tasks; UsageError names the line.

    `pool` is the least number of tools that a task of LiveMCPBench has; a run of BFCL says which it had.
    """
    if kind == "generated":
        if not str(runs).isdecimal() or int(str(runs)) == 0:
            raise UsageError(f"{runs} is no number of tasks.", fix="Such as: --convert generated 100 held.jsonl")
        return asyncio.run(_of_generated(int(str(runs))))
    place = documents or runs.parent / _BESIDE[kind]
    return _of_livemcp(runs, place, pool) if kind == "livemcp" else _of_bfcl(runs, place)


def write(trajectories: Iterable[Trajectory], path: Path) -> None:
    """A new file of trajectories; raises UsageError for one that exists, StoreError for one that cannot be written."""
    lines = (f"{json.dumps(one.as_record(), ensure_ascii=False)}\n" for one in trajectories)
    write_new(path, "".join(lines), kept="Nothing was written.")


def _of_livemcp(path: Path, documents: Path, pool: int) -> list[Trajectory]:
    """The successful runs; a call of a tool that has no document is left out, as nothing says how to call it."""
    catalog, found = read_tools(documents), list[Trajectory]()
    for run in read_runs(path, catalog):
        # the tools it used, and others drawn by its id, in the catalog's order, which gives none away
        others = [name for name in catalog.documents if name not in run.used]
        missing = min(len(others), max(0, pool - len(run.used)))
        chosen = {*run.used, *random.Random(run.id).sample(others, missing)}
        tools = tuple(document for name, document in catalog.documents.items() if name in chosen)
        steps: list[ReferenceStep] = []
        for step in run.steps:
            if step.tool is None:
                continue
            try:
                arguments = json.loads(step.arguments)
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, dict):
                told = f"The run {run.id} calls {step.tool} with arguments that are no JSON object."
                raise UsageError(told, fix=_FIX_RUNS)
            given = cast("dict[str, Any]", arguments)
            steps.append(ReferenceStep(step.thought, "call", step.tool, given, step.observation))
        found.append(Trajectory(run.id, tools, run.query, (*steps, _FINISH), run.answer))
    return found


async def _of_generated(count: int) -> list[Trajectory]:
    """Of so many tasks that `train umi` holds back, those that have no attachment and no refused call."""
    from ecoshell.models.embedded import embedded_path
    from ecoshell.models.local import LocalModel
    from ecoshell.training.data import generate, observed

    found: dict[str, Trajectory] = {}
    async with aclosing(LocalModel(embedded_path())) as local:
        for task in generate(count, 0, "held"):
            if task.attachments or task.refused:
                continue
            if (seen := await observed(replace(task, drafted=False), local)) is None:
                continue
            tools, returned = seen
            steps = [
                ReferenceStep(step.rationale, "call", step.call.name, dict(step.call.arguments), observation)
                for step, observation in zip(task.steps, returned, strict=True)
            ]
            end = (*steps, _FINISH)
            found[task.digest] = Trajectory(task.digest, tools, task.request, end, task.answer(returned))
    return list(found.values())


def _of_bfcl(path: Path, folder: Path) -> list[Trajectory]:
    """Each conversation as one task: its turns line by line, all their calls, and a finish without recorded words."""
    known: dict[str, ToolDocument] = {}
    for file in sorted(folder.glob("*.json")):
        for _, tool in read_records(file, ToolDocument, _FIX_RUNS):
            known[tool.name] = replace(tool, parameters=_schema(tool.parameters))
    if not known:
        raise UsageError(f"{folder} holds no tool documents.", fix=_FIX_RUNS)
    found: list[Trajectory] = []
    for place, record in read_objects(path):
        try:
            taken = [_bfcl_step(step, place, known[step["tool"]]) for turn in record["steps"] for step in turn]
            tools = tuple(known[name] for name in record["tools"])
            found.append(Trajectory(str(record["id"]), tools, "\n".join(record["turns"]), (*taken, _FINISH), ""))
        except KeyError as missing:
            told = f"{place}: {missing.args[0]!r} is missing, or has no document."
            raise UsageError(told, fix=_FIX_RUNS) from missing
        except TypeError as failure:
            raise UsageError(f"{place} is not a recorded run: {failure}.", fix=_FIX_RUNS) from failure
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


def _bfcl_step(step: Mapping[str, Any], place: str, tool: ToolDocument) -> ReferenceStep:
    """A call as Python writes it; arguments without a name are the first parameters."""
    call: str = step["call"]
    parameters: Sequence[str] = tuple(tool.parameters.get("properties") or ())
    wrong = UsageError(f"{place}: {call!r} is not a call with plain arguments.", fix=_FIX_RUNS)
    try:
        made = ast.parse(call, mode="eval").body
        if not isinstance(made, ast.Call) or len(made.args) > len(parameters):
            raise wrong
        given = {name: ast.literal_eval(value) for name, value in zip(parameters, made.args, strict=False)}
        given |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in made.keywords if keyword.arg}
        arguments = json.loads(json.dumps(given))
    except (SyntaxError, ValueError, TypeError, RecursionError) as failure:
        raise wrong from failure
    return ReferenceStep("", "call", tool.name, arguments, step["observation"])
