"""What is in `ecoshell.budget` by the name it had before; for one release."""

from ecoshell.budget import *  # noqa: F403
