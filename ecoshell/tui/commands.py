"""The slash commands that belong to the screen, and those of the shell that open a screen when given nothing to act on.

The screens are imported only here, when one is opened: no first frame waits for them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ecoshell.agent.commands import Command, CommandTable, Printed

if TYPE_CHECKING:
    from textual.screen import Screen

    from ecoshell.agent.shell import Shell
    from ecoshell.tui.app import ChatApp


OPENING = frozenset({"/model", "/sessions", "/resume"})


def screen_for(line: str, shell: "Shell") -> "Screen[str | None] | None":
    """The screen to show in the place of running this line, which gives back the line to run; None to just run it."""
    match line.strip().lower():
        case "/model":
            from ecoshell.tui.screens.models import ModelPicker

            return ModelPicker(shell)
        case "/sessions" | "/resume":
            from ecoshell.tui.screens.sessions import SessionPicker

            return SessionPicker(shell)
        case _:
            return None


async def _theme(app: "ChatApp", argument: str) -> Printed:
    from ecoshell.tui.screens.theme import THEME

    return await THEME.run(app, argument)


def _themes(app: "ChatApp") -> Iterable[str]:
    from ecoshell.tui.screens.theme import THEME

    return THEME.choices(app)


async def _settings(app: "ChatApp", argument: str) -> Printed:
    from ecoshell.tui.screens.settings import SettingsScreen, running

    what_runs = running(app.shell, app.options) if app.shell is not None else None
    await app.push_screen_wait(SettingsScreen(app.paths, what_runs))
    return Printed("")


async def _search(app: "ChatApp", argument: str) -> Printed:
    app.chat.action_search()
    return Printed("")


CHAT_COMMANDS: "CommandTable[ChatApp]" = CommandTable(
    [
        Command("settings", "", "look at the settings and change them", _settings),
        Command("theme", "[NAME]", "change the colours", _theme, _themes),
        Command("search", "", "search the transcript", _search),
    ]
)
