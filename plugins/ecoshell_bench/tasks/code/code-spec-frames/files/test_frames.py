import unittest


from frames import Decoder, FrameError, encode


class Examples(unittest.TestCase):
    def test_round_trip(self):
        data = encode("A", b"hello") + b"\n" + encode("Z", b"")
        self.assertEqual(Decoder().feed(data), [("A", b"hello"), ("Z", b"")])

    def test_encode(self):
        self.assertEqual(encode("A", b"ab"), b"A2:ab09\n")

    def test_error(self):
        with self.assertRaises(FrameError) as caught:
            Decoder().feed(b"A2:ab09\n?")
        self.assertEqual((caught.exception.offset, caught.exception.frames), (8, [("A", b"ab")]))
