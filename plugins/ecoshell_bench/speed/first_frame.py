"""Measure the time to the chat's first frame: `python -m ecoshell_bench.speed.first_frame`.

Prints one JSON object: `seconds` from the start of the process (or from `ECOSHELL_STARTED`, a `time.monotonic()` of the
parent) to the first frame, and `heavy`, the modules loaded by then that should not be.
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
    """Return when this process started, on the clock of `time.monotonic`."""
    parent_time = os.environ.get("ECOSHELL_STARTED")
    if parent_time is not None:
        return float(parent_time)
    fields = (
        Path("/proc/self/stat")
        .read_text(encoding="ascii", errors="replace")
        .rpartition(")")[2]
        .split()
    )
    ticks_since_boot = int(fields[19])  # the 22nd field, counted from the process id
    return ticks_since_boot / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Show one frame, on the terminal if there is one, and print the figures."""
    gc.disable()  # as the chat starts
    from ecoshell.tui.app import ChatApp

    class OneFrame(ChatApp):
        """A chat that exits after its first frame."""

        def after_first_frame(self) -> None:
            figures["seconds"] = round(time.monotonic() - started_at(), 4)
            figures["heavy"] = [name for name in HEAVY if name in sys.modules]
            self.exit(0)

    figures: dict[str, object] = {}
    asyncio.run(
        OneFrame(Options()).run_async(headless=not (sys.__stderr__ and sys.__stderr__.isatty()))
    )
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
