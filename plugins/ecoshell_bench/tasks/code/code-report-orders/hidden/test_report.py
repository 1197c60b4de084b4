import unittest


import json
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Report(unittest.TestCase):
    maxDiff = None

    def test_report(self):
        result = json.loads((HERE.parent / "summary.json").read_text(encoding="utf-8"))
        self.assertEqual(result, json.loads((HERE / "expected.txt").read_text(encoding="utf-8")))
