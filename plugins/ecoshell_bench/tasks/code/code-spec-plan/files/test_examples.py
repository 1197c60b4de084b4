import unittest


import json
from pathlib import Path

import jobplan

EXAMPLE = json.loads(Path(__file__).with_name("examples.json").read_text())


class Examples(unittest.TestCase):
    def test_examples(self):
        jobs = jobplan.read(EXAMPLE["text"])
        self.assertEqual(jobs.order(), EXAMPLE["order"])
        self.assertEqual(jobs.levels(), EXAMPLE["levels"])
        self.assertEqual(list(jobs.critical()), EXAMPLE["critical"])
        self.assertEqual([list(row) for row in jobs.schedule(1)], EXAMPLE["schedule_of_one_worker"])
