"""The packaged suite of `bench tasks`: balanced halves without common files, and checks that can fail."""

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
def box() -> Iterator[Sandbox]:
    with sandbox() as box:
        yield box


def test_suite_has_enough_tasks_of_every_kind_and_no_repeated_request() -> None:
    assert len(TASKS) >= 150
    assert len({task.request for task in TASKS}) == len(TASKS)
    assert {task.kind for task in TASKS} == KINDS


def test_kinds_are_split_nearly_evenly_into_dev_and_test() -> None:
    kinds = Counter(task.kind for task in TASKS)
    halves = Counter((task.kind, task.split) for task in TASKS)
    for kind, count in kinds.items():
        for split in SPLITS:
            assert halves[kind, split] >= 0.4 * count, (
                f"{kind}: {halves[kind, split]} of {count} are {split}"
            )


def test_halves_share_no_file() -> None:
    texts = {
        split: {text for task in TASKS if task.split == split for text in task.files.values()}
        for split in SPLITS
    }
    assert not (texts["dev"] & texts["test"]) - {""}


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_untouched_workspace_and_empty_answer_fail_every_check(
    kind: str, box: Sandbox
) -> None:
    for task in (task for task in TASKS if task.kind == kind):
        assert not await box.prepare(task), task.id
        assert sum(len(text.encode()) for text in task.files.values()) <= 6_000, task.id
        assert await failures(
            task, box.workspace, Result(task.id, task.kind, "ecoshell", task.digest)
        ), task.id
