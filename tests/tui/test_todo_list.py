"""The task list above the prompt."""

from tui_play import COUNTING, FINISHED, FakeShell, eventually

from ecoshell.events import TodoChanged, TodoItem, TurnStarted
from ecoshell.tui.prompt.bar import PromptBar

ITEMS = (
    TodoItem("read the code", "done"),
    TodoItem("write the test", "in_progress"),
    TodoItem("run it"),
)
STARTED = next(event for event in COUNTING if isinstance(event, TurnStarted))


def shown(app):
    todo = app.chat.query_one(PromptBar).todo
    return [line.rstrip() for line in str(todo.content).splitlines()] if todo.display else []


async def test_list_is_shown_folded_and_gone_when_done_and_a_new_question_is_asked(make_app):
    done = tuple(TodoItem(item.text, "done") for item in ITEMS)
    shell = FakeShell(events=(STARTED, TodoChanged(ITEMS), FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 36)) as pilot:
        await eventually(pilot, app.opened.is_set)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: shown(app))
        assert shown(app) == [
            "▼ tasks: 1 of 3 done · write the test · alt+t folds",
            "  √ read the code",
            "  ► write the test",
            "  ○ run it",
        ]
        await pilot.press("alt+t")
        assert shown(app) == ["► tasks: 1 of 3 done · write the test · alt+t opens"]
        shell.events = (STARTED, TodoChanged(done), FINISHED)
        await pilot.press(*"on", "enter")
        await eventually(pilot, lambda: "3 of 3" in "".join(shown(app)))
        shell.events = (STARTED, FINISHED)
        await pilot.press(*"new", "enter")
        await eventually(pilot, lambda: not shown(app))


async def test_list_of_a_resumed_session_starts_folded_on_a_small_screen(make_app):
    items = tuple(TodoItem(f"item {number}") for number in range(12))
    app = make_app(FakeShell(earlier=(STARTED, TodoChanged(items), FINISHED)))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: shown(app))
        assert shown(app) == ["► tasks: 0 of 12 done · alt+t opens"]
        await pilot.press("alt+t")
        assert shown(app)[1:] == [*(f"  ○ item {number}" for number in range(8)), "  … 4 more"]
