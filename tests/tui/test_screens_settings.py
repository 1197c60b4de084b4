"""The settings screen, driven by keys."""

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList
from themed_host import Host, words
from tui_play import eventually

from ecoshell.errors import ModelMissing
from ecoshell.paths import Paths
from ecoshell.settings.schema import Settings
from ecoshell.tui.screens.picker import AskPane, ChoicePicker
from ecoshell.tui.screens.pickers import ThemePicker
from ecoshell.tui.screens.settings import LiveSettings, SettingsScreen

OWN = '# mine\nmodel = "embedded"\n\n[agent]\nmax_steps = 5 # enough\n'


@pytest.fixture
def written(paths: Paths) -> Paths:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text(OWN)
    return paths


def says(pilot: Pilot[int], text: str) -> bool:
    return text in words(pilot.app)


async def opened(
    pilot: Pilot[int], paths: Paths, what_runs: LiveSettings | None = None
) -> SettingsScreen:
    screen = SettingsScreen(paths, what_runs)
    await pilot.app.push_screen(screen)
    await eventually(pilot, lambda: screen.highlighted)
    return screen


def highlighted(host: Host) -> object:
    row = host.screen.highlighted
    return row.item if row else None


async def find(pilot: Pilot[int], key: str) -> None:
    """Highlight the setting of this key, even if another matching one stays highlighted."""

    def is_found() -> bool:
        return getattr(pilot.app.screen.highlighted, "key", "") == key

    await pilot.press("ctrl+u", *key)
    for _ in range(60):
        if is_found():
            break
        await pilot.press("up")
    await eventually(pilot, is_found)


async def test_settings_are_grouped_by_section(host: Host, written: Paths) -> None:
    async with host.run_test(size=(120, 36)) as pilot:
        screen = await opened(pilot, written)
        options = screen.query_one(OptionList)
        output_value = [
            str(options.get_option_at_index(at).prompt) for at in range(options.option_count)
        ]
        heads = [line for line in output_value if line.startswith("──")]
        assert [head.strip("─ ") for head in heads][:5] == [
            "budget",
            "agent",
            "plan",
            "graph",
            "experience",
        ]
        (steps,) = (line for line in output_value if line.startswith("agent.max_steps"))
        assert steps.split() == ["agent.max_steps", "5", "config.toml", "line", "5"]
        (cap,) = (line for line in output_value if line.startswith("budget.session"))
        assert cap.split() == ["budget.session", "–"]
        await find(pilot, "agent.max_steps")
        assert says(pilot, "Steps of a turn before it must answer")
        assert says(pilot, "default auto · config.toml line 5 · applies after a restart")


