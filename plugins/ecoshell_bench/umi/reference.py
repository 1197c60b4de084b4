"""Reference trajectories: what was decided at each step, with which tools, and what came back.

They are read from a file of ecoshell's own form (docs/bench-umi.md), or made of recorded runs: LiveMCPBench's, and the
multi-turn ones of BFCL. Some of their tasks are held back for measuring; what learns from trajectories takes the rest.
"""

import ast
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ecoshell.errors import UsageError
from ecoshell.messages import META_TOOLS, ToolDocument
from ecoshell.sessions.export import write_new
from ecoshell_bench.reading import Fields, read_objects, read_runs, read_tools

Decision = Literal["call", "finish", "give_up"]
Split = Literal["held", "rest", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)
Kind = Literal["livemcp", "bfcl"]
BESIDE: Mapping[Kind, str] = {"livemcp": "tools_flat.jsonl", "bfcl": "multi_turn_func_doc"}
"""Where a data set's tool documents are, beside its runs: a file, or a folder of files."""
_DECISIONS: tuple[Decision, ...] = get_args(Decision)
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""BFCL writes some types as Python calls them."""
_FIX = "docs/bench-umi.md says what each line holds; --convert makes such a file of recorded runs."
_FIX_RUNS = "Give the data set's replay.jsonl, with its tool documents beside it or named by --documents."


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step; tool, arguments and observation are empty where it ends the trajectory."""

    thought: str
    decision: Decision
    tool: str
    arguments: Mapping[str, Any]
    observation: str


_FINISH = ReferenceStep("", "finish", "", {}, "")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One task, from its question to its answer."""

    id: str
    tools: tuple[ToolDocument, ...]
    query: str
    steps: tuple[ReferenceStep, ...]
    final: str

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools it has."""
        return frozenset(tool.name for tool in self.tools)

    def as_record(self) -> dict[str, Any]:
        """The line of a file that `read_trajectories` reads."""
        steps: list[dict[str, Any]] = []
        for step in self.steps:
            called = (step.tool, dict(step.arguments), step.observation) if step.decision == "call" else (None,) * 3
            named = dict(zip(("tool", "arguments", "observation"), called, strict=True))
            steps.append({"thought": step.thought, "decision": step.decision, **named})
        return {
            "id": self.id,
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
                for tool in self.tools
            ],
            "query": self.query,
            "steps": steps,
            "final": self.final,
        }


def is_held(identity: str) -> bool:
    """Whether the task with this id is held back: the first 64 bits of its SHA-256 divide by three.

    A third is held: of the 240 steps that LiveMCPBench's recordings give, a fifth would leave fewer than a hundred.
    """
    digest = sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0


def read_trajectories(path: Path, split: Split = "all") -> list[Trajectory]:
    """The trajectories of a file that are in a split: one object a line. Raises UsageError, which names the line."""
    found: dict[str, Trajectory] = {}
    places: dict[str, str] = {}
    for place, record in read_objects(path):
        one = _trajectory(Fields(record, place, _FIX))
        if one.id in found:
            raise UsageError(f"{place}: {places[one.id]} has the id {one.id!r} too.", fix="Give each line an id.")
        found[one.id], places[one.id] = one, place
    if not found:
        raise UsageError(f"{path} has no trajectory.", fix=_FIX)
    taken = [one for one in found.values() if split == "all" or is_held(one.id) == (split == "held")]
    if not taken:
        raise UsageError(f"No task of the file is in the split {split!r}.", fix="Leave out --split, or add tasks.")
    return taken


def _trajectory(record: Fields) -> Trajectory:
    tools: list[ToolDocument] = []
    for tool in record.objects("tools"):
        name = tool.filled("name")
        if name in META_TOOLS:
            raise tool.wrong(f"is called {name}, which is no tool's name but the shell's own")
        tools.append(ToolDocument(name, tool.text("description"), tool.object("parameters")))
    names = frozenset(tool.name for tool in tools)
    if len(names) < len(tools):
        raise record.wrong("has two tools of one name")
    steps = tuple(_step(step, names) for step in record.objects("steps"))
    if not steps:
        raise record.wrong("has no steps")
    for number, step in enumerate(steps[:-1], start=1):
        if step.decision != "call":
            raise record.wrong(f"goes on after step {number}, which is its end ({step.decision})")
    named = record.record.get("id")
    if not isinstance(named, str | int) or isinstance(named, bool) or not str(named).strip():
        raise record.wrong("has no `id`")
    final = record.text("final") if steps[-1].decision == "finish" else str(record.record.get("final") or "")
    return Trajectory(str(named), tuple(tools), record.filled("query"), steps, final)


def _step(record: Fields, names: frozenset[str]) -> ReferenceStep:
    said = record.record.get("decision")
    decision: Decision | None = next((known for known in _DECISIONS if known == said), None)
    if decision is None:
        raise record.wrong(f"has the decision {said!r}, which is none of {', '.join(_DECISIONS)}")
    thought = record.text("thought") if "thought" in record.record else ""
    if decision != "call":
        if record.record.get("tool") or record.record.get("arguments"):
            raise record.wrong(f"ends the trajectory ({decision}) and calls a tool")
        return ReferenceStep(thought, decision, "", {}, "")
    tool = record.filled("tool")
    if tool not in names:
        raise record.wrong(f"calls {tool!r}, which is not among its tools")
    return ReferenceStep(thought, decision, tool, record.object("arguments"), record.text("observation"))


# Trajectories of recorded runs


def convert(kind: Kind, runs: Path, documents: Path | None, pool: int) -> list[Trajectory]:
    """The trajectories of a file of recorded runs; raises UsageError, which names the line.

    `pool` is the least number of tools that a task of LiveMCPBench has; a run of BFCL says which it had.
    """
    place = documents or runs.parent / BESIDE[kind]
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


def _of_bfcl(path: Path, folder: Path) -> list[Trajectory]:
    """Each conversation as one task: its turns line by line, all their calls, and a finish without recorded words."""
    known: dict[str, ToolDocument] = {}
    for file in sorted(folder.glob("*.json")):
        for place, record in read_objects(file):
            name, about, parameters = (record.get(key) for key in ("name", "description", "parameters"))
            if not (isinstance(name, str) and isinstance(about, str) and isinstance(parameters, dict)):
                raise UsageError(f"{place} is not a tool's document.", fix=_FIX_RUNS)
            known[name] = ToolDocument(name, about, _schema(parameters))
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
