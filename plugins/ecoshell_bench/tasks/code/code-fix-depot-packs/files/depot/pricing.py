"""What things cost. Amounts are whole cents; a share is rounded half up, once, at the end of its step.

- Complete packs (of more than one piece) are 8 % cheaper; pieces beyond them have the full price.
- An order of more than 100.00 has a discount of 3 %, one of more than 500.00 of 5 %: on the sum of its lines.
- Postage is 4.90 for each parcel; it is free when the lines, after the discount, total 250.00 or more.
- Tax is 19 % of the lines after the discount and of the postage together.
"""

from dataclasses import dataclass

from depot.catalogue import BY_SKU
from depot.models import DepotError

PACK_PERCENT = 8
DISCOUNTS = ((50_000, 5), (10_000, 3))
POSTAGE = 490
FREE_POSTAGE_FROM = 25_000
TAX_PERCENT = 19


def percent_of(cents, percent):
    """A share of an amount, rounded half up."""
    return (cents * percent + 50) // 100


def line_price(sku, count):
    """What so many pieces cost, with the price of complete packs."""
    if sku not in BY_SKU:
        raise DepotError(f"{sku}: unknown article")
    article = BY_SKU[sku]
    if article.pack == 1:
        return count * article.cents
    in_packs = count - count % article.pack
    return count * article.cents - in_packs * percent_of(article.cents, PACK_PERCENT)


def discount(cents):
    """What is taken off the sum of an order's lines."""
    for above, percent in DISCOUNTS:
        if cents >= above:
            return percent_of(cents, percent)
    return 0


@dataclass(frozen=True)
class Total:
    """An order's price in its parts."""

    lines: int
    discount: int
    postage: int
    tax: int

    @property
    def net(self):
        """Everything but the tax."""
        return self.lines - self.discount + self.postage

    @property
    def gross(self):
        """What has to be paid."""
        return self.net + self.tax


def total(lines, parcels):
    """The price of lines of `(sku, count)` that go in so many parcels."""
    summed = sum(line_price(sku, count) for sku, count in lines)
    off = discount(summed)
    postage = 0 if summed >= FREE_POSTAGE_FROM else parcels * POSTAGE
    return Total(summed, off, postage, percent_of(summed - off + postage, TAX_PERCENT))
