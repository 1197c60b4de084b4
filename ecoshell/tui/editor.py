"""Editing a text in the user's editor, in the terminal."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from ecoshell.errors import UsageError

_FIX = "Set $EDITOR to your editor's name."
_EDITORS = ("editor", "nano", "vim", "vi", "notepad")


def edited_text(text: str) -> str:
    """The text after the user has changed it in $VISUAL or $EDITOR; raises UsageError if that fails."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(chosen) or [name for name in _EDITORS if shutil.which(name)][:1]
    except ValueError:
        raise UsageError(f"$EDITOR is not a valid command: {chosen}", fix=_FIX) from None
    if not command:
        raise UsageError("No editor was found.", fix=_FIX)
    try:
        with TemporaryDirectory(prefix="ecoshell-", ignore_cleanup_errors=True) as folder:
            file = Path(folder, "draft.md")
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
            status = subprocess.run([*command, str(file)], check=False).returncode
            edited = file.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    except OSError as error:
        message = f"{command[0]}: {error.strerror or error}; the text is as it was."
        raise UsageError(message, fix=_FIX) from error
    if status:
        message = f"{command[0]}: ended with status {status}; the text is as it was."
        raise UsageError(message, fix=_FIX)
    return edited
