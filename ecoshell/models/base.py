"""What is in `ecoshell.models` by the name it had before; for one release."""

from ecoshell.models import *  # noqa: F403
