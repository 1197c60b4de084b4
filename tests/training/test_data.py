"""What models are trained on: tasks from a grammar, played by the shell; none of it needs PyTorch."""

import asyncio
import csv
import io
import json
import random
import re
from collections import Counter
from importlib.util import find_spec

import pytest

from ecoshell.errors import UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local import LocalModel
from ecoshell.options import Options
from ecoshell_bench.tasks.suite import read_suite
from ecoshell_train import data, worlds
from ecoshell_train.data import examples, generate, joined, kinds, play, ways

local = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the extra `local` is not installed")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel(embedded_path())


def text(model: LocalModel, tokens) -> str:
    vocabulary = model._runtime.vocabulary()
    return b"".join(vocabulary.piece(token, special=True) for token in tokens).decode()


def made(kind: str, split: worlds.Split, seed: int = 1):
    return data.make(kind, worlds.World(random.Random(seed), split))


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


def test_a_name_is_found_where_all_words_for_it_are_taken() -> None:
    taken = {f"{stem}.txt": "" for stem in worlds.World(random.Random(1), "held").words("stems")}
    assert worlds.World(random.Random(1), "held", taken).name("txt") not in taken


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
            clashes = any(map(pattern.fullmatch, said))
            assert not clashes, way  # no request is shown
    talked = {re.sub(r"\W+", " ", one).strip().lower() for one in data.frames()["talk"]}
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
    [together] = joined([first, last])
    assert [text(model, (*last.prompt, *last.reply)[begin:end]) for begin, end in together.learned] == [
        said,
        text(model, last.reply),
    ]


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


def shown(kind: str, model: LocalModel, seed: int = 1, split: worlds.Split = "train"):
    """A task that was played, what its calls returned, the answer, and what is learned of it."""
    task, seen = made(kind, split, seed), []

    def answer(returned):
        seen[:] = returned
        return task.answer(returned)

    found = asyncio.run(play(data.replace(task, answer=answer), model))
    assert len(found) == len(task.steps) + 1, task.request
    return task, seen, task.answer(seen), found


@local
@pytest.mark.parametrize("kind", worlds.MAKERS)
def test_a_world_of_its_own_is_served_and_fits_into_what_is_learned(kind: str, model) -> None:
    for split in ("train", "held"):
        *_, found = shown(kind, model, 7, split)
        assert max(len(one.prompt) + len(one.reply) for one in found) < 1050 + 1024


def rows_of(task: data.Task) -> list[dict[str, str]]:
    (file,) = (step.call.arguments["path"] for step in task.steps if step.call.name == "read_file")
    if file.endswith("csv"):
        comma = ";" if ";" in task.files[file] else ","
        return list(csv.DictReader(io.StringIO(task.files[file]), delimiter=comma))
    lines = task.files[file].splitlines() if file.endswith("jsonl") else []
    held = [*map(json.loads, lines)] or json.loads(task.files[file])
    rows = held if isinstance(held, list) else next(iter(held.values()))
    return [{key: str(value) for key, value in row.items()} for row in rows]


@local
@pytest.mark.parametrize("seed", range(4))
def test_answers_about_tables_are_true(seed: int, model) -> None:
    for kind in ("sum_all", "order", "distinct", "group", "common", "keep_sum"):
        task, seen, *_ = shown(kind, model, seed)
        rows = rows_of(task)
        key, where, column = rows[0]
        numbers = {row[key]: float(row[column]) if "." in row[column] else int(row[column]) for row in rows}
        groups = sorted({row[where] for row in rows})
        by_sum = {one: sum(numbers[row[key]] for row in rows if row[where] == one) for one in groups}
        by_count = {one: sum(row[where] == one for row in rows) for one in groups}
        expected = {
            "sum_all": str(round(sum(numbers.values()), 2)),
            "keep_sum": str(round(sum(numbers.values()), 2)),
            "order": ", ".join(sorted(numbers, key=numbers.__getitem__, reverse=True)[:3]),
            "distinct": ", ".join(groups),
            "group": max(groups, key=by_sum.__getitem__),
            "common": max(groups, key=by_count.__getitem__),
        }
        assert seen[1].strip() == expected[kind]
        assert list(by_sum.values()).count(max(by_sum.values())) == 1 or kind != "group"
        assert list(by_count.values()).count(max(by_count.values())) == 1 or kind != "common"


