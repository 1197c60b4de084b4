"""How pieces become parcels: heavy articles first, each parcel as full as it gets."""

from depot.catalogue import BY_SKU
from depot.models import DepotError, Parcel

CARDBOARD = 150
HEAVIEST = 2_000


def pack(pieces):
    """The parcels for pieces by article; raises DepotError for a piece that is too heavy for any."""
    parcels = []
    for sku in sorted(pieces, key=lambda sku: (-BY_SKU[sku].grams, sku)):
        grams, left = BY_SKU[sku].grams, pieces[sku]
        if CARDBOARD + grams > HEAVIEST:
            raise DepotError(f"{sku}: a piece is too heavy for a parcel")
        for parcel in parcels:
            left -= _add(parcel, sku, grams, left)
        while left:
            parcels.append(Parcel(grams=CARDBOARD))
            left -= _add(parcels[-1], sku, grams, left)
    return parcels


def _add(parcel, sku, grams, most):
    """Put as many pieces into a parcel as fit; gives how many."""
    count = min(most, (HEAVIEST - parcel.grams) // grams)
    if count:
        parcel.pieces[sku] = parcel.pieces.get(sku, 0) + count
        parcel.grams += count * grams
    return count
