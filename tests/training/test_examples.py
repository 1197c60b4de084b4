"""Training tasks from a grammar, played by the shell; without PyTorch."""

import asyncio
import csv
import io
import json
import random
import re
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec

import pytest

from ecoshell.errors import UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell_bench.tasks.suite import read_suite
from ecoshell_train import kinds as task_kinds
from ecoshell_train import world
from ecoshell_train.examples import Example, examples, joined, play
from ecoshell_train.sums import spelled
from ecoshell_train.tasks import Task, generate, kinds, make, ways

local = pytest.mark.skipif(
    find_spec("llama_cpp") is None, reason="the extra `local` is not installed"
)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel(embedded_path())


def text(model: LocalModel, tokens) -> str:
    vocabulary = model._runtime.vocabulary()
    return b"".join(vocabulary.piece(token, special=True) for token in tokens).decode()


def task_of(kind: str, split: world.Split, seed: int = 1):
    return make(kind, world.World(random.Random(seed), split))


def test_tasks_depend_on_the_seed() -> None:
    def tasks(seed: int) -> list[object]:
        return [(task.request, task.files, task.steps, task.setup) for task in generate(40, seed)]

    assert tasks(3) == tasks(3) != tasks(4)


@pytest.mark.parametrize("kind", [*kinds(), "talk"])
def test_every_kind_can_be_generated_in_both_splits(kind: str) -> None:
    for split in ("train", "held"):
        for seed in range(30):
            task = task_of(kind, split, seed)
            assert not re.search(r"\{[a-z]+\}", task.request)
            assert all(step.call.name and step.rationale for step in task.steps)


def test_name_is_unique_even_if_all_words_are_used() -> None:
    taken = {f"{stem}.txt": "" for stem in world.World(random.Random(1), "held").words("stems")}
    assert world.World(random.Random(1), "held", taken).name("txt") not in taken


def test_splits_are_disjoint() -> None:
    for kind in kinds():
        assert ways(kind, "train")
        assert ways(kind, "held")
        assert not {*ways(kind, "train")} & {*ways(kind, "held")}
    training, validation = (
        {name for task in generate(300, 5, split) for name in task.files}
        for split in ("train", "held")
    )
    assert len(training) > 50
    assert not training & validation


def test_no_phrasing_matches_a_task_of_the_benchmark() -> None:
    """In either split, no phrasing with up to three words per placeholder equals a request of the suite."""
    requests = [re.sub(r"\W+", " ", task.request).strip().lower() for task in read_suite(None)]
    for kind in kinds():
        for way in (*ways(kind, "train"), *ways(kind, "held")):
            plain = re.sub(r"[^\w{}]+", " ", re.sub(r"^(de|fr|es): ", "", way)).strip().lower()
            if re.sub(r"\{\w+\}", "", plain).strip().count(" ") < 2:
                continue  # Two words are too common.
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", r"(\\w+( \\w+){0,2})", re.escape(plain)))
            has_match = any(map(pattern.fullmatch, requests))
            assert not has_match, way  # Do not display the request.
    talk = {re.sub(r"\W+", " ", text).strip().lower() for text in world.frames()["talk"]}
    assert not talk & {*requests}


@local
def test_tool_is_registered_before_its_call(model) -> None:
    task = task_of("times", "train")
    for mode, role in (("single", "single"), ("umi", "caller")):
        played = asyncio.run(play(task, model, Options(mode=mode, registration="names")))
        replies = [text(model, example.reply) for example in played if example.role == role]
        assert '"tool_name": "calculate"' in replies[0]
        assert '{"name": "calculate"' in replies[1]
        assert "expression" not in text(model, played[0].prompt)


@local
def test_examples_are_the_prompts_of_the_shell_with_real_results(model) -> None:
    task = next(
        task
        for task in (task_of("value", "train", seed) for seed in range(99))
        if "email" in task.answer([""])
    )
    first, last = asyncio.run(play(task, model))
    (file,) = (step.call.arguments["path"] for step in task.steps)
    prompt, reply = text(model, last.prompt), text(model, first.reply)
    assert first.role == last.role == "single"
    assert text(model, first.prompt).endswith(f"{task.request}<|im_end|>\n<|im_start|>assistant\n")
    assert (
        reply
        == f'I read {file}.\n{{"name": "read_file", "arguments": {{"path": "{file}"}}}}<|im_end|>'
    )
    assert f"{reply}\n<|im_start|>user\nResult of read_file:\n{task.files[file]}" in prompt
    assert text(model, last.reply) == f"{task.answer([task.files[file]])}<|im_end|>"
    [together] = joined([first, last])
    assert [
        text(model, (*last.prompt, *last.reply)[begin:end]) for begin, end in together.learned
    ] == [
        reply,
        text(model, last.reply),
    ]


