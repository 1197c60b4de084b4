"""The task list that the agent keeps survives summaries and resumption, and ends with the work."""

import io

import pytest
from agent_play import finish, is_replayed, of, say, turn

from ecoshell.cli.event_lines import EventLines
from ecoshell.cli.printer import Printer
from ecoshell.events import CallFinished, TodoChanged, TodoItem, from_json, to_json
from ecoshell.tools.builtin.todo import TodoTool


def todo(**states):
    items = [{"text": text.replace("_", " "), "state": state} for text, state in states.items()]
    return say("", "todo", items=items)


STARTED = todo(read_the_code="done", write_the_test="in_progress", run_it="pending")
ITEMS = (
    TodoItem("read the code", "done"),
    TodoItem("write the test", "in_progress"),
    TodoItem("run it"),
)
SUMMARY = say("The user wants a test.", usage={"input": 900, "output": 20})
LONG = "a long answer, " * 200


async def test_the_list_is_registered_by_name_reported_and_resumed(play):
    async with play([STARTED, finish("Half way."), finish("Still here.")]) as shell:
        events = await turn(shell)
        assert of(events, TodoChanged) == [TodoChanged(ITEMS)]
        assert from_json(to_json(TodoChanged(ITEMS))) == TodoChanged(ITEMS)
        assert (
            of(events, CallFinished)[0].observation == "The task list has 3 items, 1 of them done."
        )
        assert is_replayed(shell)
        await shell.open(shell.session)
        assert shell.conversation.memory.shown.todo == ITEMS
        printed = await shell.command("/todo")
        assert printed.text.splitlines() == [
            "tasks: 1 of 3 done · write the test",
            "[x] read the code",
            "[>] write the test",
            "[ ] run it",
        ]


async def test_the_result_counts_a_single_item(play):
    async with play([todo(read_the_code="pending"), finish("Done.")]) as shell:
        finished = of(await turn(shell), CallFinished)[0]
        assert finished.observation == "The task list has 1 item, 0 of them done."


async def test_the_model_reads_the_list_again_after_a_summary(play):
    async with play([STARTED, finish(LONG), SUMMARY, finish("next")]) as shell:
        await turn(shell)
        await shell.command("/compact")
        await turn(shell, "And now?")
        assert (
            "The task list now:\n[x] read the code\n[>] write the test\n[ ] run it"
            in shell.requests[-1].messages[1].text
        )
        assert shell.conversation.memory.shown.todo == ITEMS
        assert is_replayed(shell)


async def test_a_finished_list_ends_with_the_next_question_and_returns_with_undo(play):
    lines = [todo(a="done", b="done"), finish("Done."), finish("Else.")]
    async with play(lines) as shell:
        await turn(shell)
        assert len(shell.conversation.memory.shown.todo) == 2
        await turn(shell, "Something else?")
        assert shell.conversation.memory.shown.todo == ()
        await shell.command("/undo")
        assert len(shell.conversation.memory.shown.todo) == 2
        await shell.command("/undo")
        assert shell.conversation.memory.shown.todo == ()


@pytest.mark.parametrize(
    "items",
    [
        "a",
        None,
        [{"text": "a", "state": "later"}],
        [{"text": " ", "state": "done"}],
        ["a"],
        [{"text": "a", "state": "done"}] * 51,
    ],
)
async def test_an_invalid_list_is_a_mistake_that_the_model_can_read(items):
    observation = await TodoTool().run({"items": items})
    assert not observation.ok
    assert "`items` must be a list of {text, state}" in observation.text


def test_lines_repeat_only_what_changed():
    output = io.StringIO()
    lines = EventLines(Printer(output))
    lines.show(TodoChanged(ITEMS))
    lines.show(TodoChanged((*ITEMS[:1], TodoItem("write the test", "done"), ITEMS[2])))
    assert output.getvalue().splitlines() == [
        "| tasks: 1 of 3 done | write the test",
        "  [x] read the code",
        "  [>] write the test",
        "  [ ] run it",
        "| tasks: 2 of 3 done",
        "  [x] write the test",
    ]
