"""The base class of events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a turn; `type` names its kind in JSON."""

    type: ClassVar[str] = "event"
    __pydantic_config__: ClassVar[Mapping[str, bool]] = {"use_attribute_docstrings": True}
    """Makes pydantic use attribute docstrings as field descriptions in the JSON schema."""


Emit = Callable[[Event], None]
"""Receives events in the order in which they happen."""
