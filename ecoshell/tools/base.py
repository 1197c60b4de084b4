"""What every tool is to the rest of ecoshell: a document, declared effects, and a run that ends in an observation."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ecoshell.messages import Effect, Observation, ToolDocument


@runtime_checkable
class Tool(Protocol):
    """A tool. `run` never raises for what the model did wrong: that is an observation with `ok=False`."""

    @property
    def document(self) -> ToolDocument:
        """What registering the tool tells a model."""
        ...

    @property
    def effects(self) -> frozenset[Effect]:
        """What a run may do beyond answering."""
        ...

    @property
    def price_nano(self) -> int:
        """What one use costs, in nano-dollars; 0 for everything that comes with ecoshell."""
        ...

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Run with these arguments, checked against the schema, within the tool's limits; it may be cancelled."""
        ...


@runtime_checkable
class Previewing(Protocol):
    """A tool that can say what a run would change before it runs."""

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """What a run with these arguments would change in files, as a unified diff; empty when it cannot be told.

        It changes nothing and may block.
        """
        ...
