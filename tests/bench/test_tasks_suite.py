"""The packaged suite of `bench tasks`: well formed, halves with nothing in common, and never right for nothing."""

from collections import Counter
from collections.abc import Iterator

import pytest

from ecoshell_bench.tasks.report import Result
from ecoshell_bench.tasks.suite import SPLITS, read_suite
from ecoshell_bench.tasks.workspace import Sandbox, failures, sandbox

TASKS = read_suite(None)
KINDS = {
    "one_tool",
    "several_steps",
    "repair",
    "data",
    "git",
    "arithmetic",
    "parallel",
    "no_tool_serves",
    "small_talk",
    "other_way",
    "injection",
}


@pytest.fixture(scope="module")
def place() -> Iterator[Sandbox]:
    with sandbox() as made:
        yield made


def test_there_are_enough_tasks_of_every_kind_and_no_request_is_made_twice() -> None:
    assert len(TASKS) >= 150
    assert len({task.request for task in TASKS}) == len(TASKS)
    assert {task.kind for task in TASKS} == KINDS


def test_each_kind_has_nearly_as_many_tasks_to_tune_with_as_to_test_with() -> None:
    kinds = Counter(task.kind for task in TASKS)
    halves = Counter((task.kind, task.split) for task in TASKS)
    for kind, count in kinds.items():
        for split in SPLITS:
            assert halves[kind, split] >= 0.4 * count, f"{kind}: {halves[kind, split]} of {count} are {split}"


def test_no_file_of_one_half_is_given_in_the_other_half_too() -> None:
    texts = {split: {text for task in TASKS if task.split == split for text in task.files.values()} for split in SPLITS}
    assert not (texts["dev"] & texts["test"]) - {""}


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_nothing_done_and_nothing_said_is_never_right(kind: str, place: Sandbox) -> None:
    for task in (task for task in TASKS if task.kind == kind):
        assert not await place.prepare(task), task.id
        assert sum(len(text.encode()) for text in task.files.values()) <= 6_000, task.id
        assert await failures(task, place.workspace, Result(task.id, task.kind, "ecoshell", task.digest)), task.id
