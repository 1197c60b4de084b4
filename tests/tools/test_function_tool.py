import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, List, Literal  # noqa: UP035 - plugins may use it

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools import Limits, ResultSize, Tool
from ecoshell.tools.function import Arguments, FunctionTool, parameters_of
from ecoshell.tools.output import OutputWindow
from ecoshell.tools.running import contained
from ecoshell.worker import checkpoint


def greet(
    name: Annotated[str, "Who is greeted."],
    times: int = 1,
    tone: Literal["warm", "cold"] = "warm",
    tags: list[str] | None = None,
) -> str:
    """Greet a user.

    This second paragraph is not sent to models.
    """
    return f"{tone} {name} {times} {tags}"


class Tone(Enum):
    WARM = "warm"


def tool_of(function: Callable[..., Any], **options: Any) -> FunctionTool:
    return FunctionTool(function, effects=["read"], **options)


async def observation_of(
    function: Callable[..., Any], limits: Limits | None = None, **arguments: Any
) -> Observation:
    return await tool_of(function, limits=limits).run(arguments)


def test_a_function_tool_is_a_tool():
    tool = tool_of(greet, price_nano=7)
    assert isinstance(tool, Tool)
    assert (tool.name, tool.effects, tool.price_nano) == ("greet", {"read"}, 7)


def test_the_schema_comes_from_the_signature_and_the_docstring():
    schema = tool_of(greet).schema
    assert schema.description == "Greet a user."
    assert schema.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Who is greeted."},
            "times": {"type": "integer", "default": 1},
            "tone": {"type": "string", "enum": ["warm", "cold"], "default": "warm"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name"],
    }


@dataclass
class Place:
    title: str
    inside: "Place | None" = None


def go(place: Place, scores: dict[str, float]) -> str:
    return f"{place.title} {scores}"


async def test_a_dataclass_argument_is_described_inline_and_constructed():
    schema = tool_of(go).schema.parameters["properties"]["place"]
    assert schema["properties"]["title"] == {"type": "string"}
    assert "$" not in str(schema)
    observation = await observation_of(
        go, place={"title": "A", "inside": {"title": "B"}}, scores={"x": 1}
    )
    assert observation.text == "A {'x': 1.0}"


@pytest.mark.parametrize(
    "kind", [str, int, float, bool, list[int], Literal["a", "b"], list[list[str]]]
)
def test_plain_types_are_described_as_pydantic_does(kind: Any):
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = kind
    assert parameters_of(function)["properties"]["value"] == TypeAdapter(kind).json_schema()


def reserve(
    place: Place,
    when: date,
    seats: Annotated[int, "How many.", Field(ge=1, le=3)] = 1,
    names: List = (),  # noqa: UP006
) -> str:
    return f"{place} {when} {seats} {names}"


def test_constraints_of_annotations_are_described():
    properties = parameters_of(reserve)["properties"]
    assert properties["seats"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 3,
        "description": "How many.",
        "default": 1,
    }
    assert properties["names"] == {"type": "array", "items": {}, "default": ()}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seats": 4}, "`seats`: Input should be less than or equal to 3, not 4."),
        ({"when": "soon"}, "`when`: Input should be a valid date"),
        ({"when": [1]}, "`when` must be a string, not [1]."),
        ({"place": {"inside": None}}, "`place['title']`: Field required"),
    ],
)
async def test_an_invalid_value_of_the_right_type_is_explained(wrong: dict[str, Any], words: str):
    observation = await observation_of(
        reserve, **{"place": {"title": "A"}, "when": "2026-05-01"} | wrong
    )
    assert words in observation.text


def test_a_function_with_positional_arguments_is_rejected():
    def gather(*values: int) -> int:
        return sum(values)

    with pytest.raises(TypeError, match="by name"):
        _ = tool_of(gather).schema


@pytest.mark.parametrize(
    ("default", "described"),
    [
        (["notes"], {"default": ["notes"]}),
        (Path("notes"), {}),
        (float("nan"), {}),
    ],
)
async def test_a_default_is_passed_unchanged_and_described_if_json_has_it(
    default: Any, described: dict[str, Any]
):
    def echo(value: object = default) -> str:
        return str(value is default)

    schema = parameters_of(echo)["properties"]["value"]
    assert {key: item for key, item in schema.items() if key == "default"} == described
    assert json.dumps(schema, allow_nan=False)
    assert (await observation_of(echo)).text == "True"


