import unittest


import tracemalloc

from board import Board


class Hidden(unittest.TestCase):
    def setUp(self):
        self.board = Board(5, 4)

    def test_sizes_and_signs(self):
        for size in ((0, 1), (1, 0), (-1, 3)):
            with self.assertRaises(ValueError):
                Board(*size)
        for sign in ("", "ab", "\n", "\x07"):
            with self.assertRaises(ValueError):
                self.board.set(0, 0, sign)
        with self.assertRaises(ValueError):
            self.board.text(0, 0, "a\tb")
        for x, y in ((5, 0), (0, 4), (-1, 0), (0, -1)):
            with self.assertRaises(IndexError):
                self.board.set(x, y, "x")
            with self.assertRaises(IndexError):
                self.board[x, y]
            with self.assertRaises(IndexError):
                self.board.text(x, y, "")
        self.assertEqual((self.board.history(), str(self.board)), ([], "\n\n\n"))

    def test_lines(self):
        self.board.line(4, 3, 1, 0, "a"); self.board.line(0, 3, 0, 3, "b"); self.board.line(3, 0, 1, 2, "c")
        self.assertEqual(str(self.board), " a c\n  c\n c a\nb   a")
        with self.assertRaises(IndexError):
            self.board.line(2, 2, 5, 2, "x")
        for points in ((0, 0, 2, 1), (0, 0, 1, 3)):
            with self.assertRaises(ValueError):
                self.board.line(*points, "x")
        self.assertEqual(len(self.board.history()), 3)

    def test_fill(self):
        self.board.line(2, 0, 2, 3, "|"); self.board.fill(0, 0, "."); self.board.fill(3, 3, "|")
        self.assertEqual(str(self.board), "..|||\n" * 3 + "..|||")
        self.board.fill(4, 0, "|")
        self.assertEqual(self.board.history(), ["line", "fill", "fill"])
        big = Board(300, 300)
        big.fill(150, 150, "x")
        self.assertEqual(str(big).count("x"), 90_000)

    def test_undo_and_redo(self):
        for x in range(4):
            self.board.set(x, 0, str(x))
        self.assertEqual((self.board.undo(2), str(self.board).strip()), (2, "01"))
        self.board.set(0, 0, "0")
        self.assertEqual((self.board.redo(), str(self.board).strip()), (1, "012"))
        self.board.set(4, 0, "x")
        self.assertEqual((self.board.redo(9), self.board.undo(9), self.board.redo(9)), (0, 4, 4))
        self.assertEqual(str(self.board).strip(), "012 x")

    def test_groups(self):
        with self.board.group("house"):
            self.board.set(0, 0, "a")
            with self.board.group("roof"):
                self.board.set(0, 0, "b"); self.board.set(1, 1, "c")
            for wrong in (self.board.undo, self.board.redo):
                with self.assertRaises(RuntimeError):
                    wrong()
        with self.board.group("nothing"):
            self.board.set(0, 0, "b")
        self.assertEqual(self.board.history(), ["house"])
        self.board.undo()
        self.assertEqual((str(self.board).strip(), self.board.history()), ("", []))
        self.board.redo()
        self.assertEqual((self.board[0, 0], self.board[1, 1]), ("b", "c"))

    def test_groups_that_fail(self):
        self.board.set(0, 0, "a"); self.board.set(1, 0, "b"); self.board.undo()
        with self.assertRaises(ZeroDivisionError), self.board.group("g"):
            self.board.set(2, 0, "x"); self.board.set(0, 0, "y")
            1 / 0
        self.assertEqual((str(self.board).strip(), self.board.history(), self.board.redo()), ("a", ["set"], 1))
        with self.board.group("outer"):
            self.board.set(2, 0, "c")
            try:
                with self.board.group("inner"):
                    self.board.set(2, 0, "z"); self.board.set(3, 0, "d")
                    raise KeyError
            except KeyError:
                pass
            self.assertEqual(str(self.board).strip(), "abc")
        self.assertEqual(self.board.history(), ["set", "set", "outer"])
        self.board.undo()
        self.assertEqual(str(self.board).strip(), "ab")

    def test_a_group_that_ends_as_it_began(self):
        with self.board.group("there and back"):
            self.board.set(0, 0, "a"); self.board.set(0, 0, " ")
        self.assertEqual(self.board.history(), [])

    def test_marks(self):
        self.board.set(1, 1, "a"); self.board.mark("m"); self.board.set(1, 1, "b"); self.board.set(0, 2, "c"); self.board.set(3, 0, "d")
        self.assertEqual(self.board.changes("m"), [(3, 0, " ", "d"), (1, 1, "a", "b"), (0, 2, " ", "c")])
        self.board.restore("m")
        self.assertEqual((self.board.changes("m"), self.board.history()[-1]), ([], "restore m"))
        self.board.restore("m")
        self.assertEqual(len(self.board.history()), 5)
        self.board.undo()
        self.assertEqual(self.board[0, 2], "c")
        for wrong in (self.board.restore, self.board.changes):
            with self.assertRaises(KeyError):
                wrong("q")

    def test_limit(self):
        for x in range(5):
            self.board.set(x, 0, "x")
        self.board.limit(2)
        self.assertEqual((self.board.history(), self.board.undo(9)), (["set"] * 2, 2))
        self.assertEqual(self.board.redo(9), 2)
        self.board.set(0, 1, "y")
        self.assertEqual(len(self.board.history()), 2)
        self.board.limit(0)
        self.board.set(0, 2, "z")
        self.assertEqual((self.board.history(), self.board.undo()), ([], 0))
        with self.assertRaises(ValueError):
            self.board.limit(-1)

    def test_memory(self):
        board = Board(1000, 1000)
        tracemalloc.start()
        try:
            for number in range(10_000):
                board.set(number % 1000, number // 1000, "x")
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(used, 20_000_000)
        self.assertEqual(board.undo(10_000), 10_000)
