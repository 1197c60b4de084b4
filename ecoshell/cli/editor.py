"""Editing a text in the user's editor, in the terminal."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from ecoshell.errors import UsageError


def edited_text(text: str) -> str:
    """The text after the user has changed it in $VISUAL or $EDITOR; raises UsageError if that fails."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise UsageError(
            "No editor is set.", fix="Set $EDITOR, or type /plan accept with the changed plan."
        )
    with tempfile.TemporaryDirectory(prefix="ecoshell-") as folder:
        file = Path(folder, "plan.md")
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        try:
            subprocess.run([*command, str(file)], check=True)
            return file.read_text(encoding="utf-8", errors="replace").strip()
        except (OSError, subprocess.CalledProcessError) as failure:
            raise UsageError(
                f"{command[0]} failed: {failure}.", fix="Set $EDITOR to your editor's name."
            ) from failure
