import unittest


from library import query
from library.books import SHELF, Book


class Hidden(unittest.TestCase):
    def test_matching(self):
        for text, expected in (
            ("", [0, 1, 2, 3, 4]), ("  ", [0, 1, 2, 3, 4]), ("LAKE", [0, 3]), ('"grey lake"', [0]), ('"lake grey"', []), ('"ash sea"', []), ('author:"mary ash"', [0]), ("author:ash", [0, 4]), ("tag:history", [4]),
            ("history", [2, 4]), ("title:sea", []), ('"winter again"', [3]), ("wint*", [0, 3]), ("title:w*", [1, 3, 4]), ("year<=1990", [0, 3, 4]), ("year<1950", [3]), ("pages>320", [2, 4]), ("pages>=320", [0, 2, 4]), ("year:2001", [1]),
            ("-year>1", [2]), ("not lake", [1, 2, 4]), ("-lake -sea", [1, 4]), ("ash not sea", [4]), ("not (ash or oak)", [1, 3]), ("lake or salt sea", [0, 2, 3]), ("(lake or salt) sea", [0, 2]), ("not not lake", [0, 3]),
            ('"and"', [4]), ('title:"and"', [4]), ("a AND history", [2]), ("lake OR NOT sea", [0, 1, 3, 4]), ("mary(sea)", [0, 2]), ("--lake", [0, 3]), ("-(sea)", [1, 3, 4]),
        ):
            result = query.compile(text)
            self.assertEqual([SHELF.index(book) for book in result.run(SHELF)], expected, text)
            self.assertEqual([n for n, book in enumerate(SHELF) if result.matches(book)], expected, text)

    def test_sorting(self):
        for text, expected in (("sort:year", [3, 0, 4, 1, 2]), ("sort:-year", [1, 0, 4, 3, 2]), ("sort:author", [3, 4, 0, 2, 1]), ("sea sort:-title", [0, 2]), ("sort:-pages", [2, 4, 0, 1, 3]), ("lake or sea sort:pages", [0, 2, 3])):
            self.assertEqual([SHELF.index(book) for book in query.compile(text).run(SHELF)], expected, text)
        same = [Book("b", "x", 1), Book("a", "x", 1), Book("C", "x", 1)]
        self.assertEqual([book.title for book in query.compile("sort:-year").run(same)], ["b", "a", "C"])
        self.assertEqual([book.title for book in query.compile("sort:title").run(same)], ["a", "b", "C"])

    def test_errors(self):
        for text, position in (
            (")", 0), ("a )", 2), ("(a", 0), ("a (b", 2), ('a "b', 2), ("or a", 0), ("a or", 4), ("a and or b", 6), ("not", 3), ("a -", 3), ("()", 1), ("size:3", 0), ("a size>3", 2), ("title>3", 6), ("year:", 5), ("year:abc", 5),
            ("year: 1990", 5), ("*", 0), ("a !", 2), ("title:", 0), ('a "!"', 2), ("sort:year a", 0), ("a sort:size", 2), ("sort:year sort:year", 0), ("(a sort:year)", 3), ("year>-1", 5), ("a or sort:year", 5), ("pages>=3x", 7),
        ):
            with self.assertRaises(query.QueryError, msg=text) as caught:
                query.compile(text)
            self.assertEqual(caught.exception.position, position, text)
        self.assertTrue(issubclass(query.QueryError, ValueError))

    def test_text(self):
        for text, expected in (
            ("", ""), ("A  b", "a and b"), ("a b or c d", "a and b or c and d"), ("a (b or c)", "a and (b or c)"), ("(a b) c", "a and b and c"), ("a or (b or c)", "a or b or c"), ("-(a b)", "not (a and b)"), ("NOT -a", "not not a"),
            ('"Grey   Lake"', '"grey lake"'), ('"Grey"', "grey"), ('title:"And"', 'title:"and"'), ('"or"', '"or"'), ("Lak* sort:-YEAR".replace("YEAR", "year"), "lak* sort:-year"), ("year<=1990 title:A", "year<=1990 and title:a"), ("sort:title", "sort:title"),
            ("not (a)", "not a"), ("((a or b)) sort:pages", "a or b sort:pages"), ("year:0100", "year:100"),
        ):
            self.assertEqual(str(query.compile(text)), expected, text)
            self.assertEqual(str(query.compile(expected)), expected)
