import unittest


from tablediff import compare


class Start(unittest.TestCase):
    def test_compare(self):
        old = [{"id": "1", "price": "2.50"}, {"id": "2", "price": "3"}]
        new = [{"id": "1", "price": "2.5"}, {"id": "2", "price": "4"}, {"id": "3", "price": "1"}]
        found = compare(old, new, ["id"])
        self.assertEqual(found.changed, [(("2",), {"price": ("3", "4")})])
        self.assertEqual(found.added, [{"id": "3", "price": "1"}])
        self.assertFalse(found.removed or found.moved)
