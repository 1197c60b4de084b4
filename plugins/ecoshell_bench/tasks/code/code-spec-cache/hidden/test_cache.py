import unittest


import tempfile
from pathlib import Path

from shelf.cache import Cache, Full
from shelf.loader import Loader


class Hidden(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.gone = []

    def cache(self, capacity, **options):
        made = Cache(capacity, clock=lambda: self.now, **options)
        made.on_evict = lambda key, value: self.gone.append((key, value))
        return made

    def test_arguments(self):
        for wrong in (0, -1):
            with self.assertRaises(ValueError):
                Cache(wrong)
            with self.assertRaises(ValueError):
                self.cache(3).put("a", 1, weight=wrong)
            with self.assertRaises(ValueError):
                self.cache(3).put("a", 1, ttl=wrong)

    def test_least_often_then_longest_ago(self):
        cache = self.cache(3)
        for key in "abc":
            cache.put(key, key.upper())
        cache.get("a"); cache.get("a"); cache.get("c"); cache.get("b")
        self.assertEqual(list(cache), ["c", "b", "a"])
        cache.put("d", "D")
        self.assertEqual(self.gone, [("c", "C")])
        cache.put("e", "E")
        self.assertEqual(self.gone, [("c", "C"), ("d", "D")])
        self.assertEqual(list(cache), ["e", "b", "a"])

    def test_storing_again_is_a_use(self):
        cache = self.cache(2)
        cache.put("a", 1); cache.put("b", 1); cache.put("a", 2); cache.put("c", 1)
        self.assertEqual(sorted(cache), ["a", "c"])
        self.assertEqual(cache.peek("a"), 2)

    def test_weights(self):
        cache = self.cache(10)
        cache.put("a", 1, weight=4); cache.put("b", 1, weight=4)
        cache.put("c", 1, weight=7)
        self.assertEqual((list(cache), cache.weight, len(self.gone)), (["c"], 7, 2))
        cache.put("c", 2, weight=10)
        self.assertEqual((cache.weight, len(self.gone)), (10, 2))
        cache.put("c", 3, weight=11)
        self.assertEqual((len(cache), cache.weight, "c" in cache, len(self.gone)), (0, 0, False, 2))
        cache.put("x", 1, weight=11)
        self.assertEqual(len(cache), 0)

    def test_growing_entry_makes_others_go(self):
        cache = self.cache(10)
        cache.put("a", 1, weight=5); cache.put("b", 1, weight=5)
        cache.get("b"); cache.get("b")
        cache.put("a", 2, weight=6)
        self.assertEqual((list(cache), self.gone), (["a"], [("b", 1)]))

    def test_time(self):
        cache = self.cache(2, ttl=10)
        cache.put("a", 1); cache.put("b", 1, ttl=None)
        self.now = 9.9
        self.assertEqual(cache.get("a"), 1)
        self.now = 10.0
        self.assertEqual((cache.get("a", "no"), cache.peek("b"), "a" in cache, len(cache), list(cache)), ("no", 1, False, 1, ["b"]))
        self.assertEqual(cache.stats(), {"hits": 1, "misses": 1, "evicted": 0, "expired": 1})
        cache.put("c", 1, ttl=1)
        self.now = 11.0
        self.assertEqual((cache.weight, len(cache)), (1, 1))
        cache.put("d", 1)
        self.assertEqual((sorted(cache), self.gone, cache.stats()["expired"]), (["b", "d"], [], 2))

    def test_pins(self):
        cache = self.cache(2)
        cache.put("a", 1); cache.put("b", 1)
        cache.pin("a"); cache.pin("a"); cache.get("b"); cache.get("b")
        self.assertEqual(list(cache), ["b", "a"])
        cache.put("c", 1)
        self.assertEqual(self.gone, [("b", 1)])
        cache.pin("c")
        with self.assertRaises(Full):
            cache.put("d", 1)
        self.assertEqual((sorted(cache), len(self.gone)), (["a", "c"], 1))
        cache.put("a", 5)
        cache.unpin("a")
        with self.assertRaises(Full):
            cache.put("d", 1)
        cache.unpin("a")
        with self.assertRaises(ValueError):
            cache.unpin("a")
        with self.assertRaises(KeyError):
            cache.pin("zz")
        cache.put("d", 1)
        self.assertEqual((sorted(cache), self.gone[-1]), (["c", "d"], ("a", 5)))
        self.assertIsInstance(Full(), Exception)

    def test_full_changes_nothing(self):
        cache = self.cache(4)
        cache.put("a", 1, weight=2); cache.put("b", 2, weight=2)
        cache.pin("a")
        with self.assertRaises(Full):
            cache.put("c", 3, weight=3)
        with self.assertRaises(Full):
            cache.put("b", 4, weight=3)
        self.assertEqual((cache.peek("b"), cache.weight, self.gone), (2, 4, []))
        cache.put("a", 9, weight=5)
        self.assertEqual(list(cache), ["b"])

    def test_callback_may_use_the_cache(self):
        cache = self.cache(1)
        seen = []
        cache.on_evict = lambda key, value: seen.append((key, list(cache)))
        cache.put("a", 1); cache.put("b", 1)
        self.assertEqual(seen, [("a", ["b"])])

    def test_delete_and_clear(self):
        cache = self.cache(3)
        cache.put("a", 1); cache.get("a"); cache.get("b")
        self.assertEqual((cache.delete("a"), cache.delete("a")), (True, False))
        cache.put("b", 1); cache.clear()
        self.assertEqual((len(cache), cache.stats()["hits"], cache.stats()["misses"], self.gone), (0, 1, 1, []))

    def test_loader(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in "abc":
                Path(folder, name).write_text(name * 6)
            loader = Loader(folder, capacity=12)
            loader.hold("a"); loader.hold("b")
            self.assertEqual(loader.text("c"), "cccccc")
            loader.let_go("a")
            self.assertEqual(loader.text("c"), "cccccc")
            self.assertEqual(loader.text("c"), "cccccc")
            self.assertEqual(loader.hit_rate, 1 / 5)
