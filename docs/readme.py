"""Replaces the program output that README.md quotes with current output; takes the file to write."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
QUESTION = "How many lines does LICENSE have?"
EXPLAIN = "/plan why count_text"
_TRANSCRIPT = re.compile(r"\| \d+ tools|\+ |\* |  = |answer:")
_ARITHMETIC = re.compile(r"(value|chance|bound|cost|budget|plan)\s")


def refreshed(text: str) -> str:
    """Return the README with current output; raises ValueError if a quoted command is missing."""
    cap = _run(_command(text, "ask"))
    session = _run(_command(text, "line"), f"{QUESTION}\n{EXPLAIN}\n")
    text = _replaced(text, r"\$ ecoshell ask .*--budget .*", cap)
    transcript = [line for line in session if _TRANSCRIPT.match(line)]
    text = _replaced(text, r"\$ ecoshell line .*", [f"> {QUESTION}", *transcript])
    return _replaced(
        text, re.escape(f"> {EXPLAIN}"), [line for line in session if _ARITHMETIC.match(line)]
    )


def _command(text: str, name: str) -> str:
    match = re.search(rf"^\$ (ecoshell {name} .*--budget .*)$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"README.md quotes no `ecoshell {name}` with a budget.")
    return match[1]


def _run(command: str, typed: str = "") -> list[str]:
    """Run a command line of the README in the checkout and return the lines of both its outputs."""
    line = command.replace("ecoshell", f"{shlex.quote(sys.executable)} -m ecoshell", 1)
    with TemporaryDirectory() as home:
        environment = {**os.environ, "ECOSHELL_HOME": home, "NO_COLOR": "1", "PYTHONUTF8": "1"}
        output = subprocess.run(
            ["sh", "-c", line],
            cwd=ROOT,
            env=environment,
            input=typed,
            stdout=-1,
            stderr=-2,
            text=True,
            check=True,
        )
    return output.stdout.splitlines()


def _replaced(text: str, first: str, lines: list[str]) -> str:
    """Return the text with new lines in the console block that begins with this pattern."""
    block = re.compile(rf"^(```console\n{first}\n)(?:.*\n)*?(```)", re.MULTILINE)
    if not block.search(text):
        raise ValueError(f"README.md has no block that begins with {first}.")
    return block.sub(
        lambda match: match[1] + "".join(f"{line}\n" for line in lines) + match[2], text, count=1
    )


if __name__ == "__main__":
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    Path(sys.argv[1]).write_text(refreshed(readme), encoding="utf-8")