async def test_text_setting_is_edited_in_place_keeping_comments(host: Host, written: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        await find(pilot, "agent.max_steps")
        await pilot.press("enter")
        await eventually(
            pilot, lambda: isinstance(host.focused, Input) and host.focused.value == "5"
        )
        await pilot.press("backspace", *"12", "enter")
        await eventually(pilot, lambda: says(pilot, "√ written"))
        assert written.settings_file.read_text() == OWN.replace("= 5", "= 12")


async def test_invalid_value_is_reported_while_typing_and_not_written(
    host: Host, written: Paths
) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        await find(pilot, "agent.max_steps")
        await pilot.press("enter", "backspace", *"0x")
        await eventually(pilot, lambda: says(pilot, '× agent.max_steps must be "auto"'))
        await pilot.press("backspace")
        await eventually(pilot, lambda: says(pilot, '× agent.max_steps must be "auto"'))
        await pilot.press("enter")
        await eventually(
            pilot, lambda: isinstance(host.focused, Input) and host.focused.value == "0"
        )
        assert says(pilot, '× agent.max_steps must be "auto"')
        await pilot.press("escape")
        await eventually(pilot, lambda: not says(pilot, "×"))
        assert written.settings_file.read_text() == OWN


async def test_switch_setting_toggles(host: Host, written: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        await find(pilot, "tools.allow_private_addresses")
        await pilot.press("enter")
        await eventually(
            pilot, lambda: "allow_private_addresses = true" in written.settings_file.read_text()
        )
        await eventually(pilot, lambda: getattr(highlighted(host), "value", "") == "true")
        await pilot.press("enter")
        await eventually(
            pilot, lambda: "allow_private_addresses = true" not in written.settings_file.read_text()
        )
        assert "allow_private_addresses = false" in written.settings_file.read_text()


async def test_choice_setting_opens_a_picker(host: Host, written: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, written)
        await find(pilot, "agent.registration")
        await pilot.press("enter")
        await eventually(
            pilot,
            lambda: isinstance(host.screen, ChoicePicker) and highlighted(host) == "auto",
        )
        await pilot.press("down", "enter")
        await eventually(pilot, lambda: host.screen is screen and says(pilot, "√ written"))
        assert 'registration = "names"' in written.settings_file.read_text()


async def test_plugin_choices_are_listed(host: Host, written: Paths) -> None:
    choices = {("agent", "strategy"): ("react", "parrot"), ("plan", "judge"): ("rules", "strict")}
    async with host.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, written, LiveSettings(choices=choices))
        for key, line in (
            ("agent.strategy", 'strategy = "parrot"'),
            ("plan.judge", 'judge = "strict"'),
        ):
            await find(pilot, key)
            await pilot.press("enter")
            await eventually(
                pilot, lambda: isinstance(host.screen, ChoicePicker) and host.screen.highlighted
            )
            await pilot.press("down", "enter")
            await eventually(pilot, lambda: host.screen is screen and says(pilot, "√ written"))
            assert line in written.settings_file.read_text()


async def test_theme_is_previewed(host: Host, written: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, written)
        await find(pilot, "tui.theme")
        await pilot.press("enter")
        await eventually(
            pilot, lambda: isinstance(host.screen, ThemePicker) and host.screen.highlighted
        )
        await pilot.press("down", "enter")
        await eventually(
            pilot, lambda: host.screen is screen and says(pilot, "it applies immediately")
        )
        assert host.theme == "dusk"
        await pilot.press("delete")
        await eventually(pilot, lambda: host.theme == "dark")
        assert "dusk" not in written.settings_file.read_text()


async def test_delete_restores_the_default(host: Host, written: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        await find(pilot, "agent.max_steps")
        await pilot.press("delete")
        await eventually(pilot, lambda: says(pilot, "not set"))
        assert "max_steps" not in written.settings_file.read_text()


async def test_environment_settings_are_shown_but_not_editable(
    host: Host, written: Paths, monkeypatch
) -> None:
    monkeypatch.setenv("ECOSHELL_AGENT_MAX_STEPS", "9")
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        await find(pilot, "agent.max_steps")
        assert getattr(highlighted(host), "value", "") == "9"
        assert says(pilot, "ECOSHELL_AGENT_MAX_STEPS · overridden by the environment")
        await pilot.press("enter")
        await eventually(pilot, lambda: says(pilot, "ECOSHELL_AGENT_MAX_STEPS overrides the file"))
        await pilot.press("delete")
        assert written.settings_file.read_text() == OWN


async def test_model_can_be_added_with_a_price(host: Host, written: Paths) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        await pilot.press("f6", *"openai/x", "enter")
        await eventually(pilot, lambda: not host.screen.query_one(AskPane).has_class("-on"))
        await find(pilot, 'models."openai/x".price')
        await pilot.press("enter", *"0.20 0.80", "enter")
        await eventually(pilot, lambda: 'output = "0.80"' in written.settings_file.read_text())
        assert (
            '[models."openai/x".price]\ninput = "0.20"\noutput = "0.80"\n'
            in written.settings_file.read_text()
        )


async def test_running_shell_applies_what_it_can(host: Host, written: Paths) -> None:
    applied: list[tuple[str, ...]] = []

    async def apply(settings: Settings, key: tuple[str, ...]) -> bool:
        applied.append(key)
        if settings.model == "nowhere":
            raise ModelMissing("Unknown model 'nowhere'.")
        return settings.agent.max_steps < 10

    keys = frozenset({("agent", "max_steps"), ("model",)})
    async with host.run_test(size=(120, 36)) as pilot:
        await opened(pilot, written, LiveSettings(keys, apply))
        await find(pilot, "agent.max_steps")
        assert says(pilot, "applies immediately")
        await pilot.press("enter", "backspace", "7", "enter")
        await eventually(pilot, lambda: says(pilot, "√ written; it applies immediately"))
        await pilot.press("enter", "backspace", *"70", "enter")
        await eventually(pilot, lambda: says(pilot, "√ written; it applies after a restart"))
        await find(pilot, "model")
        await pilot.press("enter", "ctrl+u", *"nowhere", "enter")
        await eventually(pilot, lambda: says(pilot, "was not applied: Unknown model 'nowhere'."))
        await find(pilot, "local.context")
        assert says(pilot, "applies after a restart")
    assert applied == [("agent", "max_steps"), ("agent", "max_steps"), ("model",)]


async def test_invalid_settings_file_shows_its_errors(host: Host, written: Paths) -> None:
    written.settings_file.write_text("[agent]\nmax_step = 5\n")
    async with host.run_test(size=(80, 24)) as pilot:
        await opened(pilot, written)
        assert says(pilot, "line 2: unknown key agent.max_step")
        assert says(pilot, "did you mean agent.max_steps?")
        await pilot.press("enter", "delete")
        assert written.settings_file.read_text() == "[agent]\nmax_step = 5\n"
