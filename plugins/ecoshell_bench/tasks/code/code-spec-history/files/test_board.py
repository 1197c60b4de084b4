import unittest


from board import Board


class Rules(unittest.TestCase):
    def test_drawing(self):
        board = Board(4, 3)
        board.line(0, 0, 2, 2, "x")
        board.text(1, 0, "hello")
        self.assertEqual(str(board), "xhel\n x\n  x")
        board.undo()
        self.assertEqual(str(board), "x\n x\n  x")
        self.assertEqual(board.history(), ["line"])
