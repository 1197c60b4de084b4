import unittest


from decimal import Decimal

from mint.books import Books
from mint.parsing import parse

JOURNAL = """2024-03-01 * Market day
    assets:chest        120.00
    income:stalls

2024-03-02 ! Rope and lamps   ; from Odo
    expenses:gear        12.50 ZOL @ 4.25
    assets:chest
"""


class MintTest(unittest.TestCase):
    def test_balance(self):
        books = Books(parse(JOURNAL))
        self.assertEqual(books.balance("income"), Decimal("-120.00"))
        self.assertEqual(books.balance(), 0)

    def test_comment(self):
        self.assertEqual(parse(JOURNAL)[1].comment, "from Odo")
