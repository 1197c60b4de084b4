from dataclasses import replace

from tui_play import STATUS, FakeShell, eventually

from ecoshell.tui.side.bars import TitleBar


async def test_key_selects_the_next_effort_shown_with_the_model(make_app):
    shell = FakeShell(state=replace(STATUS, effort="high"))
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        title = app.chat.query_one(TitleBar)
        await eventually(pilot, lambda: "embedded (high)" in title.render().plain)
        await pilot.press("alt+e")
        await eventually(pilot, lambda: shell.commands)
        assert shell.commands == ["/effort max"]


async def test_default_effort_is_not_shown(make_app):
    app = make_app(FakeShell())
    async with app.run_test(size=(120, 36)) as pilot:
        title = app.chat.query_one(TitleBar)
        await eventually(pilot, lambda: "embedded" in title.render().plain)
        assert "(auto)" not in title.render().plain
