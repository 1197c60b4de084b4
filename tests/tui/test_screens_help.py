"""F1: what the keys do, read from the bindings that are there."""

from textual.pilot import Pilot
from textual.widgets import OptionList
from themed_host import Host, words
from tui_play import eventually

from ecoshell.paths import Paths
from ecoshell.tui.screens.help import HelpScreen, Key, Place, places
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.transcript.view import Transcript

COMMANDS = [("/budget [SCOPE] [AMOUNT|off]", "show or set a spending cap"), ("/help", "list the commands")]


async def over_a_picker(pilot: Pilot[int]) -> list[Place]:
    await pilot.app.push_screen(ThemePicker("dark"))
    await eventually(pilot, lambda: pilot.app.screen.highlighted)
    return places(pilot.app.screen)


def lines(pilot: Pilot[int]) -> list[str]:
    options = pilot.app.screen.query_one(OptionList)
    return [" ".join(str(options.get_option_at_index(at).prompt).split()) for at in range(options.option_count)]


async def test_the_places_of_the_focus_come_first_with_the_keys_that_work(host: Host) -> None:
    async with host.run_test() as pilot:
        found = await over_a_picker(pilot)
        here = [place for place in found if place.here]
        assert found[: len(here)] == here
        assert [place.title for place in here][:1] == ["filter"]
        screen = next(place for place in here if place.title == "this screen")
        assert screen.words == ThemePicker.HELP
        assert ("enter", "keep it") in [(key.keys.replace("⏎", "enter"), key.does) for key in screen.keys]


async def test_every_key_that_works_now_and_says_what_it_does_is_told(host: Host) -> None:
    async with host.run_test() as pilot:
        found = await over_a_picker(pilot)
        told = {key.does for place in found for key in place.keys}
        ours = [
            one.binding.description
            for one in host.screen.active_bindings.values()
            if type(one.node).__module__.startswith("ecoshell.") and one.binding.description and not one.binding.system
        ]
        assert ours
        assert {name[:1].lower() + name[1:] for name in ours} <= told


async def test_keys_that_every_field_has_are_found_by_typing(host: Host) -> None:
    async with host.run_test() as pilot:
        found = await over_a_picker(pilot)
        await host.push_screen(HelpScreen(found, COMMANDS))
        await eventually(pilot, lambda: lines(pilot))
        assert not any("delete all to the left" in line for line in lines(pilot))
        await pilot.press(*"all to the left")
        await eventually(pilot, lambda: any("delete all to the left ^u" in line for line in lines(pilot)))


async def test_the_commands_are_listed_and_one_is_given_back_to_be_typed(host: Host) -> None:
    async with host.run_test(size=(60, 24)) as pilot:
        given: list[str | None] = []
        await host.push_screen(HelpScreen([], COMMANDS), given.append)
        await eventually(pilot, lambda: "show or set a spending cap /budget" in lines(pilot))
        await pilot.press(*"spending")
        await eventually(pilot, lambda: len(lines(pilot)) == 1)
        assert "/budget [SCOPE] [AMOUNT|off]" in words(host)
        await pilot.press("enter")
        await eventually(pilot, lambda: given)
        assert given == ["/budget "]


async def test_a_key_is_not_typed_from_here(host: Host) -> None:
    async with host.run_test() as pilot:
        given: list[str | None] = []
        await host.push_screen(HelpScreen([], COMMANDS), given.append)
        await eventually(pilot, lambda: lines(pilot))
        await pilot.press(*"own selection", "enter")
        await eventually(pilot, lambda: "press the key" in words(host))
        assert given == []
        await pilot.press("f1")
        await eventually(pilot, lambda: given == [None])


async def test_copying_tells_of_the_terminals_own_selection(host: Host, paths: Paths) -> None:
    async with host.run_test(size=(60, 24)) as pilot:
        await host.push_screen(HelpScreen(places(host.screen)))
        await eventually(pilot, lambda: "the terminal's own selection shift+drag" in lines(pilot))
        assert lines(pilot)[-5].startswith("── copying ──")


async def test_the_longest_words_of_a_place_are_shown_whole_on_a_narrow_screen(host: Host) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        place = Place("transcript", Transcript.HELP, (Key("⏎", "fold"),), here=True)
        await host.push_screen(HelpScreen([place]))
        await eventually(pilot, lambda: len(lines(pilot)) > 1)
        await pilot.press("down")
        await eventually(pilot, lambda: Transcript.HELP[:20] in words(host))
        assert Transcript.HELP in words(host)
