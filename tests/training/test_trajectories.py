"""What recorded trajectories teach: the calls of then, asked for as the shell asks, and nothing that is held back."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ecoshell.errors import UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell_train.trajectories import is_held, taken

pytestmark = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the extra `local` is not installed")
SINGLE = [Options(mode="single")]


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel(embedded_path())


def tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"name": name, "description": f"The {name} of a city.", "parameters": schema}


def called(name: str, city: str, observation: str = "") -> dict[str, Any]:
    return {"decision": "call", "tool": name, "arguments": {"city": city}, "observation": observation}


FINISH = {"decision": "finish"}


def file(folder: Path, *steps: dict[str, Any], tools: int = 30, **about: Any) -> Path:
    task = {"id": "task-0", "query": "Mayor and weather of Oslo?", **about, "steps": steps}
    task["tools"] = [*map(tool, ("mayor", "weather")), *(tool(f"thing_{number}") for number in range(tools))]
    path = folder / "trajectories.jsonl"
    path.write_text(f"{json.dumps(task)}\n")
    return path


def texts(model: LocalModel, examples) -> list[tuple[str, str]]:
    vocabulary = model._runtime.vocabulary()
    return [
        tuple(
            b"".join(vocabulary.piece(one, special=True) for one in part).decode() for part in (one.prompt, one.reply)
        )
        for one in examples
    ]


def test_each_call_is_learned_after_what_the_calls_before_it_returned(model, tmp_path) -> None:
    path = file(tmp_path, called("mayor", "Oslo", "Ms. Borg"), called("weather", "Oslo", "rain"), FINISH)
    first, second, last = texts(model, taken(model, [path], SINGLE))
    assert '{"name": "mayor", "arguments": {"city": "Oslo"}}' in first[1]
    assert "Ms. Borg" not in first[0]
    assert "Ms. Borg" in second[0]
    assert '"weather"' in second[1]
    assert "rain" in last[0]
    assert last[1] == "[result]<|im_end|>"  # the shell puts the last result there
    assert 4 <= sum(f"\nthing_{number}: " in first[0] for number in range(30)) + 2 <= 10  # of 30


def test_where_nothing_ends_it_calls_alone_are_learned(model, tmp_path) -> None:
    ((_, reply),) = texts(model, taken(model, [file(tmp_path, called("mayor", "Oslo"))], SINGLE))
    assert '"mayor"' in reply


def test_what_was_held_back_is_not_learned_and_of_the_rest_each_so_many_th_may_be(model, tmp_path) -> None:
    path = file(tmp_path, called("mayor", "Oslo", "Ms. Borg"), FINISH)
    task = json.loads(path.read_text())
    names = [f"task-{number}" for number in range(8)]
    path.write_text("".join(f"{json.dumps({**task, 'id': name})}\n" for name in names))
    rest = [name for name in names if not is_held(name)]
    assert 1 < len(rest) < 8
    assert len(taken(model, [path], SINGLE)) == 2 * len(rest)
    assert len(taken(model, [path], SINGLE, every=len(rest))) == 2


def test_a_tool_that_is_called_as_one_of_the_shell_takes_its_place(model, tmp_path) -> None:
    for number in range(12):  # some of which have the shell's own tools beside theirs
        path = file(tmp_path, called("mayor", "Oslo", "Ms. Borg"), tools=0, id=f"task-{number}")
        text = path.read_text().replace("weather", "read_file")
        path.write_text(text)
        if not is_held(f"task-{number}"):
            ((prompt, _),) = texts(model, taken(model, [path], SINGLE))
            assert "The read_file of a city" in prompt


def test_some_are_learned_with_the_tools_of_the_shell_beside_theirs(model, tmp_path) -> None:
    seen = set[bool]()
    for name in [name for name in map("task-{}".format, range(20)) if not is_held(name)]:
        path = file(tmp_path, called("mayor", "Oslo", "Ms. Borg"), tools=1, id=name)
        ((prompt, _),) = texts(model, taken(model, [path], SINGLE))
        seen.add("\nlist_files: " in prompt)
    assert seen == {True, False}


def test_what_is_very_long_is_left_out(model, tmp_path) -> None:
    path = file(tmp_path, called("mayor", "Oslo", "so " * 3000), called("weather", "Oslo", "rain"), FINISH)
    ((_, reply),) = texts(model, taken(model, [path], SINGLE))
    assert '"mayor"' in reply


def test_a_broken_line_is_named(model, tmp_path) -> None:
    path = file(tmp_path, called("nobody", "Oslo"), FINISH)
    with pytest.raises(UsageError, match=r"trajectories\.jsonl:1: step 1 calls 'nobody', which is not among its tools"):
        taken(model, [path], SINGLE)
