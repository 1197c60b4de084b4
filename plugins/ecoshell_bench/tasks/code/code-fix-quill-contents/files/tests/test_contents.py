import unittest


from quill.contents import contents
from quill.reader import read


class ContentsTest(unittest.TestCase):
    def test_levels(self):
        found = contents(read("== a\n=== b\n== c\n=== d\n==== e\n=== f\n"))
        self.assertEqual(found, ["1 a", "  1.1 b", "2 c", "  2.1 d", "    2.1.1 e", "  2.2 f"])

    def test_a_level_left_out(self):
        self.assertEqual(contents(read("==== a\n== b\n")), ["    1.1.1 a", "2 b"])
