"""A picture of the chat, drawn without a terminal: of a stored session, or of the first screen of a new one."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from textual.widgets import TextArea

from ecoshell.agent.user_interface import UserInterface
from ecoshell.errors import EcoshellError
from ecoshell.options import Options
from ecoshell.paths import Paths, user_paths
from ecoshell.tui.app import ChatApp

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from ecoshell.agent.shell import Shell

_LOOKS = 100
_BETWEEN_LOOKS = 0.05
"""Seconds: what is painted a little later is painted by then."""


def take(options: Options, size: tuple[int, int]) -> str:
    """The screen of so many columns and lines as SVG; asks no model and writes nothing; raises EcoshellError."""
    return asyncio.run(_taken(options, size))


@dataclass(frozen=True, slots=True)
class _PicturePaths(Paths):
    """The person's folders without their draft: what was not sent yet is not for a picture."""

    elsewhere: Path

    @property
    def draft_file(self) -> Path:
        return self.elsewhere / "draft.txt"


async def _taken(options: Options, size: tuple[int, int]) -> str:
    from ecoshell.assembly.viewing import assemble_view

    shell = await assemble_view(options)

    async def build(_: Options, person: UserInterface) -> "Shell":
        return shell  # it asks nobody anything

    own = user_paths()
    try:
        with TemporaryDirectory() as folder:
            app = ChatApp(options, build=build, paths=_PicturePaths(own.config, own.data, own.cache, Path(folder)))
            async with app.run_test(size=size) as pilot:
                for area in app.chat.query(TextArea):
                    area.cursor_blink = False  # a picture does not depend on the moment it is taken
                return await _settled(app, pilot)
    finally:
        await shell.aclose()


async def _settled(app: ChatApp, pilot: "Pilot[int]") -> str:
    """The picture once the shell is open and the screen stays the same; raises EcoshellError when it does not."""
    before = ""
    for _ in range(_LOOKS):
        await pilot.pause(_BETWEEN_LOOKS)
        now = app.export_screenshot()
        if app.opened.is_set() and now == before:
            return now
        before = now
    raise EcoshellError("The screen did not come to rest.", fix="Try once more, with a smaller --size.")
