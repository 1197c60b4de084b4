"""`python -m ecoshell`."""

import sys

from ecoshell.cli import main

if __name__ == "__main__":
    sys.exit(main())