@local
@pytest.mark.parametrize("seed", range(3))
def test_answers_about_logs_are_true(seed: int, model) -> None:
    for kind in ("log_count", "log_end", "log_hour", "log_user", "log_slow"):
        task, seen, *_ = shown(kind, model, seed)
        text = next(text for name, text in task.files.items() if name.endswith(".log") and "user=" in text)
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
        assert seen[-1].strip() in expected[kind]


@local
@pytest.mark.parametrize("kind", ["repair", "crash"])
def test_every_fault_is_seen_before_its_repair_and_gone_after_it(kind: str, model) -> None:
    for seed in range(12):
        _, seen, *_ = shown(kind, model, seed)
        assert "Error" in seen[0]
        assert "[exit status 1]" in seen[0]
        assert "Error" not in seen[-1]
        assert "[exit status" not in seen[-1]


@local
def test_another_way_follows_a_call_that_failed(model) -> None:
    for seed in range(4):
        for kind in ("wrong_name", "wrong_value", "wrong_count"):
            task, seen, answer, _ = shown(kind, model, seed)
            assert f"Nearest: {task.steps[1].call.arguments['path']}" in seen[0]
            assert task.steps[1].call.arguments["path"] in answer
    assert "Permission denied" in shown("not_executable", model)[1][0]


@local
def test_a_call_that_the_person_did_not_want_is_said_and_not_made_again(model) -> None:
    refused = next(task for task in generate(400, 3) if task.refused and len(task.steps) == 1)
    *_, last = asyncio.run(play(refused, model))
    (step,) = refused.steps
    assert f"{step.call.name} was not run" in text(model, last.prompt)
    assert text(model, last.reply) == f"I have not done it: {step.call.name} was not approved.<|im_end|>"


def test_whether_a_workspace_is_a_repository_says_nothing_about_what_is_asked() -> None:
    """Nor does what lies in it: else git, or a program, is what a model calls wherever there is one."""
    asked = [task for task in generate(400, 4) if task.kind in ("now", "talk", "read", "times", "unserved", "search")]
    repositories = [task for task in asked if any(program[0] == "git" for program in task.setup)]
    assert 0.25 < len(repositories) / len(asked) < 0.55
    assert any(name.endswith(".py") for task in asked for name in task.files)
    assert any("/" in name for task in asked for name in task.files)


@local
def test_a_plan_is_learned_with_the_calls_of_its_nodes(model) -> None:
    drafted = [task for task in generate(600, 6) if task.drafted]  # most with branches
    two = next(task for task in drafted if task.kind == "two_words")
    plan, *_, last = [text(model, one.reply) for one in asyncio.run(play(two, model))]
    assert plan == '[[1, "count_text", ["<task>"]], [2, "count_text", ["<task>"]]]<|im_end|>'
    assert "words, " in last
    chain = next(task for task in drafted if task.kind in ("sum_if", "names_if", "top", "cell", "group", "count_over"))
    plan, *calls, _ = [text(model, one.reply) for one in asyncio.run(play(chain, model))]
    assert plan == '[[1, "read_file", ["<task>"]], [2, "run_python", [1]]]<|im_end|>'
    assert '"code"' in calls[-1]


@local
def test_an_order_in_a_file_is_not_followed(model) -> None:
    for kind in ("injected", "injected_text"):
        task, seen, answer, _ = shown(kind, model)
        assert any(order in seen[0] for order in worlds.frames()["words"]["injections"])
        assert [step.call.name for step in task.steps] == ["read_file"]
        assert "not follow" in answer


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (13, "thirteen"), (40, "forty"), (85, "eighty-five"), (320, "three hundred and twenty")],
)
def test_numbers_are_said_in_words(number: int, words: str) -> None:
    assert worlds.spelled(number) == words


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


@pytest.mark.parametrize("broken", [b'{"no": "task"}', b"no text: \xff\xfe"])
def test_a_broken_line_is_named(tmp_path, broken: bytes) -> None:
    keep = tmp_path / "tasks.jsonl"
    keep.write_bytes(b'["single 0123456789abcdef",[]]\n' + broken + b"\n")
    with pytest.raises(UsageError, match=r"tasks\.jsonl, line 2 is no played task"):
        examples(None, 1, 1, "train", (Options(mode="single"),), keep)  # pyright: ignore[reportArgumentType]
