"""Convert recorded runs (LiveMCPBench, BFCL), tool schemas (ToolBench) or generated tasks to reference trajectories."""

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
from ecoshell.messages import ToolSchema
from ecoshell.sessions.export import write_new
from ecoshell_bench.reading import read_runs, read_tools
from ecoshell_train.records import checked, read_objects, read_records
from ecoshell_train.trajectories import ReferenceStep, Trajectory

Kind = Literal["livemcp", "bfcl", "toolbench", "generated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_DEFAULT_DOCUMENTS = {"livemcp": "tools_flat.jsonl", "bfcl": "multi_turn_func_doc"}
"""The file or folder with a data set's tool schemas, in the folder of its runs."""
_SCHEMA = TypeAdapter(ToolSchema)
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""Replacements for Python type names in BFCL's schemas."""
_FIX_RUNS = "Give the data set's replay.jsonl, with its tool schemas in the same folder or set by --documents."


_FINISH = ReferenceStep(decision="finish")


# Trajectories of recorded runs


def convert(kind: Kind, runs: Path, schemas: Path | None, pool: int) -> list[Trajectory]:
    """Convert a file of recorded runs, or generate a number of tasks; UsageError names the line.

    `pool` is the minimum number of tools of a task; multi-turn runs of BFCL list their own.
    """
    if kind == "generated":
        if not str(runs).isdecimal() or int(str(runs)) == 0:
            raise UsageError(
                f"{runs} is not a number of tasks.",
                fix="Example: --convert generated 100 held.jsonl",
            )
        return asyncio.run(_of_generated(int(str(runs))))
    if kind == "toolbench":
        return [*_of_toolbench(runs, pool)]
    if kind == "bfcl" and (runs.parent / "possible_answer" / runs.name).is_file():
        return [*_of_bfcl_single(runs, pool)]
    path = schemas or runs.parent / _DEFAULT_DOCUMENTS[kind]
    return _of_livemcp(runs, path, pool) if kind == "livemcp" else _of_bfcl(runs, path)


def write(trajectories: Iterable[Trajectory], path: Path) -> None:
    """Write trajectories to a new file; raises UsageError if it exists, StoreError if it cannot be written."""
    lines = (
        f"{json.dumps(trajectory.as_record(), ensure_ascii=False)}\n" for trajectory in trajectories
    )
    write_new(path, "".join(lines), kept="Nothing was written.")


def _of_livemcp(path: Path, schemas: Path, pool: int) -> list[Trajectory]:
    """Convert the successful runs; calls of tools without a schema are skipped."""
    catalog, trajectories = read_tools(schemas), list[Trajectory]()
    for run in read_runs(path, catalog):
        # The used tools and a random draw, in the catalog's order so that the order does not reveal the used ones.
        unused = [name for name in catalog.schemas if name not in run.used]
        missing = min(len(unused), max(0, pool - len(run.used)))
        chosen = {*run.used, *random.Random(run.id).sample(unused, missing)}
        tools = tuple(schema for name, schema in catalog.schemas.items() if name in chosen)
        steps: list[ReferenceStep] = []
        for step in run.steps:
            if step.tool is None:
                continue
            try:
                arguments = json.loads(step.arguments)
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, dict):
                message = (
                    f"The run {run.id} calls {step.tool} with arguments that are not a JSON object."
                )
                raise UsageError(message, fix=_FIX_RUNS)
            call_arguments = cast("dict[str, Any]", arguments)
            steps.append(
                ReferenceStep(step.thought, "call", step.tool, call_arguments, step.observation)
            )
        trajectories.append(Trajectory(run.id, tools, run.query, (*steps, _FINISH), run.answer))
    return trajectories


