"""How long the chat takes to its first frame: `python -m ecoshell.tui.first_frame` prints it and leaves.

Prints one JSON object: `seconds` from the start of the process (or from `ECOSHELL_STARTED`, a `time.monotonic()` of the
parent) to the first frame, and `heavy`, which of the modules that may not be loaded by then are.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from ecoshell.options import Options
from ecoshell.tui.app import ChatApp

HEAVY = ("litellm", "openai", "mcp", "llama_cpp", "numpy", "pydantic", "httpx")


class _OneFrame(ChatApp):
    """A chat that is over once it has been seen."""

    seconds = 0.0
    heavy: tuple[str, ...] = ()

    def after_first_frame(self) -> None:
        self.seconds = time.monotonic() - started_at()
        self.heavy = tuple(name for name in HEAVY if name in sys.modules)
        self.exit(0)


def started_at() -> float:
    """When this process began, on the clock of `time.monotonic`."""
    told = os.environ.get("ECOSHELL_STARTED")
    if told is not None:
        return float(told)
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    ticks_since_boot = int(fields[19])  # the 22nd field, counted from the process id
    return ticks_since_boot / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Show one frame, on this terminal if there is one, and print what was measured."""
    app = _OneFrame(Options())
    asyncio.run(app.run_async(headless=not (sys.__stderr__ and sys.__stderr__.isatty())))
    sys.stdout.write(json.dumps({"seconds": round(app.seconds, 4), "heavy": app.heavy}) + "\n")


if __name__ == "__main__":
    main()
