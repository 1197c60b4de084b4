"""What a person may set about the tools that come with ecoshell."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """Limits and permissions of the built-in tools; times are seconds."""

    output_characters: int = 8_000
    """Of one observation."""
    file_bytes: int = 10_000_000
    """The largest file that is read or written."""
    file_seconds: float = 20.0
    command_seconds: float = 120.0
    fetch_seconds: float = 30.0
    fetch_bytes: int = 2_000_000
    allow_private: bool = False
    """Whether `fetch_url` may reach this machine and its local network."""
    keep_variables: frozenset[str] = field(default_factory=frozenset[str])
    """Environment variables passed to commands although they look like secrets."""
