"""What is in `ecoshell.tools` by the name it had before; for one release."""

from ecoshell.tools import *  # noqa: F403
