import unittest


from depot.models import DepotError
from depot.stock import Stock


class StockTest(unittest.TestCase):
    def test_promise_and_take(self):
        stock = Stock({"ANC-M": 10})
        stock.promise("ANC-M", 4)
        self.assertEqual((stock.there("ANC-M"), stock.free("ANC-M")), (10, 6))
        stock.take("ANC-M", 3)
        self.assertEqual((stock.there("ANC-M"), stock.promised("ANC-M"), stock.free("ANC-M")), (7, 1, 6))

    def test_unknown(self):
        with self.assertRaises(DepotError):
            Stock().free("NO-SUCH")
