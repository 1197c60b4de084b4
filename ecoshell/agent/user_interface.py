"""What is in `ecoshell.agent` by the name it had before; for one release."""

from ecoshell.agent import *  # noqa: F403
