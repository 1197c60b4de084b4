"""The prompt: history, completion, newlines and the draft."""

import pytest
from textual.events import Key
from tui_play import HIT, STARTED, FakeShell, eventually

from ecoshell.agent import LimitChoice
from ecoshell.tui.app import ChatApp
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.questions import LimitQuestion


def prompt(app: ChatApp) -> Prompt:
    return app.chat.query_one(Prompt)


def offered(app: ChatApp) -> list[str]:
    output = app.chat.query_one(CompletionList)
    return [offer.label for offer in output.offers] if output.display else []


async def ready(pilot, app: ChatApp) -> None:
    await eventually(pilot, lambda: app.chat.controller)


async def test_slash_lists_commands_and_typing_filters_them(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("/")
        assert {"/budget", "/help", "/quit", "/tools"} <= set(offered(app))
        await pilot.press(*"tool")
        assert offered(app) == ["/tools"]
        await pilot.press(*["backspace"] * 5)
        assert offered(app) == []


async def test_tab_takes_the_highlighted_command(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("/", "down")
        second = offered(app)[1]
        await pilot.press("tab")
        assert prompt(app).text == f"{second} "


async def test_enter_completes_a_partial_command_and_then_sends_it(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"/to", "enter")
        assert prompt(app).text == "/tools "
        assert shell.commands == []
        await pilot.press("enter")
        await eventually(pilot, lambda: shell.commands == ["/tools"])


async def test_enter_sends_a_complete_command(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"/tools", "enter")
        await eventually(pilot, lambda: shell.commands)
    assert shell.commands == ["/tools"]


async def test_escape_closes_the_list_and_keeps_the_text(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("/", "b", "escape")
        assert offered(app) == []
        assert prompt(app).text == "/b"


async def test_control_j_inserts_a_newline(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"one", "ctrl+j", *"two", "enter")
        await eventually(pilot, lambda: shell.asked)
    assert shell.asked == ["one\ntwo"]


@pytest.mark.parametrize("key", ["ctrl+x", "ctrl+shift+k", "ctrl+k"])
async def test_last_line_can_be_deleted(make_app, key):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(key)
        assert prompt(app).text == ""
        await pilot.press(*"one", "ctrl+j", *"two", "home", key)
        assert prompt(app).text.rstrip("\n") == "one"


async def test_up_and_down_at_the_edges_browse_the_history(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        for word in ("first", "second"):
            await pilot.press(*word, "enter")
            await eventually(pilot, lambda: app.chat.controller and not app.chat.controller.busy)
        await pilot.press(*"draft", "up")
        assert prompt(app).text == "second"
        await pilot.press("up", "up")
        assert prompt(app).text == "first"
        await pilot.press("down", "down")
        assert prompt(app).text == "draft"


async def test_up_inside_a_text_moves_the_cursor(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"one", "ctrl+j", *"two", "up")
        assert prompt(app).text == "one\ntwo"
        assert prompt(app).cursor_location[0] == 0


async def test_draft_is_stored_after_a_pause_and_restored(make_app, paths):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*"half a thought")
        await eventually(pilot, paths.draft_file.exists)
        assert paths.draft_file.read_text() == "half a thought"
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        assert prompt(app).text == "half a thought"
        await pilot.press("enter")
        await eventually(pilot, lambda: not paths.draft_file.exists())


def type_in_one_packet(app: ChatApp, *keys: str) -> None:
    """Send keys to the app like the driver does when they arrive in one packet."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))


async def test_keys_of_one_packet_act_in_the_order_they_were_typed(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ready(pilot, app)
        type_in_one_packet(app, "a", "b", "backspace", "c", "left", "d")
        await eventually(pilot, lambda: len(prompt(app).text) == 3)
        assert prompt(app).text == "adc"


async def test_keys_of_one_packet_act_in_order_in_a_question(make_app):
    app = make_app(FakeShell((STARTED, HIT)))
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press("q", "enter")
        await eventually(pilot, lambda: app.chat.query(LimitQuestion))
        await pilot.press("r")
        type_in_one_packet(app, "0", "backspace", "1", "enter")
        await eventually(pilot, lambda: not app.chat.query(LimitQuestion))
        assert app.shell.decisions == [LimitChoice("raise", "1")]


async def test_text_after_enter_in_one_packet_is_not_sent(make_app):
    shell = FakeShell((STARTED, HIT))
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ready(pilot, app)
        type_in_one_packet(app, "a", "enter", "b", "enter", "c")
        await eventually(pilot, lambda: app.chat.query(LimitQuestion))
        assert shell.asked == ["a"]
        assert prompt(app).text == "c"
        assert [draft.text for draft in app.chat.query_one(PromptBar).queue] == ["b"]
