import unittest


from datetime import datetime

from when import Schedule


class Examples(unittest.TestCase):
    def test_after(self):
        schedule = Schedule("every 15m from 08:00 to 17:30 on mon-fri")
        self.assertEqual(schedule.after(datetime(2024, 3, 1, 17, 20)), datetime(2024, 3, 1, 17, 30))
        self.assertEqual(schedule.after(datetime(2024, 3, 1, 17, 30)), datetime(2024, 3, 4, 8, 0))

    def test_text(self):
        self.assertEqual(str(Schedule("AT 17:15,09:00 on sun,mon,tue,wed")), "at 09:00,17:15 on mon-wed,sun")

    def test_wrong(self):
        with self.assertRaisesRegex(ValueError, "9:00"):
            Schedule("at 9:00")
