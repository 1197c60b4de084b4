"""The person's own editor, on the draft."""

import asyncio
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import SuspendNotSupported

from ecoshell.errors import UsageError

if TYPE_CHECKING:
    from textual.app import App

_USUAL = ("editor", "nano", "vim", "vi", "notepad")


async def edited(app: "App[Any]", text: str) -> str:
    """The text as the person leaves it in `$VISUAL` or `$EDITOR`; what the app does goes on meanwhile, unseen.

    Raises UsageError where there is no editor, and when it fails: then the text is as it was.
    """
    command = _command()
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ecoshell-"))
    file = folder / "draft.md"
    try:
        await asyncio.to_thread(file.write_text, text, encoding="utf-8", errors="backslashreplace")
        failure = await _run(app, [*command, str(file)])
        if failure:
            raise UsageError(
                f"{command[0]}: {failure}; the draft is as it was.", fix="Set $EDITOR to your editor's name."
            )
        kept = await asyncio.to_thread(file.read_text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"The draft could not be given to an editor: {error}.") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return kept.removesuffix("\n")


async def _run(app: "App[Any]", command: list[str]) -> str:
    """Give the terminal to a command until it ends; what was wrong with it, or nothing."""
    try:
        with app.batch_update(), app.suspend():  # a frame written now would stand in the editor's screen
            try:
                return await _ended(command)
            except OSError as error:  # let through, it would keep the app suspended
                return error.strerror or str(error)
    except SuspendNotSupported:
        raise UsageError("This terminal cannot be given to an editor.", fix="Type it here.") from None


async def _ended(command: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(*command)
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
    return f"ended with status {status}" if status else ""


def _command() -> list[str]:
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(chosen)
    except ValueError:
        raise UsageError(f"$EDITOR is no command: {chosen}", fix="Set it to your editor's name.") from None
    command = command or [name for name in _USUAL if shutil.which(name)][:1]
    if not command:
        raise UsageError("There is no editor.", fix="Set $EDITOR to your editor's name.")
    return command
