import unittest


from quill.reader import read
from quill.render import render
from quill.wrap import wrap


class QuillTest(unittest.TestCase):
    def test_wrap(self):
        self.assertEqual(wrap("one two three", 7), ["one two", "three"])
        self.assertEqual(wrap("the lantern", 8), ["the lan-", "tern"])

    def test_document(self):
        self.assertEqual(render(read("= Tea\n\nHot water.\n")), "***\nTea\n***\n\nHot water.\n")