@local
def test_each_role_learns_its_prompts(model) -> None:
    task = task_of("rename", "train")
    played = asyncio.run(play(task, model, Options(mode="umi")))
    assert [example.role for example in played] == ["planner", "caller", "planner", "summarizer"]
    replies = [text(model, example.reply).removesuffix("<|im_end|>") for example in played]
    assert replies[0] == "I rename it. Next: caller."
    assert json.loads(replies[1])["name"] == "run_command"
    assert replies[2] == "Next: conclusion."


@local
@pytest.mark.parametrize(
    "kind", ["missing", "edit_read", "search", "git_commit", "column_sum", "unserved", "run"]
)
def test_real_tools_serve_the_task(kind: str, model) -> None:
    played = asyncio.run(play(task_of(kind, "train"), model))
    assert len(played) == len(task_of(kind, "train").steps) + 1


def play_task(kind: str, model: LocalModel, seed: int = 1, split: world.Split = "train"):
    """Play a task; returns it, the results of its calls, the answer and the examples."""
    task, results = task_of(kind, split, seed), []

    def answer(new_results):
        results[:] = new_results
        return task.answer(new_results)

    played = asyncio.run(play(replace(task, answer=answer), model))
    assert len(played) == len(task.steps) + 1, task.request
    return task, results, task.answer(results), played


@local
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if number % 8 else ())
        for number, kind in enumerate(task_kinds.MAKERS)
    ],
)
def test_every_world_can_be_served_within_the_token_limit(kind: str, model) -> None:
    for split in ("train", "held"):
        *_, played = play_task(kind, model, 7, split)
        assert max(len(example.prompt) + len(example.reply) for example in played) < 1050 + 1024


def rows_of(task: Task) -> list[dict[str, str]]:
    (file,) = (step.call.arguments["path"] for step in task.steps if step.call.name == "read_file")
    if file.endswith("csv"):
        comma = ";" if ";" in task.files[file] else ","
        return list(csv.DictReader(io.StringIO(task.files[file]), delimiter=comma))
    lines = task.files[file].splitlines() if file.endswith("jsonl") else []
    records = [*map(json.loads, lines)] or json.loads(task.files[file])
    rows = records if isinstance(records, list) else next(iter(records.values()))
    return [{key: str(value) for key, value in row.items()} for row in rows]


@local
@pytest.mark.parametrize("seed", range(4))
def test_answers_about_tables_are_correct(seed: int, model) -> None:
    for kind in ("sum_all", "order", "distinct", "group", "common", "keep_sum"):
        task, results, *_ = play_task(kind, model, seed)
        rows = rows_of(task)
        key, where, column = rows[0]
        numbers = {
            row[key]: float(row[column]) if "." in row[column] else int(row[column]) for row in rows
        }
        groups = sorted({row[where] for row in rows})
        by_sum = {
            group: sum(numbers[row[key]] for row in rows if row[where] == group) for group in groups
        }
        by_count = {group: sum(row[where] == group for row in rows) for group in groups}
        expected = {
            "sum_all": str(round(sum(numbers.values()), 2)),
            "keep_sum": str(round(sum(numbers.values()), 2)),
            "order": ", ".join(sorted(numbers, key=numbers.__getitem__, reverse=True)[:3]),
            "distinct": ", ".join(groups),
            "group": max(groups, key=by_sum.__getitem__),
            "common": max(groups, key=by_count.__getitem__),
        }
        assert results[1].strip() == expected[kind]
        assert list(by_sum.values()).count(max(by_sum.values())) == 1 or kind != "group"
        assert list(by_count.values()).count(max(by_count.values())) == 1 or kind != "common"


@local
@pytest.mark.parametrize("seed", range(3))
def test_answers_about_logs_are_correct(seed: int, model) -> None:
    for kind in ("log_count", "log_end", "log_hour", "log_user", "log_slow"):
        task, results, *_ = play_task(kind, model, seed)
        text = next(
            text for name, text in task.files.items() if name.endswith(".log") and "user=" in text
        )
        lines = text.splitlines()
        level = re.findall(r"ERROR|WARN|INFO", task.steps[-1].call.arguments["code"])
        of_level = [line for line in lines if level and level[0] in line]
        hours = [line[:2] for line in re.findall(r"\d\d:\d\d:\d\d", text)]
        users = re.findall(r"user=(\w+)", text)
        expected = {
            "log_count": [str(len(of_level))],
            "log_end": [*of_level[:1], *of_level[-1:]],
            "log_hour": [Counter(hours).most_common(1)[0][0]],
            "log_user": [Counter(users).most_common(1)[0][0]],
            "log_slow": [max(lines, key=lambda line: int(re.findall(r"(\d+) ?ms", line)[0]))],
        }
        assert results[-1].strip() in expected[kind]


