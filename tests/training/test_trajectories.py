"""Training examples from recorded trajectories."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ecoshell.errors import UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell_train.trajectories import is_held, trajectory_examples

pytestmark = pytest.mark.skipif(
    find_spec("llama_cpp") is None, reason="the extra `local` is not installed"
)
SINGLE = [Options(mode="single")]


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel(embedded_path())


def tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"name": name, "description": f"The {name} of a city.", "parameters": schema}


def call(name: str, city: str, observation: str = "") -> dict[str, Any]:
    return {
        "decision": "call",
        "tool": name,
        "arguments": {"city": city},
        "observation": observation,
    }


FINISH = {"decision": "finish"}


def file(folder: Path, *steps: dict[str, Any], tools: int = 30, **about: Any) -> Path:
    task = {"id": "task-0", "query": "Mayor and weather of Oslo?", **about, "steps": steps}
    task["tools"] = [
        *map(tool, ("mayor", "weather")),
        *(tool(f"thing_{number}") for number in range(tools)),
    ]
    path = folder / "trajectories.jsonl"
    path.write_text(f"{json.dumps(task)}\n")
    return path


def texts(model: LocalModel, examples) -> list[tuple[str, str]]:
    vocabulary = model._runtime.vocabulary()
    return [
        tuple(
            b"".join(vocabulary.piece(token, special=True) for token in part).decode()
            for part in (example.prompt, example.reply)
        )
        for example in examples
    ]


def test_prompts_contain_the_earlier_results(model, tmp_path) -> None:
    path = file(
        tmp_path,
        call("mayor", "Oslo", "Ms. Borg"),
        call("weather", "Oslo", "rain"),
        FINISH,
        id="task-1",
    )
    first, second, last = texts(model, trajectory_examples(model, [path], SINGLE))
    assert '{"name": "mayor", "arguments": {"city": "Oslo"}}' in first[1]
    assert "Ms. Borg" not in first[0]
    assert "Ms. Borg" in second[0]
    assert '"weather"' in second[1]
    assert "rain" in last[0]
    assert last[1] == "[result]<|im_end|>"  # The shell inserts the last result.
    assert 4 <= sum(f"\nthing_{number}: " in first[0] for number in range(30)) + 2 <= 10  # of 30


def test_only_calls_of_unfinished_trajectories_are_learned(model, tmp_path) -> None:
    ((_, reply),) = texts(
        model, trajectory_examples(model, [file(tmp_path, call("mayor", "Oslo"))], SINGLE)
    )
    assert '"mayor"' in reply


def test_held_out_tasks_are_skipped_and_the_others_can_be_sampled(model, tmp_path) -> None:
    path = file(tmp_path, call("mayor", "Oslo", "Ms. Borg"), FINISH)
    task = json.loads(path.read_text())
    names = [f"task-{number}" for number in range(8)]
    path.write_text("".join(f"{json.dumps({**task, 'id': name})}\n" for name in names))
    training = [name for name in names if not is_held(name)]
    assert 1 < len(training) < 8
    assert len(trajectory_examples(model, [path], SINGLE)) == 2 * len(training)
    assert len(trajectory_examples(model, [path], SINGLE, every=len(training))) == 2


def test_recorded_tool_replaces_a_shell_tool_of_the_same_name(model, tmp_path) -> None:
    for number in range(12):  # Some also have the shell's tools.
        path = file(tmp_path, call("mayor", "Oslo", "Ms. Borg"), tools=0, id=f"task-{number}")
        text = path.read_text().replace("weather", "read_file")
        path.write_text(text)
        if not is_held(f"task-{number}"):
            ((prompt, _),) = texts(model, trajectory_examples(model, [path], SINGLE))
            assert "The read_file of a city" in prompt


def test_some_tasks_also_have_the_tools_of_the_shell(model, tmp_path) -> None:
    has_shell_tools = set[bool]()
    for name in [name for name in map("task-{}".format, range(20)) if not is_held(name)]:
        path = file(tmp_path, call("mayor", "Oslo", "Ms. Borg"), tools=1, id=name)
        ((prompt, _),) = texts(model, trajectory_examples(model, [path], SINGLE))
        has_shell_tools.add("\nlist_files: " in prompt)
    assert has_shell_tools == {True, False}


def test_long_examples_are_skipped(model, tmp_path) -> None:
    path = file(
        tmp_path, call("mayor", "Oslo", "so " * 3000), call("weather", "Oslo", "rain"), FINISH
    )
    ((_, reply),) = texts(model, trajectory_examples(model, [path], SINGLE))
    assert '"mayor"' in reply


def test_damaged_line_is_reported(model, tmp_path) -> None:
    path = file(tmp_path, call("unknown", "Oslo"), FINISH)
    with pytest.raises(
        UsageError,
        match=r"trajectories\.jsonl:1: step 1 calls 'unknown', which is not among its tools",
    ):
        trajectory_examples(model, [path], SINGLE)
