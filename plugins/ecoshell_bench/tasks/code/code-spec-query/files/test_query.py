import unittest


from library import query
from library.books import SHELF


class Examples(unittest.TestCase):
    def test_examples(self):
        for text, wanted in (("lake", [0, 3]), ("lak*", [0, 1, 3]), ("sea pages>400 or walking", [1, 2]), ("year:1990 sort:-pages", [4, 0])):
            found = query.compile(text).run(SHELF)
            self.assertEqual([SHELF.index(book) for book in found], wanted, text)
