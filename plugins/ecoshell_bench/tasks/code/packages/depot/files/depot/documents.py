"""Texts that go out with orders."""

from depot.catalogue import BY_SKU
from depot.pricing import line_price


def money(cents):
    """An amount as it is printed: `1,234.50`."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def invoice(order):
    """The invoice of an order, one line for each position, amounts to the right."""
    rows = [(f"{line.count} x {BY_SKU[line.sku].name}", line_price(line.sku, line.count)) for line in order.lines]
    price = order.price()
    rows.append(("Sum", price.lines))
    if price.discount:
        rows.append(("Discount", -price.discount))
    rows += [("Postage", price.postage), ("Tax", price.tax), ("Total", price.gross)]
    width = max(len(text) for text, _ in rows)
    amounts = [money(cents) for _, cents in rows]
    right = max(map(len, amounts))
    lines = [f"{text:<{width}}  {amount:>{right}}" for (text, _), amount in zip(rows, amounts)]
    return "\n".join([f"Invoice {order.number} for {order.customer}", "", *lines])


def packing_slips(order):
    """A slip for each parcel: its number, its weight and what is in it."""
    slips = []
    for number, parcel in enumerate(order.parcels, 1):
        pieces = [f"{count} x {BY_SKU[sku].name}" for sku, count in sorted(parcel.pieces.items())]
        slips.append("\n".join([f"Parcel {number} of {len(order.parcels)}, {parcel.grams} g", *pieces]))
    return slips


def stock_list(stock, below):
    """Articles of which fewer than `below` pieces are free, the fewest first."""
    few = [(stock.free(sku), sku) for sku in BY_SKU if stock.free(sku) < below]
    return [f"{sku}: {free} free, {stock.promised(sku)} promised" for free, sku in sorted(few)]
