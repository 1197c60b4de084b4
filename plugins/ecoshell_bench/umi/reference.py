"""Reference trajectories, made of recorded runs (LiveMCPBench's and BFCL's), of tool documents (ToolBench's), or of
generated tasks that the shell plays.
"""

import ast
import asyncio
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import TypeAdapter

from ecoshell.errors import UsageError
from ecoshell.messages import ToolDocument
from ecoshell.sessions.export import write_new
from ecoshell_bench.reading import read_runs, read_tools
from ecoshell_train.records import checked, read_objects, read_records
from ecoshell_train.trajectories import ReferenceStep, Trajectory

Kind = Literal["livemcp", "bfcl", "toolbench", "generated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_BESIDE = {"livemcp": "tools_flat.jsonl", "bfcl": "multi_turn_func_doc"}
"""Where a data set's tool documents are, beside its runs: a file, or a folder of files."""
_DOCUMENT = TypeAdapter(ToolDocument)
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""BFCL writes some types as Python calls them."""
_FIX_RUNS = "Give the data set's replay.jsonl, with its tool documents beside it or named by --documents."


_FINISH = ReferenceStep(decision="finish")


# Trajectories of recorded runs


def convert(kind: Kind, runs: Path, documents: Path | None, pool: int) -> list[Trajectory]:
    """The trajectories of a file of recorded runs, or of so many generated tasks; UsageError names the line.

    `pool` is the least number of tools that a task of LiveMCPBench has; a run of BFCL says which it had.
    """
    if kind == "generated":
        if not str(runs).isdecimal() or int(str(runs)) == 0:
            raise UsageError(f"{runs} is no number of tasks.", fix="Such as: --convert generated 100 held.jsonl")
        return asyncio.run(_of_generated(int(str(runs))))
    if kind == "toolbench":
        return [*_of_toolbench(runs, pool)]
    if kind == "bfcl" and (runs.parent / "possible_answer" / runs.name).is_file():
        return [*_of_bfcl_single(runs, pool)]
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
    from ecoshell_train.data import generate, observed

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


_DESCRIBED = re.compile(r'description of this function is: "(.*)"$', re.DOTALL)
"""What ToolBench says of a function, after what it says of all."""
_ASKED = (
    "{core}: {given}",
    "{core}, {given}",
    "{core} with {given}",
    "I need this: {core}. Take {given}.",
    "please do this for {given}: {core}",
    "Can you {api} for {given}?",
    "{api}, {given}",
    "I would like to know: {core}. It is {given}.",
    "For {given}: {core}.",
    "{api} please. {given}",
)
"""Ways to ask for a tool of which there is only the document."""


def _of_toolbench(path: Path, pool: int) -> Iterator[Trajectory]:
    """A request for each tool whose parameters have examples, made of its document, and the call that serves it.

    Half of the others to choose from are of its category. No document tells the examples.
    """
    rows = [*read_objects(path)]
    catalog = {str(one.get("name")): one for _, one in rows}
    read = {
        one.name: one for one in (checked(_DOCUMENT, row, at, "Give ToolBench's catalog.jsonl.") for at, row in rows)
    }
    documents = {name: _without_examples(document) for name, document in read.items()}
    alike: dict[str, list[str]] = {}
    for name, one in catalog.items():
        alike.setdefault(str(one.get("category")), []).append(name)
    for name, document in read.items():
        chance = random.Random(name)
        fields: Mapping[str, Any] = document.parameters.get("properties") or {}
        wanted = [one for one in document.parameters.get("required") or () if isinstance(fields.get(one), dict)]
        values = {one: fields[one].get("example_value") for one in wanted}
        core = documents[name].description.split(". ")[0].strip(" .")
        plain = 3 <= len(core.split()) <= 25 and core.isascii()
        if not wanted or not plain or any(value in ("", None) or len(str(value)) > 40 for value in values.values()):
            continue
        form = chance.choice(("{name} {value}", "{name}: {value}", "{value} as the {name}"))
        told = [form.format(name=_words(one), value=value) for one, value in values.items()]
        given = str(values[wanted[0]]) if len(wanted) == 1 and chance.random() < 0.5 else " and ".join(told)
        api = _words(str(catalog[name].get("api") or name)).lower()
        near = [one for one in alike[str(catalog[name].get("category"))] if one != name]
        others = {
            *chance.sample(near, min(len(near), pool // 2)),
            *chance.sample([*documents], min(len(documents), pool // 2)),
        }
        tools = tuple([documents[one] for one in documents if one == name or one in others])
        query = chance.choice(_ASKED).format(core=core, given=given, api=api)
        yield Trajectory(name, tools, query, (ReferenceStep(tool=name, arguments=values),))


def _without_examples(document: ToolDocument) -> ToolDocument:
    """A document that says what the function does, and not of which service it is part, and no values."""
    said = _DESCRIBED.search(document.description)
    fields: Mapping[str, Any] = document.parameters.get("properties") or {}
    plain = {
        name: {key: value for key, value in cast("dict[str, Any]", about).items() if key != "example_value"}
        for name, about in fields.items()
        if isinstance(about, dict)
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": plain,
        "required": document.parameters.get("required") or [],
    }
    return replace(document, description=said[1].strip() if said else document.description, parameters=schema)


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-/]+", " ", name).strip()


def _of_bfcl_single(path: Path, pool: int) -> Iterator[Trajectory]:
    """The questions of one turn that one call serves; what it returned is not known."""
    answers = {one.get("id"): one for _, one in read_objects(path.parent / "possible_answer" / path.name)}
    rows = [*read_objects(path)]
    known = {tool.name: tool for place, record in rows for tool in _functions(record, place)}
    for place, record in rows:
        try:
            own = {tool.name: tool for tool in _functions(record, place)}
            calls, turns = answers[record["id"]]["ground_truth"], record["question"]
            if len(calls) != 1 or len(turns) != 1:
                continue
            ((name, given),) = calls[0].items()
            step = ReferenceStep(tool=name, arguments=_first(given))
            others = [one for one in known if one not in own]
            chosen = random.Random(record["id"]).sample(others, min(len(others), max(0, pool - len(own))))
            tools = (*own.values(), *(known[one] for one in chosen))
            made = Trajectory(record["id"], tools, turns[0][-1]["content"], (step,))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as failure:
            raise UsageError(f"{place} is no question with a known answer: {failure}.", fix=_FIX_RUNS) from failure
        yield made


def _functions(record: Mapping[str, Any], place: str) -> list[ToolDocument]:
    """The tools of a question, with schemas that JSON Schema knows."""
    read = [checked(_DOCUMENT, tool, place, _FIX_RUNS) for tool in record.get("function") or ()]
    return [replace(tool, parameters=_schema(tool.parameters)) for tool in read]


def _first(accepted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The first of the values that are right for each argument; one that may be left out is left out."""
    plain = {name: values[0] for name, values in accepted.items() if "" not in values}
    return {
        name: _first(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for name, value in plain.items()
    }


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
