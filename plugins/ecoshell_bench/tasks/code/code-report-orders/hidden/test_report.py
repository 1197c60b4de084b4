import unittest


import json
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Report(unittest.TestCase):
    maxDiff = None

    def test_report(self):
        found = json.loads((HERE.parent / "summary.json").read_text(encoding="utf-8"))
        self.assertEqual(found, json.loads((HERE / "expected.txt").read_text(encoding="utf-8")))
