"""ecoshell: a terminal shell for a tool-using agent that cannot overspend.

`Agent` and `tool` are for Python programs and are imported on first use.
"""

__version__ = "0.1.0"
__all__ = ["Agent", "__version__", "tool"]

TYPE_CHECKING = False  # importing `typing` would slow down `ecoshell --version`
if TYPE_CHECKING:
    from ecoshell.api import Agent, tool


def __getattr__(name: str) -> object:
    if name in ("Agent", "tool"):
        from ecoshell import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
