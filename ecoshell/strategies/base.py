"""What is in `ecoshell.strategies` by the name it had before; for one release."""

from ecoshell.strategies import *  # noqa: F403
