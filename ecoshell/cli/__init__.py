"""The commands. This module is all that `ecoshell --version` loads, so it imports next to nothing."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if arguments is None else arguments
    if argv in (["--version"], ["-V"]):
        try:
            return _tell_version()
        except OSError:
            from ecoshell.cli.parser import fenced

            return fenced(_tell_version)
    from ecoshell.cli.parser import fenced, run

    if arguments is None:
        from ecoshell.secrecy import claim_process

        claim_process()
    return fenced(lambda: run(argv))


def _tell_version() -> int:
    from ecoshell import __version__

    print("ecoshell", __version__, flush=True)
    return 0
