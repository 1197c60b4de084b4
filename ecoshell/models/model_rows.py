"""Models as lists show them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ecoshell.budget import Price

HERE = "this machine"  # the provider of models that run in this process


def size_text(count: int | None) -> str:
    """A number of bytes with a unit; empty if unknown."""
    for unit, bytes_of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count is not None and count >= bytes_of:
            return f"{count / bytes_of:.{1 if count < 100 * bytes_of else 0}f} {unit}"
    return "" if count is None else f"{count} bytes"


Kind = Literal["embedded", "file", "server", "remote", "hub"]
"""What runs the model: this process, with the packaged file or another; a local server; a provider; nothing yet."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One available model; unknown is None, sizes are in tokens."""

    name: str
    provider: str
    ready: bool | None  # whether it is installed or has a key; None for providers without API keys
    context: int | None
    max_output: int | None
    price: Price | None
    blocked: str = ""  # why it is not called under a cap; empty if it is allowed
    missing: str = ""  # how to make it ready; empty if nothing is known to be missing
    address: str = ""  # of the user's own server, which needs no key; else empty
    at_hand: bool = True  # whether it is local, recommended, set, blocked, or has a key
    kind: Kind = "remote"
    path: Path | None = None
    size_bytes: int | None = None
    place: str = ""  # the program that has the file: `LM Studio`, `Ollama: qwen3:4b`

    @property
    def local(self) -> bool:
        """Whether it runs in this process."""
        return self.provider == HERE

    @property
    def state(self) -> str:
        """Availability in one or two words."""
        if self.blocked:
            return "blocked"
        if self.kind == "hub":
            return "to download"
        if self.kind == "server":
            return "running"
        if self.local:
            return "installed" if self.ready else "not installed"
        if self.address:
            return "own server"
        return {True: "has a key", False: "no key", None: "?"}[self.ready]


@dataclass(frozen=True, slots=True)
class StartingModel:
    """A model to begin with, and where it comes from."""

    name: str
    source: Literal["server", "file", "key", "download", "demo"]
    words: str  # its source in a phrase, such as `running in Ollama`
