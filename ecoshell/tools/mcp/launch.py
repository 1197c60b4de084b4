"""Becomes a server's command, so that the server ends with the helper that started it; run by its path, on its own.

Arguments: the helper's process number, then the command and its arguments.
"""

import ctypes
import os
import resource
import signal
import sys

_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def main() -> None:
    """Take on what the command should begin with, and run it in the place of this process."""
    helper, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != helper:  # it ended before that held
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the helper ignores it, and what is ignored stays so
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # the helper's limit is not the server's
    try:
        os.execvp(command[0], command)
    except OSError as failure:
        sys.exit(f"{command[0]} cannot be started: {failure.strerror}")


if __name__ == "__main__":
    main()
