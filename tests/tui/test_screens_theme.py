"""The theme picker and `/theme`."""

import tomllib

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList
from themed_host import Host, words
from tui_play import eventually

from ecoshell.errors import SettingsError, UsageError
from ecoshell.paths import Paths
from ecoshell.tui.commands import THEME
from ecoshell.tui.screens.pickers import ThemePicker


async def opened(pilot: Pilot[int]) -> list[str | None]:
    """Open the picker; what it gives back will stand in the list."""
    host, given = pilot.app, list[str | None]()
    await host.push_screen(ThemePicker(host.theme), given.append)
    await eventually(pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted)
    return given


def mine(paths: Paths, name: str, text: str) -> None:
    folder = paths.config / "themes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


async def test_each_theme_is_worn_while_it_is_highlighted_and_esc_puts_back_the_one_before(host: Host) -> None:
    async with host.run_test() as pilot:
        given = await opened(pilot)
        assert host.theme == "dark"
        await pilot.press("down")
        await eventually(pilot, lambda: host.theme == "dusk")
        await pilot.press("down")
        await eventually(pilot, lambda: host.theme == "harbour")
        assert host.screen.styles.background.a == 0  # the chat stays in sight
        await pilot.press("escape")
        await eventually(pilot, lambda: host.theme == "dark")
        assert given == [None]


async def test_enter_keeps_what_the_typed_letters_find(host: Host) -> None:
    async with host.run_test() as pilot:
        given = await opened(pilot)
        await pilot.press(*"paper")
        await eventually(pilot, lambda: host.theme == "paper")
        await pilot.press("enter")
        await eventually(pilot, lambda: given)
        assert given == ["paper"]
        assert host.theme == "paper"


async def test_the_command_opens_the_picker_and_writes_what_was_picked(host: Host, paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text("# mine\nmodel = 'x'\n")
    async with host.run_test() as pilot:
        worker = host.run_worker(THEME.run(host, ""))
        await eventually(pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted)
        await pilot.press("down", "enter")
        printed = await worker.wait()
    assert printed.text == "The theme is dusk, from now on."
    assert paths.settings_file.read_text() == "# mine\nmodel = 'x'\n\n[tui]\ntheme = \"dusk\"\n"


async def test_leaving_the_picker_writes_nothing(host: Host, paths: Paths) -> None:
    async with host.run_test() as pilot:
        worker = host.run_worker(THEME.run(host, ""))
        await eventually(pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted)
        await pilot.press("down", "escape")
        assert (await worker.wait()).text == ""
    assert not paths.settings_file.exists()


async def test_a_theme_can_be_named_at_once(host: Host, paths: Paths) -> None:
    async with host.run_test():
        assert "moss" in (await THEME.run(host, "moss")).text
        assert host.theme == "moss"
        assert tomllib.loads(paths.settings_file.read_text()) == {"tui": {"theme": "moss"}}
        assert {"dark", "moss", "mono"} <= set(THEME.choices(host))
        assert "textual-dark" not in THEME.choices(host)
        with pytest.raises(UsageError, match="There is no theme 'mos'") as caught:
            await THEME.run(host, "mos")
        assert "moss" in caught.value.fix
        assert host.theme == "moss"


async def test_a_theme_of_ones_own_is_read_when_the_picker_opens_and_put_on_when_it_has_changed(
    host: Host, paths: Paths
) -> None:
    async with host.run_test() as pilot:
        mine(paths, "mine", '[colors]\nprimary = "#123456"\n')
        await THEME.run(host, "mine")
        assert host.theme_variables["link-color"] == "#123456"
        mine(paths, "mine", '[colors]\nprimary = "#654321"\n')
        await opened(pilot)
        await eventually(pilot, lambda: host.theme_variables["link-color"] == "#654321")
        assert host.theme == "mine"


async def test_a_broken_file_is_listed_with_what_is_wrong_and_cannot_be_picked(host: Host, paths: Paths) -> None:
    mine(paths, "mine", '[colors]\nprimary = "blurple"\n')
    async with host.run_test() as pilot:
        given = await opened(pilot)
        await pilot.press(*"mine", "enter")
        await eventually(pilot, lambda: "is not a color" in words(host))
        assert given == []
        assert host.screen.query_one(OptionList).option_count == 1
        assert host.theme == "dark"


async def test_broken_settings_are_left_alone_and_the_theme_holds_for_this_time(host: Host, paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text("[agent]\nmax_steps = 'many'\n")
    async with host.run_test():
        with pytest.raises(SettingsError, match="line 2") as caught:
            await THEME.run(host, "moss")
        assert caught.value.kept.startswith("moss is worn until you leave.")
        assert host.theme == "moss"
    assert paths.settings_file.read_text() == "[agent]\nmax_steps = 'many'\n"


async def test_without_colour_a_choice_is_kept_for_later(paths: Paths, quiet: None, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    host = Host(paths)
    async with host.run_test() as pilot:
        await opened(pilot)
        await pilot.press("down")
        await eventually(pilot, lambda: "No colour is sent" in words(host))
        await pilot.press("escape")
        assert "No colour is sent" in (await THEME.run(host, "moss")).text
        assert host.theme == "mono"
    assert tomllib.loads(paths.settings_file.read_text()) == {"tui": {"theme": "moss"}}


async def test_a_variable_that_wins_is_told(host: Host, paths: Paths, monkeypatch) -> None:
    monkeypatch.setenv("ECOSHELL_TUI_THEME", "dusk")
    async with host.run_test():
        assert "ECOSHELL_TUI_THEME is set and wins" in (await THEME.run(host, "moss")).text
