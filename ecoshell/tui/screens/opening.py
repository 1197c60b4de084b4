"""Slash commands that open a screen when they are given nothing to act on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.screen import Screen

    from ecoshell.agent.shell import Shell

OPENING = frozenset({"/model", "/sessions", "/resume"})


def screen_for(line: str, shell: "Shell") -> "Screen[str | None] | None":
    """The screen to show in the place of running this line, which gives back the line to run; None to run it as it is.

    The screens are imported only here, when one is opened: no first frame waits for them.
    """
    match line.strip().lower():
        case "/model":
            from ecoshell.tui.screens.models import ModelPicker

            return ModelPicker(shell)
        case "/sessions" | "/resume":
            from ecoshell.tui.screens.sessions import SessionPicker

            return SessionPicker(shell)
        case _:
            return None
