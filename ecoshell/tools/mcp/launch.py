"""Prepare this process and replace it by a server's command, so that the server ends with its helper; run by path.

Arguments: the helper's process id, then the command and its arguments.
"""

import ctypes
import os
import resource
import signal
import sys

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Set limits and signals, and execute the command."""
    helper, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != helper:  # The helper ended before prctl took effect.
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The helper ignores it, which a child inherits.
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    # The helper's limit does not apply to the server.
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
