"""The help screen (F1), generated from the active bindings."""

from textual.pilot import Pilot
from textual.widgets import OptionList
from themed_host import Host, words
from tui_play import eventually

from ecoshell.paths import Paths
from ecoshell.tui.screens.help import HelpScreen, Key, KeyGroup, key_groups
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.transcript.view import Transcript

COMMANDS = [
    ("/budget [SCOPE] [AMOUNT|off]", "show or set a spending cap"),
    ("/help", "list the commands"),
]


async def over_a_picker(pilot: Pilot[int]) -> list[KeyGroup]:
    await pilot.app.push_screen(ThemePicker("dark"))
    await eventually(pilot, lambda: pilot.app.screen.highlighted)
    return key_groups(pilot.app.screen)


def lines(pilot: Pilot[int]) -> list[str]:
    options = pilot.app.screen.query_one(OptionList)
    return [
        " ".join(str(options.get_option_at_index(at).prompt).split())
        for at in range(options.option_count)
    ]


async def test_focused_groups_come_first_with_active_keys(host: Host) -> None:
    async with host.run_test() as pilot:
        matches = await over_a_picker(pilot)
        here = [place for place in matches if place.is_active]
        assert matches[: len(here)] == here
        assert [place.title for place in here][:1] == ["filter"]
        screen = next(place for place in here if place.title == "this screen")
        assert screen.help == ThemePicker.HELP
        assert ("enter", "keep it") in [
            (key.keys.replace("⏎", "enter"), key.does) for key in screen.keys
        ]


async def test_every_active_described_key_is_listed(host: Host) -> None:
    async with host.run_test() as pilot:
        matches = await over_a_picker(pilot)
        text_shown = {key.does for place in matches for key in place.keys}
        ours = [
            item.binding.description
            for item in host.screen.active_bindings.values()
            if type(item.node).__module__.startswith("ecoshell.")
            and item.binding.description
            and not item.binding.system
        ]
        assert ours
        assert {name[:1].lower() + name[1:] for name in ours} <= text_shown


async def test_generic_input_keys_are_found_by_typing(host: Host) -> None:
    async with host.run_test() as pilot:
        matches = await over_a_picker(pilot)
        await host.push_screen(HelpScreen(matches, COMMANDS))
        await eventually(pilot, lambda: lines(pilot))
        assert not any("delete all to the left" in line for line in lines(pilot))
        await pilot.press(*"all to the left")
        await eventually(
            pilot, lambda: any("delete all to the left ^u" in line for line in lines(pilot))
        )


async def test_selected_command_is_returned_for_typing(host: Host) -> None:
    async with host.run_test(size=(60, 24)) as pilot:
        results: list[str | None] = []
        await host.push_screen(HelpScreen([], COMMANDS), results.append)
        await eventually(pilot, lambda: "show or set a spending cap /budget" in lines(pilot))
        await pilot.press(*"spending")
        await eventually(pilot, lambda: len(lines(pilot)) == 1)
        assert "/budget [SCOPE] [AMOUNT|off]" in words(host)
        await pilot.press("enter")
        await eventually(pilot, lambda: results)
        assert results == ["/budget "]


async def test_keys_cannot_be_selected(host: Host) -> None:
    async with host.run_test() as pilot:
        results: list[str | None] = []
        await host.push_screen(HelpScreen([], COMMANDS), results.append)
        await eventually(pilot, lambda: lines(pilot))
        await pilot.press(*"own selection", "enter")
        await eventually(pilot, lambda: "press the key" in words(host))
        assert results == []
        await pilot.press("f1")
        await eventually(pilot, lambda: results == [None])


async def test_copying_mentions_the_terminals_selection(host: Host, paths: Paths) -> None:
    async with host.run_test(size=(60, 24)) as pilot:
        await host.push_screen(HelpScreen(key_groups(host.screen)))
        await eventually(pilot, lambda: "the terminal's own selection shift+drag" in lines(pilot))
        assert lines(pilot)[-5].startswith("── copying ──")


async def test_longest_help_text_fits_a_narrow_screen(host: Host) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        place = KeyGroup("transcript", Transcript.HELP, (Key("⏎", "fold"),), is_active=True)
        await host.push_screen(HelpScreen([place]))
        await eventually(pilot, lambda: len(lines(pilot)) > 1)
        await pilot.press("down")
        await eventually(pilot, lambda: Transcript.HELP[:20] in words(host))
        assert Transcript.HELP in words(host)
