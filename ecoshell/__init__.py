"""ecoshell: a terminal chat shell for a tool-using agent that never spends more than it was given."""

__version__ = "0.1.0"
