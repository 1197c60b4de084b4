import unittest


from rooms import Conflict, Rooms


class First(unittest.TestCase):
    def test_book(self):
        rooms = Rooms(["oak", "elm"])
        self.assertEqual(rooms.book("oak", "09:00", "10:00", "ana"), 1)
        with self.assertRaises(Conflict) as caught:
            rooms.book("oak", "09:30", "10:30", "bo")
        self.assertEqual(caught.exception.numbers, [1])
        self.assertEqual(rooms.free("oak"), [("08:00", "09:00"), ("10:00", "18:00")])
        self.assertEqual(rooms.first_free(90), ("08:00", "elm"))
