import unittest


from rooms import Conflict, Rooms


class Hidden(unittest.TestCase):
    def setUp(self):
        self.rooms = Rooms(["oak", "elm"])

    def test_times(self):
        for start, end in (("9:00", "10:00"), ("09:60", "10:00"), ("24:00", "24:00"), ("09:00", "25:00"), ("", "10:00"), ("10:00", "10:00"), ("11:00", "10:00"), ("07:59", "09:00"), ("17:00", "18:01"), ("09:00", "24:01")):
            with self.assertRaises(ValueError, msg=(start, end)):
                self.rooms.book("oak", start, end, "ana")
        day = Rooms(["r"], "00:00", "24:00")
        self.assertEqual(day.book("r", "23:00", "24:00", "x"), 1)
        self.assertEqual(day.free("r"), [("00:00", "23:00")])

    def test_numbers(self):
        one = self.rooms.book("oak", "08:00", "09:00", "ana")
        two = self.rooms.book("oak", "09:00", "10:00", "ana")
        with self.assertRaises(Conflict) as caught:
            self.rooms.book("oak", "08:30", "09:30", "bo")
        self.assertEqual(caught.exception.numbers, [one, two])
        with self.assertRaises(KeyError):
            self.rooms.book("ash", "08:30", "09:30", "bo")
        self.rooms.cancel(two)
        with self.assertRaises(KeyError):
            self.rooms.cancel(two)
        self.assertEqual(self.rooms.book("oak", "09:00", "10:00", "ana"), 3)
        self.assertIsInstance(caught.exception, Exception)

    def test_move(self):
        one = self.rooms.book("oak", "08:00", "09:00", "ana")
        two = self.rooms.book("oak", "10:00", "11:00", "bo")
        self.rooms.move(one, start="08:30")
        self.assertEqual(self.rooms.agenda("ana"), [("08:30", "09:30", "oak")])
        with self.assertRaises(Conflict) as caught:
            self.rooms.move(one, start="09:30")
        self.assertEqual(caught.exception.numbers, [two])
        self.assertEqual(self.rooms.agenda("ana"), [("08:30", "09:30", "oak")])
        with self.assertRaises(ValueError):
            self.rooms.move(one, start="17:30")
        with self.assertRaises(KeyError):
            self.rooms.move(one, room="ash")
        with self.assertRaises(KeyError):
            self.rooms.move(9, room="elm")
        self.rooms.move(one, room="elm", end="12:00")
        self.assertEqual(self.rooms.agenda("ana"), [("08:30", "12:00", "elm")])
        self.rooms.move(one, start="09:00", end="09:30")
        self.assertEqual(self.rooms.agenda("ana"), [("09:00", "09:30", "elm")])

    def test_free(self):
        for start, end in (("10:00", "11:00"), ("11:10", "12:00"), ("08:00", "08:30")):
            self.rooms.book("oak", start, end, "ana")
        self.assertEqual(self.rooms.free("oak"), [("08:30", "10:00"), ("11:00", "11:10"), ("12:00", "18:00")])
        self.assertEqual(self.rooms.free("oak", 11), [("08:30", "10:00"), ("12:00", "18:00")])
        self.assertEqual(self.rooms.first_free(600), ("08:00", "elm"))
        self.rooms.book("elm", "08:00", "09:00", "bo")
        self.assertEqual(self.rooms.first_free(60), ("08:30", "oak"))
        self.assertEqual(self.rooms.first_free(60, "09:00"), ("09:00", "oak"))
        self.assertEqual(self.rooms.first_free(61, "09:00"), ("09:00", "elm"))
        self.assertIsNone(self.rooms.first_free(60, "17:01"))
        self.assertEqual(self.rooms.first_free(60, "17:00"), ("17:00", "oak"))

    def test_agenda_and_load(self):
        self.rooms.book("oak", "09:00", "10:00", "ana")
        self.rooms.book("oak", "10:00", "10:30", "ana")
        self.rooms.book("oak", "10:30", "11:00", "bo")
        self.rooms.book("elm", "10:30", "11:00", "ana")
        self.rooms.book("elm", "09:30", "10:00", "ana")
        self.assertEqual(self.rooms.agenda("ana"), [("09:00", "10:30", "oak"), ("09:30", "10:00", "elm"), ("10:30", "11:00", "elm")])
        self.assertEqual(self.rooms.agenda("nobody"), [])
        self.assertEqual(self.rooms.load(), {"oak": 0.2, "elm": 0.1})
        self.assertEqual(Rooms(["a"], "08:00", "08:07").load(), {"a": 0.0})
