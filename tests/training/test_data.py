"""What models are trained on: tasks from a grammar, played by the shell; none of it needs PyTorch."""

import asyncio
import json
import random
import re
from importlib.util import find_spec

import pytest

from ecoshell.errors import UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell.training import data
from ecoshell.training.data import examples, generate, kinds, play, ways
from ecoshell_bench.tasks.suite import read_suite

local = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the extra `local` is not installed")


@pytest.fixture
def model() -> LocalModel:
    return LocalModel(embedded_path())


def text(model: LocalModel, tokens) -> str:
    vocabulary = model._runtime.vocabulary()
    return b"".join(vocabulary.piece(token, special=True) for token in tokens).decode()


def made(kind: str, split: data.Split, seed: int = 1):
    return data._Maker(random.Random(seed), split).make(kind)


def test_the_same_seed_makes_the_same_tasks_and_another_one_others() -> None:
    def told(seed: int) -> list[object]:
        return [(one.request, one.files, one.steps, one.setup) for one in generate(40, seed)]

    assert told(3) == told(3) != told(4)


@pytest.mark.parametrize("kind", [*kinds(), "talk"])
def test_every_way_of_a_kind_can_be_said_in_training_and_in_tests(kind: str) -> None:
    for split in ("train", "held"):
        for seed in range(30):
            task = made(kind, split, seed)
            assert not re.search(r"\{[a-z]+\}", task.request)
            assert all(one.call.name and one.rationale for one in task.steps)


def test_what_is_kept_for_tests_is_not_in_training() -> None:
    for kind in kinds():
        assert ways(kind, "train")
        assert ways(kind, "held")
        assert not {*ways(kind, "train")} & {*ways(kind, "held")}
    training, held = ({name for one in generate(300, 5, split) for name in one.files} for split in ("train", "held"))
    assert len(training) > 50
    assert not training & held


def test_no_way_of_saying_it_is_that_of_a_task_of_the_benchmark() -> None:
    """Neither half: with names of up to three words in its gaps, no way of the grammar makes a request of the suite."""
    said = [re.sub(r"\W+", " ", task.request).strip().lower() for task in read_suite(None)]
    for kind in kinds():
        for way in (*ways(kind, "train"), *ways(kind, "held")):
            plain = re.sub(r"[^\w{}]+", " ", re.sub(r"^(de|fr|es): ", "", way)).strip().lower()
            if re.sub(r"\{\w+\}", "", plain).strip().count(" ") < 2:
                continue  # two words are nobody's
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", r"(\\w+( \\w+){0,2})", re.escape(plain)))
            assert not any(map(pattern.fullmatch, said)), way  # the request itself is not shown
    talked = {re.sub(r"\W+", " ", one).strip().lower() for one in data._frames()["talk"]}
    assert not talked & {*said}


@local
def test_a_tool_is_registered_by_its_name_before_it_is_called(model) -> None:
    task = made("times", "train")
    for mode, role in (("single", "single"), ("umi", "caller")):
        found = asyncio.run(play(task, model, Options(mode=mode, registration="names")))
        said = [text(model, one.reply) for one in found if one.role == role]
        assert '"tool_name": "calculate"' in said[0]
        assert '{"name": "calculate"' in said[1]
        assert "expression" not in text(model, found[0].prompt)


@local
def test_what_is_learned_is_what_the_shell_asks_and_what_tools_returned(model) -> None:
    task = next(one for one in (made("value", "train", seed) for seed in range(99)) if "email" in one.answer([""]))
    first, last = asyncio.run(play(task, model))
    (file,) = (step.call.arguments["path"] for step in task.steps)
    asked, said = text(model, last.prompt), text(model, first.reply)
    assert first.role == last.role == "single"
    assert text(model, first.prompt).endswith(f"{task.request}<|im_end|>\n<|im_start|>assistant\n")
    assert said == f'I read {file}.\n{{"name": "read_file", "arguments": {{"path": "{file}"}}}}<|im_end|>'
    assert f"{said}\n<|im_start|>user\nResult of read_file:\n{task.files[file]}" in asked
    assert text(model, last.reply) == f"{task.answer([task.files[file]])}<|im_end|>"


@local
def test_three_roles_learn_what_each_of_them_is_asked(model) -> None:
    task = made("rename", "train")
    found = asyncio.run(play(task, model, Options(mode="umi")))
    assert [one.role for one in found] == ["planner", "caller", "planner", "summarizer"]
    said = [text(model, one.reply).removesuffix("<|im_end|>") for one in found]
    assert said[0] == "I rename it. Next: caller."
    assert json.loads(said[1])["name"] == "run_command"
    assert said[2] == "Next: conclusion."


@local
@pytest.mark.parametrize("kind", ["missing", "edit_read", "search", "git_commit", "column_sum", "unserved", "run"])
def test_tools_run_for_real_and_the_task_is_served(kind: str, model) -> None:
    found = asyncio.run(play(made(kind, "train"), model))
    assert len(found) == len(made(kind, "train").steps) + 1


@local
def test_each_task_is_played_once_and_kept(model, tmp_path, monkeypatch) -> None:
    keep = tmp_path / "run" / "tasks.jsonl"
    found = examples(model, 3, 1, "train", (Options(mode="single"),), keep)
    with keep.open("a") as file:
        file.write('["single 0123')  # the process was killed here

    async def never(*_: object) -> list[data.Example]:
        raise AssertionError

    monkeypatch.setattr(data, "play", never)
    assert examples(model, 3, 1, "train", (Options(mode="single"),), keep) == found
    assert len(keep.read_text().splitlines()) == 3


def test_a_broken_line_is_named(tmp_path) -> None:
    keep = tmp_path / "tasks.jsonl"
    keep.write_text('["single 0123456789abcdef",[]]\n{"no": "task"}\n')
    with pytest.raises(UsageError, match=r"tasks\.jsonl, line 2 is no played task"):
        examples(None, 1, 1, "train", (Options(mode="single"),), keep)  # pyright: ignore[reportArgumentType]
