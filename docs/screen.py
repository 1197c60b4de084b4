"""Makes the README's picture: a short session with the embedded model, as `ecoshell screenshot` shows it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

QUESTIONS = ("How many words are in notes.txt?", "What is 17 * 23?")
NOTES = "Buy milk.\nCall Ada.\n"


def make(picture: Path) -> None:
    """Ask, and take the picture; takes about half a minute."""
    with TemporaryDirectory() as folder:
        workspace = Path(folder, "project")
        workspace.mkdir()
        (workspace / "notes.txt").write_text(NOTES)
        home = {"ECOSHELL_HOME": str(Path(folder, "home")), "PYTHONUTF8": "1", "TERM": "xterm-256color"}
        hidden = ("NO_COLOR", "COLORTERM", "OPENAI_BASE_URL")
        environment = {name: value for name, value in os.environ.items() if name not in hidden} | home

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "ecoshell", *arguments]
            done = subprocess.run(command, cwd=workspace, env=environment, check=True, capture_output=True)
            return done.stdout.decode()

        asked = run("ask", QUESTIONS[0], "--json", "--model", "embedded", "--budget", "0.50")
        session = json.loads(asked.splitlines()[-1])["session"]
        for question in QUESTIONS[1:]:
            run("ask", question, "--resume", session)
        picture.unlink(missing_ok=True)
        run("screenshot", str(picture.absolute()), "--size", "120x36", "--session", session)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
