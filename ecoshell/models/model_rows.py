"""Models as lists show them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ecoshell.budget import Price

HERE = "this machine"
"""The provider of models that run in this process."""


def size_text(count: int | None) -> str:
    """A number of bytes, as files are told of; empty where it is not known."""
    for unit, bytes_of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count is not None and count >= bytes_of:
            return f"{count / bytes_of:.{1 if count < 100 * bytes_of else 0}f} {unit}"
    return "" if count is None else f"{count} bytes"


Kind = Literal["embedded", "file", "server", "remote", "hub"]
"""What runs it: this process, from the package or a file; a server here or elsewhere; nothing until it is pulled."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model that could be talked with; unknown is None, sizes are tokens."""

    name: str
    provider: str
    ready: bool | None
    """Whether it could be asked now: installed, or with a key; None for a provider that signs in otherwise."""
    context: int | None
    max_output: int | None
    price: Price | None
    blocked: str = ""
    """Why no call goes to it under a cap; empty when it may be called."""
    missing: str = ""
    """What to do so that it is ready; empty when nothing is known to be missing."""
    address: str = ""
    """The user's own server it is asked at, which needs no key; empty for the provider's."""
    at_hand: bool = True
    """Whether it is on this machine, recommended, in the settings, blocked, or of a provider with a key."""
    kind: Kind = "remote"
    path: Path | None = None
    size_bytes: int | None = None
    place: str = ""
    """Whose it is where that is not said by the provider: `LM Studio`, `Ollama: qwen3:4b`."""

    @property
    def local(self) -> bool:
        """Whether it runs on this machine."""
        return self.provider == HERE

    @property
    def state(self) -> str:
        """How it stands, in a word or two."""
        if self.blocked:
            return "blocked"
        if self.kind == "hub":
            return "to pull"
        if self.kind == "server":
            return "running"
        if self.local:
            return "installed" if self.ready else "not installed"
        if self.address:
            return "own server"
        return {True: "has a key", False: "no key", None: "?"}[self.ready]
