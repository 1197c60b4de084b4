import unittest


from depot.orders import Order
from depot.stock import Stock


class OrderTest(unittest.TestCase):
    def test_ship_at_once(self):
        stock = Stock({"ANC-M": 10})
        order = Order(1, "Ida", stock)
        order.add("ANC-M", 4)
        order.confirm()
        (parcel,) = order.ship()
        self.assertEqual((order.state, parcel.pieces), ("closed", {"ANC-M": 4}))
        self.assertEqual(stock.there("ANC-M"), 6)
