"""What everything else is about."""

from dataclasses import dataclass, field


class DepotError(Exception):
    """Something cannot be done; the message is for the user at the desk."""


@dataclass(frozen=True)
class Article:
    """A thing on the shelves."""

    sku: str
    name: str
    cents: int
    grams: int
    pack: int = 1


@dataclass
class Line:
    """One position of an order."""

    sku: str
    count: int
    shipped: int = 0

    @property
    def open(self):
        """Pieces that are still to be shipped."""
        return self.count - self.shipped


@dataclass
class Parcel:
    """What is shipped together: pieces by article."""

    pieces: dict = field(default_factory=dict)
    grams: int = 0
