"""Print what some pieces cost: python -m scripts.quote ANC-S 12 ANC-M 3"""

import sys

from depot.documents import money
from depot.packing import pack
from depot.pricing import line_price, total


def main(words):
    lines = [(sku, int(count)) for sku, count in zip(words[::2], words[1::2])]
    for sku, count in lines:
        print(f"{count} x {sku}: {money(line_price(sku, count))}")
    print(f"Total: {money(total(lines, len(pack(dict(lines)))).gross)}")


if __name__ == "__main__":
    main(sys.argv[1:])