def test_schemas_are_created_without_pydantic():
    code = """if True:
        import sys
        from pathlib import Path
        from ecoshell.tools.builtin import builtin_tools
        from ecoshell.tools.workspace import Workspace
        assert len([tool.schema for tool in builtin_tools(Workspace(Path(".")))]) == 17
        heavy = {"pydantic", "httpx", "pint", "regex", "jmespath", "lxml", "readability", "inscriptis", "numpy"}
        print(*heavy & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "`name` is missing: it must be a string"),
        ({"name": "A", "times": "ten"}, '`times` must be a whole number, not "ten"'),
        ({"name": ["A"]}, '`name` must be a string, not ["A"]'),
        ({"name": "A", "tone": "loud"}, '`tone` must be one of warm, cold, not "loud"'),
        ({"name": "A", "nmae": "B"}, "`nmae` is not an argument (did you mean `name`?)"),
        ({"name": "A", "zzz": 1}, "`zzz` is not an argument (it takes name, times, tone, tags)"),
        ({"name": "A", "tags": ["x", 1.5j]}, "`tags[1]`"),
        ({"name": "x" * 10_000, "times": "y" * 10_000}, "…"),
    ],
)
async def test_wrong_arguments_are_explained(arguments: dict[str, Any], words: str):
    observation = await tool_of(greet).run(arguments)
    assert not observation.ok
    assert observation.text.startswith("greet was not run: ")
    assert words in observation.text
    assert len(observation.text) < 300


async def test_unambiguous_arguments_are_converted():
    observation = await observation_of(greet, name=42, times="3", tags=None)
    assert observation.text == "warm 42 3 None"


GREETING = Arguments(greet, parameters_of(greet))
NAMES = st.sampled_from(["name", "times", "tone", "tags"]) | st.text(max_size=6)


@settings(max_examples=50)
@given(
    arguments=st.dictionaries(
        NAMES, st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=4)
    )
)
def test_any_arguments_are_accepted_or_give_a_tool_error(arguments: dict[str, Any]):
    with contextlib.suppress(ToolError):  # any other error fails the test
        assert "name" in GREETING.check(arguments)


async def test_errors_of_a_tool_become_observations():
    def refuse() -> str:
        raise ToolError("Not today.")

    async def crash() -> str:
        return str(1 / 0)

    assert await observation_of(refuse) == Observation("Not today.", ok=False)
    crashed = await observation_of(crash)
    assert (crashed.ok, crashed.text) == (
        False,
        "crash failed: ZeroDivisionError: division by zero",
    )


async def test_values_become_json():
    def numbers() -> dict[str, Any]:
        return {"é": [1, None]}

    assert (await observation_of(numbers)).text == '{"é": [1, null]}'


async def test_a_key_that_json_cannot_represent_is_named():
    def places() -> dict[Any, int]:
        return {(1, 2): 3}

    assert "keys must be str" in (await observation_of(places)).text


async def test_a_long_result_is_truncated():
    def talk() -> str:
        return "abc" * 1000

    observation = await observation_of(talk, Limits(result=ResultSize(100)))
    assert observation.truncated
    assert observation.text == ("abc" * 1000)[:100] + "\n[truncated: 100 of 3000 characters shown]"


async def test_unpaired_surrogates_are_escaped():
    def broken() -> str:
        return "a\ud800b"

    assert (await observation_of(broken)).text == "a\\ud800b"


async def test_a_timeout_ends_the_thread_of_a_tool():
    ended = threading.Event()

    def loop() -> None:
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    observation = await contained(FunctionTool(loop, effects=()), {}, Limits(seconds=0.1))
    advice = "Give it less to do, or continue without it."
    assert (observation.ok, observation.text) == (
        False,
        f"loop was stopped: it took longer than 0.1 s. {advice}",
    )
    assert await asyncio.to_thread(ended.wait, 600)


async def test_a_timeout_inside_a_tool_is_an_ordinary_error():
    async def own() -> str:
        raise TimeoutError("the printer")

    assert (await observation_of(own)).text == "own failed: TimeoutError: the printer"


async def test_cancelling_a_call_ends_its_thread():
    started, ended = threading.Event(), threading.Event()

    def loop() -> None:
        started.set()
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    task = asyncio.create_task(contained(tool_of(loop), {}, Limits(seconds=600)))
    await asyncio.to_thread(started.wait, 600)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 600)


async def test_a_blocking_tool_does_not_block_the_event_loop():
    release = threading.Event()

    def wait() -> bool:
        return release.wait(600)

    task = asyncio.create_task(observation_of(wait))
    await asyncio.sleep(0)
    release.set()
    assert (await task).text == "true"


@given(pieces=st.lists(st.binary(max_size=40), max_size=30), size=st.integers(3, 200))
def test_a_window_keeps_the_beginning_and_the_end(pieces: list[bytes], size: int):
    window = OutputWindow(size)
    for piece in pieces:
        window.feed(piece)
    data = b"".join(pieces)
    assert window.total == len(data)
    assert window.truncated == (len(data) > size)
    if not window.truncated:
        assert window.text() == data.decode(errors="replace")
    else:
        head, tail = data[: size * 2 // 3], data[-(size - size * 2 // 3) :]
        mark = f"\n[truncated: {size} of {len(data)} bytes shown]\n"
        assert window.text() == head.decode(errors="replace") + mark + tail.decode(errors="replace")


async def test_plain_functions_run_concurrently():
    meeting = threading.Barrier(12)

    def meet() -> str:
        """Wait for the others."""
        meeting.wait(timeout=600)  # raises unless all twelve threads wait
        return "met"

    observations = await asyncio.gather(*(observation_of(meet) for _ in range(12)))
    assert [observation.text for observation in observations] == ["met"] * 12
