"""What is on the shelves, and what of it is promised."""

from depot.catalogue import BY_SKU
from depot.models import DepotError


class Stock:
    """Counts of pieces by article, and a journal of every change."""

    def __init__(self, there=None):
        self._there = dict(there or {})
        self._promised = {}
        self.journal = []

    def there(self, sku):
        """Pieces on the shelf, promised or not."""
        self._known(sku)
        return self._there.get(sku, 0)

    def promised(self, sku):
        """Pieces that belong to confirmed orders."""
        self._known(sku)
        return self._promised.get(sku, 0)

    def free(self, sku):
        """Pieces that can still be promised."""
        return self.there(sku) - self.promised(sku)

    def receive(self, sku, count):
        """Put pieces on the shelf."""
        self._positive(count)
        self._there[sku] = self.there(sku) + count
        self._note("receive", sku, count)

    def promise(self, sku, count):
        """Set pieces aside for an order; raises DepotError if too few are free."""
        self._positive(count)
        if count > self.free(sku):
            raise DepotError(f"{sku}: {count} wanted, {self.free(sku)} free")
        self._promised[sku] = self.promised(sku) + count
        self._note("promise", sku, count)

    def promise_all(self, wanted):
        """Set pieces of several articles aside, all of them or, with a DepotError, none."""
        done = []
        try:
            for sku, count in wanted:
                self.promise(sku, count)
                done.append((sku, count))
        except DepotError:
            for sku, count in done:
                self.release(sku, count)
            raise

    def release(self, sku, count):
        """Give promised pieces free again."""
        self._positive(count)
        if count > self.promised(sku):
            raise DepotError(f"{sku}: {count} to release, {self.promised(sku)} promised")
        self._promised[sku] = self.promised(sku) - count
        self._note("release", sku, count)

    def take(self, sku, count):
        """Take promised pieces off the shelf, for a parcel."""
        self._positive(count)
        if count > self.promised(sku):
            raise DepotError(f"{sku}: {count} to take, {self.promised(sku)} promised")
        self._there[sku] = self.there(sku) - count
        self._promised[sku] = self.promised(sku) - count
        self._note("take", sku, count)

    def correct(self, sku, counted):
        """Enter what a stocktaking has counted; it may not be less than what is promised."""
        if counted < self.promised(sku):
            raise DepotError(f"{sku}: {counted} counted, {self.promised(sku)} promised")
        difference = counted - self.there(sku)
        self._there[sku] = counted
        if difference:
            self._note("correct", sku, difference)

    def _known(self, sku):
        if sku not in BY_SKU:
            raise DepotError(f"{sku}: unknown article")

    def _positive(self, count):
        if count < 1:
            raise DepotError(f"{count}: a count is at least 1")

    def _note(self, what, sku, count):
        self.journal.append((what, sku, count))
