import unittest


from depot import catalogue, documents, packing, pricing
from depot.models import DepotError, Line
from depot.orders import Order
from depot.stock import Stock


class Hidden(unittest.TestCase):
    def test_stock(self):
        stock = Stock({"ANC-M": 10, "TUB-S": 2})
        with self.assertRaises(DepotError):
            stock.promise_all([("ANC-M", 4), ("TUB-S", 3)])
        self.assertEqual((stock.promised("ANC-M"), stock.promised("TUB-S")), (0, 0))
        stock.promise_all([("ANC-M", 4), ("TUB-S", 2)])
        stock.receive("TUB-S", 5)
        self.assertEqual((stock.there("TUB-S"), stock.free("TUB-S")), (7, 5))
        stock.release("TUB-S", 1)
        self.assertEqual(stock.promised("TUB-S"), 1)
        for wrong in (lambda: stock.release("TUB-S", 2), lambda: stock.take("ANC-M", 5), lambda: stock.correct("ANC-M", 3), lambda: stock.receive("ANC-M", 0)):
            with self.assertRaises(DepotError):
                wrong()
        stock.correct("ANC-M", 4)
        self.assertEqual((stock.free("ANC-M"), stock.journal[-1]), (0, ("correct", "ANC-M", -6)))

    def test_line_prices(self):
        for article in catalogue.ARTICLES:
            for count in (1, article.pack - 1, article.pack, article.pack + 1, 3 * article.pack + 2):
                packs = count // article.pack * article.pack if article.pack > 1 else 0
                off = int(packs * article.cents * 8 / 100 + 0.5 + 1e-9)
                self.assertEqual(pricing.line_price(Line(article.sku, count)), count * article.cents - off, (article, count))

    def test_totals(self):
        self.assertEqual([pricing.discount(cents) for cents in (10_000, 10_001, 50_000, 50_001)], [0, 300, 1500, 2500])
        anchor = catalogue.BY_SKU["ANC-XS"]
        self.assertEqual((anchor.cents, anchor.pack), (15, 1))
        price = pricing.total([Line("ANC-XS", 1000)], parcels=3)
        self.assertEqual((price.lines, price.discount, price.postage, price.tax, price.gross), (15_000, 450, 1470, 3044, 19_064))
        price = pricing.total([Line("ANC-XS", 1718)], parcels=2)
        self.assertEqual((price.discount, price.postage, price.net), (773, 980, 25_977))
        self.assertEqual(pricing.total(iter([Line("ANC-XS", 1719)]), parcels=2).postage, 0)

    def test_catalogue(self):
        by_name = {}
        for article in catalogue.ARTICLES:
            noun, size = article.name.split(" ")
            self.assertEqual(article.sku, f"{noun[:3].upper()}-{size.strip('()').upper()}")
            by_name.setdefault(noun, []).append(article)
        for number, articles in enumerate(by_name.values()):
            self.assertEqual([article.cents for article in articles], [15 + 7 * number + 11 * k for k in range(5)], articles)
            self.assertEqual([article.grams for article in articles], [40 + 3 * number + 25 * k for k in range(5)], articles)

    def test_packing(self):
        for pieces in ({"WAS-XL": 30}, {"WAS-XL": 9, "ANC-XS": 40}, {"ANC-S": 28}, {"ANC-S": 29}, {}):
            parcels = packing.pack(pieces)
            packed = {}
            for parcel in parcels:
                grams = 150 + sum(count * catalogue.BY_SKU[sku].grams for sku, count in parcel.pieces.items())
                self.assertEqual(parcel.grams, grams)
                self.assertLessEqual(grams, 2000)
                for sku, count in parcel.pieces.items():
                    packed[sku] = packed.get(sku, 0) + count
            self.assertEqual(packed, pieces)
        self.assertEqual([len(packing.pack({"ANC-S": count})) for count in (28, 29)], [1, 2])
        self.assertEqual([parcel.pieces for parcel in packing.pack({"WAS-XL": 9, "ANC-XS": 9})], [{"WAS-XL": 9, "ANC-XS": 1}, {"ANC-XS": 8}])

    def order(self, stock, *lines):
        order = Order(7, "Ida", stock)
        for line in lines:
            order.add(*line)
        return order

    def test_shipping_in_parts(self):
        stock = Stock({"ANC-M": 10, "TUB-S": 10})
        order = self.order(stock, ("ANC-M", 3), ("TUB-S", 5), ("ANC-M", 2))
        order.confirm()
        self.assertEqual([(line.sku, line.count) for line in order.lines], [("ANC-M", 5), ("TUB-S", 5)])
        order.ship({"ANC-M": 2})
        self.assertEqual((order.state, stock.there("ANC-M"), stock.promised("ANC-M")), ("confirmed", 8, 3))
        for wrong in ({"ANC-M": 4}, {"ANC-M": 0}, {"GAS-M": 1}):
            with self.assertRaises(DepotError):
                order.ship(wrong)
        order.ship()
        self.assertEqual((order.state, len(order.parcels), stock.promised("TUB-S"), stock.there("TUB-S")), ("closed", 2, 0, 5))
        with self.assertRaises(DepotError):
            order.cancel()

    def test_cancelling(self):
        stock = Stock({"ANC-M": 10})
        order = self.order(stock, ("ANC-M", 6))
        order.confirm()
        order.ship({"ANC-M": 4})
        order.cancel()
        self.assertEqual((stock.there("ANC-M"), stock.promised("ANC-M"), stock.free("ANC-M")), (6, 0, 6))
        self.assertEqual((order.price().lines, order.price().postage), (4 * 37, 490))
        draft = self.order(stock, ("ANC-M", 6))
        draft.cancel()
        self.assertEqual(stock.free("ANC-M"), 6)
        with self.assertRaises(DepotError):
            draft.add("ANC-M", 1)

    def test_price_counts_parcels_that_are_to_come(self):
        stock = Stock({"WAS-XL": 100})
        order = self.order(stock, ("WAS-XL", 10))
        self.assertEqual(order.price().postage, 980)
        order.confirm()
        order.ship({"WAS-XL": 1})
        self.assertEqual(order.price().postage, 980)
        order.ship({"WAS-XL": 1})
        self.assertEqual(order.price().postage, 3 * 490)

    def test_documents(self):
        self.assertEqual([documents.money(cents) for cents in (0, 5, -5, 123456, -123456)], ["0.00", "0.05", "-0.05", "1,234.56", "-1,234.56"])
        stock = Stock({"ANC-XS": 2000, "ANC-S": 12})
        order = self.order(stock, ("ANC-XS", 1000), ("ANC-S", 12))
        self.assertEqual(documents.invoice(order).splitlines(), [
            "Invoice 7 for Ida", "", "1000 x anchor (xs)  150.00", "12 x anchor (s)       2.91", "Sum                 152.91", "Discount             -4.59",
            "Postage             112.70", "Tax                  49.59", "Total               310.61",
        ])
        order.confirm()
        order.ship({"ANC-S": 12})
        self.assertEqual(documents.packing_slips(order), ["Parcel 1 of 1, 930 g\n12 x anchor (s)"])
        self.assertEqual(documents.stock_list(stock, 1)[:2], ["ANC-L: 0 free, 0 promised", "ANC-M: 0 free, 0 promised"])

    def test_the_old_signatures_are_gone(self):
        with self.assertRaises(TypeError):
            pricing.line_price("ANC-S", 12)
        with self.assertRaises(TypeError):
            pricing.total([Line("ANC-S", 12)], 1)
        with self.assertRaises(AttributeError):
            pricing.total([("ANC-S", 12)], parcels=1)

    def test_lines_stay_as_they_are(self):
        line = Line("ANC-S", 12, shipped=3)
        self.assertEqual(pricing.line_price(line), 291)
        self.assertEqual(line, Line("ANC-S", 12, 3))

    def test_the_script(self):
        import subprocess
        import sys

        ended = subprocess.run([sys.executable, "-m", "scripts.quote", "ANC-S", "12", "ANC-M", "3"], capture_output=True, text=True)
        self.assertEqual(ended.stdout, "12 x ANC-S: 2.91\n3 x ANC-M: 1.11\nTotal: 10.61\n", ended.stderr)

    def test_the_visible_tests_still_run(self):
        import subprocess
        import sys

        ended = subprocess.run([sys.executable, "-m", "unittest", "discover", "-s", "tests", "-t", "."], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stderr, r"Ran ([4-9]|\d\d)")
