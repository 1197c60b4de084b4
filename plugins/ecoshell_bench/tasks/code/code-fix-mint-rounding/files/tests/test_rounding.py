import unittest


from decimal import Decimal

from mint.currencies import convert
from mint.parsing import parse


class RoundingTest(unittest.TestCase):
    def test_two_half_cents(self):
        (found,) = parse("2024-01-01 * Ferry\n    expenses:way  0.05 ZOL @ 2\n    expenses:food  0.0025 MAR\n    assets:chest  -0.02\n")
        self.assertEqual([str(posting.value) for posting in found.postings], ["0.02", "0.00", "-0.02"])

    def test_convert(self):
        self.assertEqual(str(convert(Decimal(10), "KRO", "MAR")), "5.000")