async def _of_generated(count: int) -> list[Trajectory]:
    """Convert those of `count` held-out tasks of `train umi` that have no attachment and no refused call."""
    from ecoshell.models.embedded import embedded_path
    from ecoshell.models.local import LocalModel
    from ecoshell_train.examples import observed
    from ecoshell_train.tasks import generate

    trajectories: dict[str, Trajectory] = {}
    async with aclosing(LocalModel(embedded_path())) as local:
        for task in generate(count, 0, "held"):
            if task.attachments or task.refused:
                continue
            if (run := await observed(replace(task, drafted=False), local)) is None:
                continue
            tools, observations = run
            steps = [
                ReferenceStep(
                    step.rationale, "call", step.call.name, dict(step.call.arguments), observation
                )
                for step, observation in zip(task.steps, observations, strict=True)
            ]
            trajectories[task.digest] = Trajectory(
                task.digest, tools, task.request, (*steps, _FINISH), task.answer(observations)
            )
    return list(trajectories.values())


_DESCRIPTION = re.compile(r'description of this function is: "(.*)"$', re.DOTALL)
"""The specific part of ToolBench's descriptions, after a common introduction."""
_REQUESTS = (
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
"""Templates of requests for a tool with a schema but no recorded use."""


def _of_toolbench(path: Path, pool: int) -> Iterator[Trajectory]:
    """Yield a request and the matching call for each tool whose parameters have examples.

    Half of the other tools come from the same category. The schemas do not contain the examples.
    """
    rows = [*read_objects(path)]
    catalog = {str(row.get("name")): row for _, row in rows}
    originals = [
        checked(_SCHEMA, row, place, "Give ToolBench's catalog.jsonl.") for place, row in rows
    ]
    original_by_name = {schema.name: schema for schema in originals}
    schemas = {name: _without_examples(schema) for name, schema in original_by_name.items()}
    categories: dict[str, list[str]] = {}
    for name, row in catalog.items():
        categories.setdefault(str(row.get("category")), []).append(name)
    for name, schema in original_by_name.items():
        rng = random.Random(name)
        fields: Mapping[str, Any] = schema.parameters.get("properties") or {}
        required = [
            field
            for field in schema.parameters.get("required") or ()
            if isinstance(fields.get(field), dict)
        ]
        values = {field: fields[field].get("example_value") for field in required}
        core = schemas[name].description.split(". ")[0].strip(" .")
        is_plain = 3 <= len(core.split()) <= 25 and core.isascii()
        if (
            not required
            or not is_plain
            or any(value in ("", None) or len(str(value)) > 40 for value in values.values())
        ):
            continue
        form = rng.choice(("{name} {value}", "{name}: {value}", "{value} as the {name}"))
        parts = [form.format(name=_words(field), value=value) for field, value in values.items()]
        value_text = (
            str(values[required[0]])
            if len(required) == 1 and rng.random() < 0.5
            else " and ".join(parts)
        )
        api = _words(str(catalog[name].get("api") or name)).lower()
        related = [
            other for other in categories[str(catalog[name].get("category"))] if other != name
        ]
        offered = {
            name,
            *rng.sample(related, min(len(related), pool // 2)),
            *rng.sample([*schemas], min(len(schemas), pool // 2)),
        }
        tools = tuple(schema for other, schema in schemas.items() if other in offered)
        query = rng.choice(_REQUESTS).format(core=core, given=value_text, api=api)
        yield Trajectory(name, tools, query, (ReferenceStep(tool=name, arguments=values),))


def _without_examples(tool_schema: ToolSchema) -> ToolSchema:
    """Remove example values, and everything from the description except what the function does."""
    match = _DESCRIPTION.search(tool_schema.description)
    fields: Mapping[str, Any] = tool_schema.parameters.get("properties") or {}
    plain = {
        name: {
            key: value
            for key, value in cast("dict[str, Any]", about).items()
            if key != "example_value"
        }
        for name, about in fields.items()
        if isinstance(about, dict)
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": plain,
        "required": tool_schema.parameters.get("required") or [],
    }
    return replace(
        tool_schema,
        description=match[1].strip() if match else tool_schema.description,
        parameters=schema,
    )


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-/]+", " ", name).strip()


def _of_bfcl_single(path: Path, pool: int) -> Iterator[Trajectory]:
    """Convert the questions with one turn and one call; observations are unknown."""
    answers = {
        answer.get("id"): answer
        for _, answer in read_objects(path.parent / "possible_answer" / path.name)
    }
    rows = [*read_objects(path)]
    catalog = {tool.name: tool for place, record in rows for tool in _functions(record, place)}
    for place, record in rows:
        try:
            own = {tool.name: tool for tool in _functions(record, place)}
            calls, turns = answers[record["id"]]["ground_truth"], record["question"]
            if len(calls) != 1 or len(turns) != 1:
                continue
            ((name, accepted),) = calls[0].items()
            step = ReferenceStep(tool=name, arguments=_first(accepted))
            unused = [other for other in catalog if other not in own]
            chosen = random.Random(record["id"]).sample(
                unused, min(len(unused), max(0, pool - len(own)))
            )
            tools = (*own.values(), *(catalog[other] for other in chosen))
            trajectory = Trajectory(record["id"], tools, turns[0][-1]["content"], (step,))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as failure:
            raise UsageError(
                f"{place} is not a question with an answer: {failure}.", fix=_FIX_RUNS
            ) from failure
        yield trajectory


def _functions(record: Mapping[str, Any], place: str) -> list[ToolSchema]:
    """Return the tools of a question with valid JSON Schema types."""
    schemas = [checked(_SCHEMA, tool, place, _FIX_RUNS) for tool in record.get("function") or ()]
    return [replace(schema, parameters=_schema(schema.parameters)) for schema in schemas]


def _first(accepted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the first accepted value of each argument, without optional arguments."""
    required = {name: values[0] for name, values in accepted.items() if "" not in values}
    return {
        name: _first(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for name, value in required.items()
    }


def _of_bfcl(path: Path, folder: Path) -> list[Trajectory]:
    """Convert each conversation to one task: its turns joined by lines, all calls, and a finish without an answer."""
    catalog: dict[str, ToolSchema] = {}
    for file in sorted(folder.glob("*.json")):
        for _, tool in read_records(file, ToolSchema, _FIX_RUNS):
            catalog[tool.name] = replace(tool, parameters=_schema(tool.parameters))
    if not catalog:
        raise UsageError(f"{folder} has no tool schemas.", fix=_FIX_RUNS)
    trajectories: list[Trajectory] = []
    for place, record in read_objects(path):
        try:
            steps = [
                _bfcl_step(step, place, catalog[step["tool"]])
                for turn in record["steps"]
                for step in turn
            ]
            tools = tuple(catalog[name] for name in record["tools"])
            request = "\n".join(record["turns"])
            trajectories.append(
                Trajectory(str(record["id"]), tools, request, (*steps, _FINISH), "")
            )
        except KeyError as missing:
            message = f"{place}: {missing.args[0]!r} is missing, or has no schema."
            raise UsageError(message, fix=_FIX_RUNS) from missing
        except TypeError as failure:
            raise UsageError(
                f"{place} is not a recorded run: {failure}.", fix=_FIX_RUNS
            ) from failure
    return trajectories


def _schema(value: Any) -> Any:
    """Replace Python type names in a schema by those of JSON Schema."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: _JSON_TYPES.get(part, part)
            if key == "type" and isinstance(part, str)
            else _schema(part)
            for key, part in fields.items()
        }
    return (
        [_schema(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value
    )


def _bfcl_step(step: Mapping[str, Any], place: str, tool: ToolSchema) -> ReferenceStep:
    """A call as Python writes it; arguments without a name are the first parameters."""
    call: str = step["call"]
    parameters: Sequence[str] = tuple(tool.parameters.get("properties") or ())
    wrong = UsageError(f"{place}: {call!r} is not a call with plain arguments.", fix=_FIX_RUNS)
    try:
        node = ast.parse(call, mode="eval").body
        if not isinstance(node, ast.Call) or len(node.args) > len(parameters):
            raise wrong
        values = {
            name: ast.literal_eval(value)
            for name, value in zip(parameters, node.args, strict=False)
        }
        values |= {
            keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg
        }
        arguments = json.loads(json.dumps(values))
    except (SyntaxError, ValueError, TypeError, RecursionError) as failure:
        raise wrong from failure
    return ReferenceStep("", "call", tool.name, arguments, step["observation"])