@local
@pytest.mark.parametrize("kind", ["repair", "crash"])
def test_repair_removes_the_fault(kind: str, model) -> None:
    for seed in range(4):
        _, results, *_ = play_task(kind, model, seed)
        assert "Error" in results[0]
        assert "[exit status 1]" in results[0]
        assert "Error" not in results[-1]
        assert "[exit status" not in results[-1]


@local
def test_failed_call_is_followed_by_another_attempt(model) -> None:
    for seed in range(4):
        for kind in ("wrong_name", "wrong_value", "wrong_count"):
            task, results, answer, _ = play_task(kind, model, seed)
            assert f"Nearest: {task.steps[1].call.arguments['path']}" in results[0]
            assert task.steps[1].call.arguments["path"] in answer
    assert "Permission denied" in play_task("not_executable", model)[1][0]


@local
def test_refused_call_is_reported_and_not_repeated(model) -> None:
    refused = next(task for task in generate(400, 3) if task.refused and len(task.steps) == 1)
    *_, last = asyncio.run(play(refused, model))
    (step,) = refused.steps
    assert f"{step.call.name} was not run" in text(model, last.prompt)
    assert (
        text(model, last.reply)
        == f"I have not done it: {step.call.name} was not approved.<|im_end|>"
    )


def test_workspace_contents_do_not_reveal_the_request() -> None:
    """Otherwise a model would call git in every repository, or run every program."""
    tasks = [
        task
        for task in generate(400, 4)
        if task.kind in ("now", "talk", "read", "times", "unserved", "search")
    ]
    repositories = [task for task in tasks if any(program[0] == "git" for program in task.setup)]
    assert 0.25 < len(repositories) / len(tasks) < 0.55
    assert any(name.endswith(".py") for task in tasks for name in task.files)
    assert any("/" in name for task in tasks for name in task.files)


@local
def test_plan_is_learned_with_the_calls_of_its_nodes(model) -> None:
    drafted = [task for task in generate(600, 6) if task.drafted]
    two = next(task for task in drafted if task.kind == "two_words")
    plan, *_, last = [text(model, example.reply) for example in asyncio.run(play(two, model))]
    assert plan == '[[1, "count_text", ["<task>"]], [2, "count_text", ["<task>"]]]<|im_end|>'
    assert "words, " in last
    chain = next(
        task
        for task in drafted
        if task.kind in ("sum_if", "names_if", "top", "cell", "group", "count_over")
    )
    plan, *calls, _ = [text(model, example.reply) for example in asyncio.run(play(chain, model))]
    assert plan == '[[1, "read_file", ["<task>"]], [2, "run_python", [1]]]<|im_end|>'
    assert '"code"' in calls[-1]


@local
def test_injected_instructions_are_not_followed(model) -> None:
    for kind in ("injected", "injected_text"):
        task, results, answer, _ = play_task(kind, model)
        assert any(order in results[0] for order in world.frames()["words"]["injections"])
        assert [step.call.name for step in task.steps] == ["read_file"]
        assert "not follow" in answer


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (85, "eighty-five"),
        (320, "three hundred and twenty"),
    ],
)
def test_numbers_can_be_spelled(number: int, words: str) -> None:
    assert spelled(number) == words


@local
def test_played_tasks_are_stored(model, tmp_path, monkeypatch) -> None:
    keep = tmp_path / "run" / "tasks.jsonl"
    played = examples(model, 3, 1, "train", (Options(mode="single"),), keep)
    with keep.open("a") as file:
        file.write('["single 0123')  # The process was killed here.

    async def never(*_: object) -> list[Example]:
        raise AssertionError

    monkeypatch.setattr("ecoshell_train.examples.play", never)
    assert examples(model, 3, 1, "train", (Options(mode="single"),), keep) == played
    assert len(keep.read_text().splitlines()) == 3


@pytest.mark.parametrize("broken", [b'{"no": "task"}', b"no text: \xff\xfe"])
def test_damaged_line_is_reported(tmp_path, broken: bytes) -> None:
    keep = tmp_path / "tasks.jsonl"
    keep.write_bytes(b'["single 0123456789abcdef",[]]\n' + broken + b"\n")
    with pytest.raises(UsageError, match=r"tasks\.jsonl, line 2 is not a played task"):
        examples(None, 1, 1, "train", (Options(mode="single"),), keep)  # pyright: ignore[reportArgumentType]
