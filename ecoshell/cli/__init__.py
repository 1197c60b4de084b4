"""The commands. This module is all that `ecoshell --version` loads, so it imports next to nothing."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if arguments is None else arguments
    if argv in (["--version"], ["-V"]):
        from ecoshell import __version__

        sys.stdout.write(f"ecoshell {__version__}\n")
        return 0
    from ecoshell.cli.fence import fenced
    from ecoshell.cli.parser import run

    return fenced(lambda: run(argv))
