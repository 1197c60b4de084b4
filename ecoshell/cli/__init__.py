"""The entry point. `ecoshell --version` loads only this module, so it imports almost nothing."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    argv = sys.argv[1:] if arguments is None else arguments
    if argv in (["--version"], ["-V"]):
        try:
            return _print_version()
        except OSError:
            from ecoshell.cli.fence import fenced

            return fenced(_print_version)
    from ecoshell.cli.fence import fenced
    from ecoshell.cli.parser import run

    if arguments is None:
        from ecoshell.secrecy import claim_process

        claim_process()
    return fenced(lambda: run(argv))


def _print_version() -> int:
    from ecoshell import __version__

    print("ecoshell", __version__, flush=True)
    return 0
