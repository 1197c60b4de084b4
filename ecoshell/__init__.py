"""ecoshell: a terminal chat shell for a tool-using agent that never spends more than it was given.

`Agent` and `tool` are for Python programs; they are imported when they are first asked for.
"""

__version__ = "0.1.0"
__all__ = ["Agent", "__version__", "tool"]

TYPE_CHECKING = False  # as `typing` has it, whose import `ecoshell --version` need not wait for
if TYPE_CHECKING:
    from ecoshell.api import Agent, tool


def __getattr__(name: str) -> object:
    if name in ("Agent", "tool"):
        from ecoshell import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
