import unittest


import random
import time

from frames import Decoder, FrameError, encode


def outcome(data, size, **options):
    decoder, result = Decoder(**options), []
    try:
        for start in range(0, len(data), size):
            result += decoder.feed(data[start : start + size])
        decoder.close()
    except FrameError as error:
        return result + list(error.frames), error.offset
    return result, None


class Hidden(unittest.TestCase):
    def test_any_split_gives_the_same(self):
        choose = random.Random(5)
        for _ in range(200):
            frames = [(choose.choice("AQZ"), choose.randbytes(choose.choice([0, 1, 9, 10, 300]))) for _ in range(3)]
            data = b"\n".join(encode(*frame) for frame in frames)
            if choose.random() < 0.5:
                place = choose.randrange(len(data))
                data = data[:place] + bytes([choose.randrange(256)]) + data[place + 1 :]
            self.assertEqual(outcome(data, 1), outcome(data, len(data)))
            self.assertEqual(outcome(data, 1), outcome(data, 7))

    def test_errors(self):
        right = b"A2:ab09\n"
        for data, frames, offset in (
            (b"a1:x", 0, 0), (b"A:x", 0, 1), (b"A01:x", 0, 2), (b"A0:", 0, 3), (b"Ax", 0, 1), (b"A65537:", 0, 5),
            (b"A655360:", 0, 6), (b"A2:ab19\n", 0, 5), (b"A2:ab08\n", 0, 6), (b"A2:ab09A", 0, 7), (right + b"A2:a", 1, 12),
            (right + b"\n\n", 1, None), (b"A", 0, 1), (b"A2:ab0", 0, 6), (b"A2:ab09", 0, 7), (b" ", 0, 0),
        ):
            result, at = outcome(data, len(data))
            self.assertEqual((len(result), at), (frames, offset), data)

    def test_limit(self):
        self.assertEqual(outcome(b"A11:", 4, limit=10)[1], 2)
        self.assertEqual(outcome(encode("A", b"x" * 10), 3, limit=10), ([("A", b"x" * 10)], None))

    def test_broken_stays_broken(self):
        decoder = Decoder()
        with self.assertRaises(FrameError) as first:
            decoder.feed(encode("B", b"1") + b"?")
        for again in (lambda: decoder.feed(encode("A", b"")), decoder.close, lambda: decoder.feed(b"")):
            with self.assertRaises(FrameError) as later:
                again()
            self.assertEqual((later.exception.offset, list(later.exception.frames)), (first.exception.offset, []))
        self.assertEqual(first.exception.frames, [("B", b"1")])

    def test_closed(self):
        decoder = Decoder()
        decoder.feed(encode("A", b"1"))
        decoder.close()
        with self.assertRaises(ValueError) as caught:
            decoder.feed(b"A")
        self.assertNotIsInstance(caught.exception, FrameError)

    def test_encode(self):
        for kind, payload in (("a", b""), ("", b""), ("AB", b""), ("É", b""), ("A", b"x" * 65537)):
            with self.assertRaises(ValueError):
                encode(kind, payload)
        self.assertEqual(Decoder().feed(encode("A", b"x" * 65536)), [("A", b"x" * 65536)])

    def test_speed(self):
        data = encode("A", b"x" * 65536)
        started, decoder = time.process_time(), Decoder()
        result = [frame for byte in data for frame in decoder.feed(bytes([byte]))]
        self.assertEqual(len(result), 1)
        self.assertLess(time.process_time() - started, 10)
