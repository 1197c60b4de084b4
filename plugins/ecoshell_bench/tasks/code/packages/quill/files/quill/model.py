"""Blocks of a document."""

from dataclasses import dataclass, field


class QuillError(ValueError):
    """A text that cannot be read; the message names the line."""


@dataclass
class Title:
    text: str


@dataclass
class Section:
    level: int
    text: str


@dataclass
class Paragraph:
    text: str


@dataclass
class Items:
    texts: list = field(default_factory=list)


@dataclass
class Table:
    rows: list = field(default_factory=list)
