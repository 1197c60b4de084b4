"""A small program that outlives this one: it ends the programs that tools have started, should this one be killed.

It reads from a pipe which groups of processes run. The pipe ends with this process, whatever ends it; a parent-death
signal (prctl) would come when the starting *thread* ends, would reach no descendants, and is Linux alone.
"""

import contextlib
import os
import subprocess
from collections.abc import Generator, Sequence

_SCRIPT = """
while read -r sign group; do
  if [ "$sign" = + ]; then
    groups="$groups $group"
  else
    kept=
    for each in $groups; do [ "$each" = "$group" ] || kept="$kept $each"; done
    groups=$kept
  fi
done
[ -n "$groups" ] || exit 0
for each in $groups; do kill -s TERM -- "-$each"; done
sleep 1
for each in $groups; do kill -s KILL -- "-$each"; done
"""
_ANNOUNCED = '(echo "+ $$") 2>/dev/null; exec "$@" >&2'
"""Says its group before it becomes the program, so that there is no moment in which nobody knows of that.

The brackets: where nobody listens, the signal for that ends what is in them, and not the program.
"""


class Watchdog:
    """Knows which process groups run, and has them ended when this process is gone; starts at the first."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._program: subprocess.Popen[bytes] | None = None

    def announced(self, command: Sequence[str], output: int) -> tuple[Sequence[str], int]:
        """A command that makes itself known to the watchdog, with the descriptor that is to be its standard output.

        Its standard error has to be `output`, where both then go. It has to lead a process group, and to be `watching`
        when it has started. Where no watchdog can be started, the command is given as it is.
        """
        ear = self._ear()
        return (command, output) if ear is None else (["/bin/sh", "-c", _ANNOUNCED, "sh", *command], ear)

    @contextlib.contextmanager
    def watching(self, group: int) -> Generator[None]:
        """While it lasts, a process group that was announced ends with this process; it has ended by the end of it."""
        self._groups.add(group)
        try:
            yield
        finally:
            self._groups.discard(group)
            self._say(f"- {group}\n")

    def _ear(self) -> int | None:
        """Where the watchdog listens; one that has been killed is replaced, and told of all groups."""
        if self._program is None or self._program.poll() is not None:
            self._program = _started()
            self._say("".join(f"+ {group}\n" for group in self._groups))
        if self._program is None or self._program.stdin is None:
            return None
        return self._program.stdin.fileno()

    def _say(self, lines: str) -> None:
        """Say something to the watchdog that runs, without ever waiting for it."""
        if lines and self._program is not None and self._program.stdin is not None:
            with contextlib.suppress(OSError):  # it was killed meanwhile, or stopped for so long that the pipe is full
                os.write(self._program.stdin.fileno(), lines.encode())


def _started() -> subprocess.Popen[bytes] | None:
    """A watchdog in a session of its own, which no signal from a terminal reaches; None where there can be none."""
    nothing, system = subprocess.DEVNULL, {"PATH": os.defpath}
    command = ["/bin/sh", "-c", _SCRIPT]
    try:
        program = subprocess.Popen(
            command, cwd="/", env=system, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True
        )
    except OSError:
        return None
    if program.stdin is not None:
        os.set_blocking(program.stdin.fileno(), False)
    return program


watchdog = Watchdog()
"""That of this process."""
