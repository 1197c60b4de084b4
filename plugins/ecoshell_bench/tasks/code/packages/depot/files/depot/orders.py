"""Orders from draft to closed."""

from depot.models import DepotError, Line
from depot.packing import pack
from depot.pricing import total


class Order:
    """An order of one customer; its lines can be changed while it is a draft."""

    def __init__(self, number, customer, stock):
        self.number = number
        self.customer = customer
        self.state = "draft"
        self.lines = []
        self.parcels = []
        self._stock = stock

    def add(self, sku, count):
        """Add pieces; of an article that is there already the line grows."""
        self._must_be("draft")
        if count < 1:
            raise DepotError(f"{count}: a count is at least 1")
        self._stock.there(sku)
        for line in self.lines:
            if line.sku == sku:
                line.count += count
                return
        self.lines.append(Line(sku, count))

    def remove(self, sku):
        """Take a line out."""
        self._must_be("draft")
        before = len(self.lines)
        self.lines = [line for line in self.lines if line.sku != sku]
        if len(self.lines) == before:
            raise DepotError(f"{sku}: it is not in order {self.number}")

    def confirm(self):
        """Promise all pieces, or raise DepotError and stay a draft."""
        self._must_be("draft")
        if not self.lines:
            raise DepotError(f"order {self.number} is empty")
        self._stock.promise_all([(line.sku, line.count) for line in self.lines])
        self.state = "confirmed"

    def ship(self, pieces=None):
        """Ship pieces by article, or all that are open; gives the new parcels. The last piece closes the order."""
        self._must_be("confirmed")
        wanted = {line.sku: line.open for line in self.lines if line.open} if pieces is None else dict(pieces)
        by_sku = {line.sku: line for line in self.lines}
        for sku, count in wanted.items():
            if sku not in by_sku or not 0 < count <= by_sku[sku].open:
                raise DepotError(f"order {self.number}: {count} pieces of {sku} are not open")
        parcels = pack(wanted)
        for sku, count in wanted.items():
            self._stock.take(sku, count)
            by_sku[sku].shipped += count
        self.parcels += parcels
        if not any(line.open for line in self.lines):
            self.state = "closed"
        return parcels

    def cancel(self):
        """Cancel the open lines and release their stock."""
        if self.state in ("closed", "cancelled"):
            raise DepotError(f"order {self.number} is {self.state}")
        if self.state == "confirmed":
            for line in self.lines:
                if line.open:
                    self._stock.release(line.sku, line.open)
        self.state = "cancelled"

    def price(self):
        """The amount due: for shipped pieces if the order is cancelled, else for all of it."""
        if self.state == "cancelled":
            return total([(line.sku, line.shipped) for line in self.lines if line.shipped], len(self.parcels))
        count = len(self.parcels)
        open_pieces = {line.sku: line.open for line in self.lines if line.open}
        return total([(line.sku, line.count) for line in self.lines], count + len(pack(open_pieces)))

    def _must_be(self, state):
        if self.state != state:
            raise DepotError(f"order {self.number} is {self.state}, not {state}")
