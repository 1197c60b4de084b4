"""A list to move through: which items are shown, in which order, and which one is highlighted."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ecoshell.tui.fuzzy import best

Item = TypeVar("Item")


class Listing(Generic[Item]):
    """Items by their names; while the order is held, none moves under the person's hand."""

    def __init__(self, name: Callable[[Item], str], rank: Callable[[Item], int] = lambda _: 0) -> None:
        """`name` tells items apart; those of a lower `rank` come first, the others in the order they are put in."""
        self.filter = ""
        """What the names shown must fit, the best fit first; empty shows all."""
        self.shown: Sequence[Item] = ()
        self.highlighted = 0
        self._name = name
        self._rank = rank
        self._items: dict[str, Item] = {}
        self._order: list[str] = []

    @property
    def items(self) -> Sequence[Item]:
        """Everything that is known, shown or not."""
        return [*self._items.values()]

    @property
    def current(self) -> Item | None:
        """The highlighted item; None while nothing is shown."""
        return self.shown[self.highlighted] if self.shown else None

    def put(self, items: Sequence[Item], *, hold: bool) -> None:
        """Take over what is known now; with `hold`, those already listed stay where they are."""
        self._items = {self._name(item): item for item in items}
        if hold:
            listed = dict.fromkeys(name for name in self._order if name in self._items)
            self._order = [*listed, *(name for name in self._items if name not in listed)]
            self._list()
        else:
            self.sort()

    def sort(self) -> None:
        """Put everything in its order."""
        self._order = sorted(self._items, key=lambda name: self._rank(self._items[name]))
        self._list()

    def narrow(self, typed: str) -> None:
        """Show only what fits; the highlight goes to the best."""
        self.filter = typed
        self._list()
        self.highlighted = 0

    def move(self, by: int) -> None:
        """Move the highlight, no further than the ends."""
        self.to(self.highlighted + by)

    def to(self, at: int) -> None:
        """Put the highlight here, or at the nearer end."""
        self.highlighted = max(0, min(at, len(self.shown) - 1))

    def _list(self) -> None:
        """Show what fits; the highlight stays on its item wherever that is now."""
        held = None if self.current is None else self._name(self.current)
        items = [self._items[name] for name in self._order]
        if self.filter.strip():
            items, _ = best(self.filter, ((self._name(item).lower(), item) for item in items), len(items))
        self.shown = items
        at = next((at for at, item in enumerate(items) if self._name(item) == held), None)
        self.to(self.highlighted if at is None else at)
