"""From the start of a process: to its end, to its first frame, to the first key it shows."""

import sys
from collections.abc import Iterator, Sequence

from ecoshell_bench.measurement import Measurement
from ecoshell_bench.speed.apps import MINIMAL_COMMAND, TAKES_OVER, Home, new_home
from ecoshell_bench.speed.timing import Take, against, told, wall

_PLAIN = (sys.executable, "-c", "pass")
_VERSION = (sys.executable, "-c", "import sys; from ecoshell.cli import main; sys.exit(main(['--version']))")
_CORE = (sys.executable, "-c", "import ecoshell.assembly.shell")
_FRAME = (sys.executable, "-m", "ecoshell.tui.first_frame")
_KEY = "ø"


def measure_processes(repeat: int) -> Iterator[Measurement]:
    """What works without a terminal; seconds."""
    yield against("version", wall(_VERSION), wall(_PLAIN), repeat)
    with new_home() as home:
        frame, minimal = told(_FRAME, home.environ), told(MINIMAL_COMMAND, home.environ)
        yield against("first_frame", frame, minimal, max(1, repeat // 3))
    yield against("import_core", wall(_CORE), wall(_PLAIN), max(1, repeat // 3))


def measure_ready(repeat: int) -> Measurement:
    """Seconds from the start to the first shown key, typed as soon as the program has taken the screen over."""
    with new_home() as home:
        chat = home.chat("--model", home.script())
        return against("ready", _ready(home, chat), _ready(home, MINIMAL_COMMAND), max(1, repeat // 3))


def _ready(home: Home, command: Sequence[str]) -> Take:
    from ecoshell_bench.speed.terminal import Terminal  # there are none on Windows

    def run() -> float:
        terminal = Terminal(command, environ=home.environ)
        try:
            terminal.wait_for(TAKES_OVER)
            return terminal.type_until_shown(_KEY) - terminal.started
        finally:
            terminal.close()

    return run
