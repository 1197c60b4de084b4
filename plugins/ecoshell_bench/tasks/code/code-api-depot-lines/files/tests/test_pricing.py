import unittest


from depot.pricing import line_price, total


class PricingTest(unittest.TestCase):
    def test_a_pack(self):
        self.assertEqual(line_price("ANC-S", 12), 291)
        self.assertEqual(line_price("ANC-XS", 2), 30)

    def test_a_large_order(self):
        self.assertEqual(total([("ANC-XS", 1718)], 2).postage, 980)
