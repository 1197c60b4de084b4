"""The slash commands that belong to the screen, and those of the shell that open a screen when given nothing to act on.

The screens are imported only here, when one is opened: no first frame waits for them.
"""

import asyncio
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecoshell.agent.commands import Command, CommandTable, Printed
from ecoshell.errors import SettingsError, UsageError
from ecoshell.tui.themes import VARIABLE as THEME_VARIABLE
from ecoshell.tui.themes import Look

if TYPE_CHECKING:
    from textual.screen import Screen

    from ecoshell.agent.shell import Shell
    from ecoshell.tui.app import ChatApp
    from ecoshell.tui.themes import ThemedApp


OPENING = frozenset({"/model", "/sessions", "/resume", "/context"})


def screen_for(line: str, shell: "Shell") -> "Screen[str | None] | None":
    """The screen to show in the place of running this line, which gives back the line to run; None to just run it."""
    name = line.strip().lower()
    if name not in OPENING:
        return None
    if name == "/context":
        from ecoshell.tui.screens.context import ContextScreen

        return ContextScreen(shell)
    from ecoshell.tui.screens.pickers import ModelPicker, SessionPicker

    return ModelPicker(shell) if name == "/model" else SessionPicker(shell)


async def _theme(app: "ThemedApp[int]", argument: str) -> Printed:
    """`/theme NAME` wears a theme and writes it into the settings; without a name, the picker asks for one."""
    from ecoshell.tui.screens.pickers import NO_COLOR, ThemePicker

    name = argument or await app.push_screen_wait(ThemePicker(app.theme))
    if not name:
        return Printed("")
    themes = await app.learn_themes()
    names = sorted(theme.name for theme in themes.all)
    if name not in names:
        raise UsageError(f"There is no theme {name!r}.", fix=f"There are {', '.join(names)}.")
    app.wear(name)
    try:
        edit: Any = await asyncio.to_thread(import_module, "ecoshell.settings.edit")  # pydantic comes with it
        await asyncio.to_thread(edit.write_settings, app.paths.settings_file, {("tui", "theme"): name})
    except SettingsError as error:
        raise SettingsError(
            error.message, kept=f"{name} is worn until you leave. {error.kept}", fix=error.fix
        ) from error
    if os.environ.get(THEME_VARIABLE, "").strip():
        return Printed(f"The theme is {name} now. {THEME_VARIABLE} is set and wins when ecoshell starts again.")
    return Printed(f"The theme is {name}, from now on." + (f" {NO_COLOR}" if app.forced_mono else ""))


async def _settings(app: "ChatApp", argument: str) -> Printed:
    from ecoshell.tui.screens.settings import SettingsScreen, running

    what_runs = running(app.shell, app.options) if app.shell is not None else None
    await app.push_screen_wait(SettingsScreen(app.paths, what_runs))
    return Printed("")


async def _search(app: "ChatApp", argument: str) -> Printed:
    await app.action_transcript("search")
    return Printed("")


THEME: Command[Any] = Command(
    "theme",
    "[NAME]",
    "change the colours",
    _theme,
    lambda app: sorted(name for name, theme in app.available_themes.items() if isinstance(theme, Look)),
)
CHAT_COMMANDS: "CommandTable[ChatApp]" = CommandTable(
    {
        "settings": Command("settings", "", "look at the settings and change them", _settings),
        "theme": THEME,
        "search": Command("search", "", "search the transcript", _search),
    }
)
