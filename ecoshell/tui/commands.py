"""Slash commands of the screen, and screens that replace shell commands without arguments.

The screens are imported only when one is opened, so that the first frame does not wait for them.
"""

import asyncio
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecoshell.agent.command_table import Command, CommandTable, Printed
from ecoshell.errors import SettingsError, UsageError
from ecoshell.tui.themes import VARIABLE as THEME_VARIABLE
from ecoshell.tui.themes import FileTheme

if TYPE_CHECKING:
    from textual.screen import Screen

    from ecoshell.agent.shell import Shell
    from ecoshell.tui.app import ChatApp
    from ecoshell.tui.themes import ThemedApp


PICKER_COMMANDS = frozenset({"/model", "/sessions", "/resume", "/context"})


def screen_for(line: str, shell: "Shell") -> "Screen[str | None] | None":
    """The screen that selects the command line to run instead of this one; None to run it directly."""
    name = line.strip().lower()
    if name not in PICKER_COMMANDS:
        return None
    if name == "/context":
        from ecoshell.tui.screens.context import ContextScreen

        return ContextScreen(shell)
    from ecoshell.tui.screens.pickers import ModelPicker, SessionPicker

    return ModelPicker(shell) if name == "/model" else SessionPicker(shell)


async def _theme(app: "ThemedApp[int]", argument: str) -> Printed:
    """Apply a theme and store it in the settings; without a name, open the picker."""
    from ecoshell.tui.screens.pickers import NO_COLOR, ThemePicker

    name = argument or await app.push_screen_wait(ThemePicker(app.theme))
    if not name:
        return Printed("")
    themes = await app.reload_themes()
    names = sorted(theme.name for theme in themes.all)
    if name not in names:
        raise UsageError(f"Unknown theme {name!r}.", fix=f"Available: {', '.join(names)}.")
    app.apply_theme(name)
    file = app.paths.settings_file
    try:
        edit: Any = await asyncio.to_thread(import_module, "ecoshell.settings.edit")
        await asyncio.to_thread(edit.write_settings, file, {("tui", "theme"): name})
    except SettingsError as error:
        kept = f"Theme {name!r} applies until you quit. {error.kept}"
        raise SettingsError(error.message, kept=kept, fix=error.fix) from error
    text = f"The theme is {name} and stored in the settings."
    if os.environ.get(THEME_VARIABLE, "").strip():
        text = f"The theme is {name} until you quit: {THEME_VARIABLE} overrides the settings."
    elif app.forced_mono:
        text = f"{text} {NO_COLOR}"
    return Printed(text)


async def _settings(app: "ChatApp", argument: str) -> Printed:
    from ecoshell.tui.screens.settings import SettingsScreen, live_settings

    live = live_settings(app.shell, app.options) if app.shell is not None else None
    await app.push_screen_wait(SettingsScreen(app.paths, live))
    return Printed("")


async def _search(app: "ChatApp", argument: str) -> Printed:
    await app.action_transcript("search")
    return Printed("")


def _theme_names(app: "ThemedApp[int]") -> list[str]:
    themes = app.available_themes.items()
    return sorted(name for name, theme in themes if isinstance(theme, FileTheme))


THEME: Command[Any] = Command("theme", "[NAME]", "change the theme", _theme, _theme_names)
CHAT_COMMANDS: "CommandTable[ChatApp]" = CommandTable(
    {
        "settings": Command("settings", "", "view and change the settings", _settings),
        "theme": THEME,
        "search": Command("search", "", "search the transcript", _search),
    }
)
