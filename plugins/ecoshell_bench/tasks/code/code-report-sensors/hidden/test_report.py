import unittest


from pathlib import Path

HERE = Path(__file__).resolve().parent


class Report(unittest.TestCase):
    maxDiff = None

    def test_report(self):
        result = (HERE.parent / "sensors.csv").read_text(encoding="utf-8")
        correct = (HERE / "expected.txt").read_text(encoding="utf-8")
        self.assertEqual([line.rstrip() for line in result.strip().splitlines()], [line.rstrip() for line in correct.strip().splitlines()])
