import unittest


from datetime import datetime as D, timedelta

from when import Schedule as S


class Hidden(unittest.TestCase):
    def test_wrong_texts(self):
        for text, word in (
            ("", "end"), ("at", "end"), ("now", "now"), ("at 24:00", "24:00"), ("at 09:00 every 1h", "every"), ("at 09:00 from 08:00 to 10:00", "from"),
            ("every 0m", "0m"), ("every 25h", "25h"), ("every 1441m", "1441m"), ("every 5s", "5s"), ("every 5m from 08:00", "end"),
            ("every 5m from 08:00 until 09:00", "until"), ("every 5m from 09:00 to 08:00", "08:00"), ("at 09:00 on mon,1", "mon,1"),
            ("at 09:00 on mon on tue", "on"), ("at 09:00 on 0", "0"), ("at 09:00 on 32", "32"), ("at 09:00 on moon", "moon"), ("at 09:00, 10:00", "09:00,"),
            ("on mon at 09:00", "on"), ("at 09:00 except 2023-02-29", "2023-02-29"), ("at 09:00 except", "end"), ("at 09:00 on mon-", "mon-"), ("every 1h on", "end"),
        ):
            with self.assertRaises(ValueError, msg=text) as caught:
                S(text)
            self.assertIn(word, str(caught.exception), text)

    def test_after(self):
        for text, moment, expected in (
            ("at 09:00", D(2024, 1, 1, 8, 59, 59), D(2024, 1, 1, 9)), ("at 09:00", D(2024, 1, 1, 9), D(2024, 1, 2, 9)),
            ("every 7h", D(2024, 1, 1, 21), D(2024, 1, 2)), ("every 24h", D(2024, 1, 1, 0, 0, 1), D(2024, 1, 2)),
            ("at 09:00 on 31", D(2024, 1, 31, 9), D(2024, 3, 31, 9)), ("at 09:00 on last", D(2024, 2, 1), D(2024, 2, 29, 9)),
            ("at 09:00 on fri-mon", D(2024, 3, 4, 10), D(2024, 3, 8, 9)), ("at 09:00 on 29 except 2024-02-29", D(2024, 2, 1), D(2024, 3, 29, 9)),
            ("every 1h from 10:30 to 12:00", D(2024, 1, 1, 11, 30), D(2024, 1, 2, 10, 30)), ("every 30m from 10:00 to 10:00", D(2024, 1, 1), D(2024, 1, 1, 10)),
        ):
            self.assertEqual(S(text).after(moment), expected, text)
        days = ",".join(str((D(2024, 1, 1) + timedelta(n)).date()) for n in range(401))
        self.assertIsNone(S(f"at 09:00 except {days}").after(D(2024, 1, 1)))

    def test_between(self):
        result = S("every 12h on 1,last,31").between(D(2024, 1, 31, 12), D(2024, 2, 29, 12))
        self.assertEqual(result, [D(2024, 1, 31, 12), D(2024, 2, 1), D(2024, 2, 1, 12), D(2024, 2, 29)])
        self.assertEqual(S("at 09:00,09:00").between(D(2024, 1, 1), D(2024, 1, 2)), [D(2024, 1, 1, 9)])
        self.assertEqual(S("at 09:00").between(D(2024, 1, 2), D(2024, 1, 1)), [])
        self.assertEqual(S("at 09:00").between(D(2024, 1, 1, 9), D(2024, 1, 1, 9, 0, 1)), [D(2024, 1, 1, 9)])

    def test_canonical(self):
        for text, expected in (
            ("every 120m", "every 2h"), ("every 90m from 00:00 to 23:59", "every 90m"), ("at 10:00,09:00,10:00", "at 09:00,10:00"),
            ("at 09:00 on mon-sun", "at 09:00"), ("at 09:00 on fri-mon", "at 09:00 on mon,fri-sun"), ("at 09:00 on tue,mon", "at 09:00 on mon,tue"),
            ("at 09:00 on last,15,1,1", "at 09:00 on 1,15,last"), ("Every 1H ON Mon FROM 08:00 to 09:00", "every 1h from 08:00 to 09:00 on mon"),
            ("at 09:00 except 2024-12-25,2024-12-24 on sat,sun", "at 09:00 on sat,sun except 2024-12-24,2024-12-25"), ("at 09:00 on wed-wed", "at 09:00 on wed"),
        ):
            self.assertEqual(str(S(text)), expected)
            self.assertEqual(str(S(expected)), expected)
            self.assertEqual(S(text), S(expected))
            self.assertEqual(hash(S(text)), hash(S(expected)))
        self.assertNotEqual(S("at 09:00"), S("at 10:00"))
        self.assertNotEqual(S("at 09:00"), "at 09:00")
