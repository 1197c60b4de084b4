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
    """Open the picker; its result is appended to the list."""
    host, results = pilot.app, list[str | None]()
    await host.push_screen(ThemePicker(host.theme), results.append)
    await eventually(
        pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted
    )
    return results


def mine(paths: Paths, name: str, text: str) -> None:
    folder = paths.config / "themes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


async def test_highlighted_theme_is_previewed_and_escape_restores(host: Host) -> None:
    async with host.run_test() as pilot:
        results = await opened(pilot)
        assert host.theme == "dark"
        await pilot.press("down")
        await eventually(pilot, lambda: host.theme == "dusk")
        await pilot.press("down")
        await eventually(pilot, lambda: host.theme == "harbour")
        assert host.screen.styles.background.a == 0  # the chat stays visible
        await pilot.press("escape")
        await eventually(pilot, lambda: host.theme == "dark")
        assert results == [None]


async def test_enter_selects_the_filtered_theme(host: Host) -> None:
    async with host.run_test() as pilot:
        results = await opened(pilot)
        await pilot.press(*"paper")
        await eventually(pilot, lambda: host.theme == "paper")
        await pilot.press("enter")
        await eventually(pilot, lambda: results)
        assert results == ["paper"]
        assert host.theme == "paper"


async def test_theme_command_opens_the_picker_and_stores_the_choice(
    host: Host, paths: Paths
) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text("# mine\nmodel = 'x'\n")
    async with host.run_test() as pilot:
        worker = host.run_worker(THEME.run(host, ""))
        await eventually(
            pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted
        )
        await pilot.press("down", "enter")
        printed = await worker.wait()
    assert printed.text == "The theme is dusk and stored in the settings."
    assert paths.settings_file.read_text() == "# mine\nmodel = 'x'\n\n[tui]\ntheme = \"dusk\"\n"


async def test_cancelled_picker_writes_nothing(host: Host, paths: Paths) -> None:
    async with host.run_test() as pilot:
        worker = host.run_worker(THEME.run(host, ""))
        await eventually(
            pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted
        )
        await pilot.press("down", "escape")
        assert (await worker.wait()).text == ""
    assert not paths.settings_file.exists()


async def test_theme_command_accepts_a_name(host: Host, paths: Paths) -> None:
    async with host.run_test():
        assert "moss" in (await THEME.run(host, "moss")).text
        assert host.theme == "moss"
        assert tomllib.loads(paths.settings_file.read_text()) == {"tui": {"theme": "moss"}}
        assert {"dark", "moss", "mono"} <= set(THEME.choices(host))
        assert "textual-dark" not in THEME.choices(host)
        with pytest.raises(UsageError, match="Unknown theme 'mos'") as caught:
            await THEME.run(host, "mos")
        assert "moss" in caught.value.fix
        assert host.theme == "moss"


async def test_user_theme_is_reloaded_when_the_picker_opens(host: Host, paths: Paths) -> None:
    async with host.run_test() as pilot:
        mine(paths, "mine", '[colors]\nprimary = "#123456"\n')
        await THEME.run(host, "mine")
        assert host.theme_variables["link-color"] == "#123456"
        mine(paths, "mine", '[colors]\nprimary = "#654321"\n')
        await opened(pilot)
        await eventually(pilot, lambda: host.theme_variables["link-color"] == "#654321")
        assert host.theme == "mine"


async def test_broken_theme_is_reported_and_not_listed(host: Host, paths: Paths) -> None:
    mine(paths, "mine", '[colors]\nprimary = "blurple"\n')
    async with host.run_test() as pilot:
        await opened(pilot)
        assert any("is not a color" in note.message for note in host._notifications)
        await pilot.press(*"mine")
        await eventually(pilot, lambda: not host.screen.query_one(OptionList).option_count)


async def test_broken_settings_stay_unchanged_and_the_theme_applies_until_quit(
    host: Host, paths: Paths
) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text("[agent]\nmax_steps = 'many'\n")
    async with host.run_test():
        with pytest.raises(SettingsError, match="line 2") as caught:
            await THEME.run(host, "moss")
        assert caught.value.kept.startswith("Theme 'moss' applies until you quit.")
        assert host.theme == "moss"
    assert paths.settings_file.read_text() == "[agent]\nmax_steps = 'many'\n"


async def test_without_colour_the_choice_is_stored(paths: Paths, quiet: None, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    host = Host(paths)
    async with host.run_test() as pilot:
        await opened(pilot)
        await pilot.press("down")
        await eventually(pilot, lambda: "Colours are off" in words(host))
        await pilot.press("escape")
        assert "Colours are off" in (await THEME.run(host, "moss")).text
        assert host.theme == "mono"
    assert tomllib.loads(paths.settings_file.read_text()) == {"tui": {"theme": "moss"}}


async def test_overriding_variable_is_reported(host: Host, paths: Paths, monkeypatch) -> None:
    monkeypatch.setenv("ECOSHELL_TUI_THEME", "dusk")
    async with host.run_test():
        assert "ECOSHELL_TUI_THEME overrides the settings" in (await THEME.run(host, "moss")).text
