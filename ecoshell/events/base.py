"""The base class of events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ecoshell.events.lines import Line


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a turn; `type` names its kind in JSON."""

    type: ClassVar[str] = "event"
    __pydantic_config__: ClassVar[Mapping[str, bool]] = {"use_attribute_docstrings": True}
    """Makes pydantic use attribute docstrings as field descriptions in the JSON schema."""

    def render(self) -> Line | None:
        """The words of the event for every interface; None if it has nothing to say, or is shown while it arrives."""


Emit = Callable[[Event], None]
"""Receives events in the order in which they happen."""
