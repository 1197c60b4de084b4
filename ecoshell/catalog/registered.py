"""The registered tools of a session."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

RegisteredBy = Literal["agent", "first_call", "user", "upfront"]


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A registered tool or skill; `tokens` is the size of its schema or text in the context."""

    name: str
    tokens: int
    by: RegisteredBy
    text: str = ""
    """The text of a skill; empty for a tool, whose schema the catalog has."""


@dataclass(frozen=True, slots=True)
class RegisteredTools:
    """Registered tools by name, in the order of registration."""

    tools: Mapping[str, RegisteredTool] = field(default_factory=dict[str, RegisteredTool])

    def __contains__(self, name: object) -> bool:
        return name in self.tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tools)

    @property
    def tokens(self) -> int:
        return sum(tool.tokens for tool in self.tools.values())

    def including(self, tools: Iterable[RegisteredTool]) -> "RegisteredTools":
        """Return the tools with these added; existing entries are unchanged."""
        extended = dict(self.tools)
        for tool in tools:
            extended.setdefault(tool.name, tool)
        return RegisteredTools(extended)

    def without(self, names: Container[str]) -> "RegisteredTools":
        """Return the tools without these names."""
        return RegisteredTools(
            {name: tool for name, tool in self.tools.items() if name not in names}
        )
