"""The settings: declared in `schema`, loaded from a file and the environment, edited in place."""

from ecoshell.settings.descriptions import NAMED, descriptions, section_descriptions
from ecoshell.settings.keys import KeyPath, dotted, parse_key
from ecoshell.settings.load import DEFAULT, Loaded, load_settings, read_settings
from ecoshell.settings.problems import problem
from ecoshell.settings.source import PREFIX, Source, read_bytes, variables

__all__ = [
    "DEFAULT",
    "NAMED",
    "PREFIX",
    "KeyPath",
    "Loaded",
    "Source",
    "descriptions",
    "dotted",
    "load_settings",
    "parse_key",
    "problem",
    "read_bytes",
    "read_settings",
    "section_descriptions",
    "variables",
]
