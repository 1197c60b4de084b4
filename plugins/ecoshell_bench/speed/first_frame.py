"""How long the chat takes to its first frame: `python -m ecoshell_bench.speed.first_frame` prints it and leaves.

Prints one JSON object: `seconds` from the start of the process (or from `ECOSHELL_STARTED`, a `time.monotonic()` of the
parent) to the first frame, and `heavy`, which of the modules that may not be loaded by then are.
"""

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path

from ecoshell.options import Options

HEAVY = (
    *("litellm", "openai", "mcp", "llama_cpp", "numpy", "pydantic", "httpx", "sqlite3"),
    *("markdown_it", "pygments", "ecoshell.events", "ecoshell.agent"),
)


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
    gc.disable()  # as the chat starts
    from ecoshell.tui.app import ChatApp

    class OneFrame(ChatApp):
        """A chat that is over once it has been seen."""

        def after_first_frame(self) -> None:
            told["seconds"] = round(time.monotonic() - started_at(), 4)
            told["heavy"] = [name for name in HEAVY if name in sys.modules]
            self.exit(0)

    told: dict[str, object] = {}
    asyncio.run(OneFrame(Options()).run_async(headless=not (sys.__stderr__ and sys.__stderr__.isatty())))
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
