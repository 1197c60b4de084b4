"""The strategies of the core and of plugins, by name."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from ecoshell.strategies import StrategySpec


class Strategies(Mapping[str, StrategySpec]):
    """Strategies by name, each in its module as `module:NAME`, which is imported when the strategy is chosen; after
    them those of plugins.
    """

    def __init__(
        self, places: Mapping[str, str], more: Mapping[str, StrategySpec] | None = None
    ) -> None:
        self._places = places
        self._more = more or {}

    def __getitem__(self, name: str) -> StrategySpec:
        if name in self._more:
            return self._more[name]
        module, _, attribute = self._places[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._places, *self._more))

    def __len__(self) -> int:
        return len(self._places) + len(self._more)

    def including(self, more: Mapping[str, StrategySpec]) -> "Strategies":
        """These and further strategies."""
        return Strategies(self._places, more)


STRATEGIES = Strategies(
    {
        "react": "ecoshell.strategies.react:REACT",
        "dfsdt": "ecoshell.strategies.search:DFSDT",
        "tot": "ecoshell.strategies.search:TOT",
        "graph": "ecoshell.strategies.graph:GRAPH",
    }
)
