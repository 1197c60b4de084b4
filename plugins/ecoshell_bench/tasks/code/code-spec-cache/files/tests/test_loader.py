import unittest


import tempfile
from pathlib import Path

from shelf.loader import Loader


class Loading(unittest.TestCase):
    def test_hit_rate(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.txt").write_text("hello")
            loader = Loader(folder)
            self.assertIsNone(loader.hit_rate)
            self.assertEqual([loader.text("a.txt") for _ in range(4)], ["hello"] * 4)
            self.assertEqual(loader.hit_rate, 0.75)
