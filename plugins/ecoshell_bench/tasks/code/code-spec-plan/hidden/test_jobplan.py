import unittest


import jobplan
from jobplan import Error, read


class Hidden(unittest.TestCase):
    def test_reading(self):
        jobs = read("# start\n\n b.1(1h2m3s):a_x ,c-2;cpu = 2,ram=10 # end\na_x (0s)\nc-2 ( 90m )\n")
        self.assertEqual(list(jobs), ["b.1", "a_x", "c-2"])
        job = jobs["b.1"]
        self.assertEqual((job.name, job.seconds, job.needs, job.uses), ("b.1", 3723, ("a_x", "c-2"), {"cpu": 2, "ram": 10}))
        self.assertEqual((len(jobs), jobs["c-2"].seconds, jobs["a_x"].needs, jobs["a_x"].uses), (3, 5400, (), {}))
        self.assertEqual(len(read("")), 0)

    def test_errors(self):
        for text, line in (
            ("a", 1), ("a ()", 1), ("a (5)", 1), ("a (5s5m)", 1), ("a (1m1m)", 1), ("a (5s) :", 1), ("a (5s) ;", 1), ("a (5s) : b,", 1), ("a (1s); cpu=0", 1),
            ("a (1s); cpu=1.5", 1), ("\na (1s)\na (2s)", 3), ("a (1s) : b, b\nb (1s)", 1), ("a (1s) : x\nb (1s", 2), ("b (1s)\n\na (1s) : x\nc (1s) : y", 3),
            ("a b (1s)", 1), ("ä! (1s)", 1), ("a (1s) b", 1), ("a (1s) ; cpu=1 : b\nb (1s)", 1),
        ):
            with self.assertRaises(Error, msg=text) as caught:
                read(text)
            self.assertTrue(str(caught.exception).startswith(f"line {line}: "), (text, str(caught.exception)))
        self.assertTrue(issubclass(Error, ValueError))

    def test_cycles(self):
        for text, cycle in (
            ("a (1s) : a", "a -> a"), ("x (1s) : b\nb (1s) : c\nc (1s) : b", "b -> c -> b"),
            ("a (1s) : b\nb (1s) : c\nc (1s) : a, d\nd (1s) : c", "a -> b -> c -> a"),
            ("a (1s) : c, b\nb (1s) : d\nc (1s) : d\nd (1s) : a", "a -> b -> d -> a"),
        ):
            with self.assertRaises(Error) as caught:
                read(text)
            self.assertEqual(str(caught.exception), f"cycle: {cycle}")

    def test_order_and_levels(self):
        jobs = read("z (1s)\nb (1s) : z\na (1s) : b\nc (1s)\ny (1s) : c, a\n")
        self.assertEqual(jobs.order(), ["c", "z", "b", "a", "y"])
        self.assertEqual(jobs.levels(), [["c", "z"], ["b"], ["a"], ["y"]])
        self.assertEqual((read("").order(), read("").levels()), ([], []))

    def test_critical(self):
        self.assertEqual(read("a (5s)\nb (5s)\nc (5s): a\nd (5s): a\n").critical(), (["a", "c"], 10))
        self.assertEqual(read("a (1s): x\nx (9s)\nb (10s)\n").critical(), (["b"], 10))
        self.assertEqual(read("a (0s)\nb (5s) : a\n").critical(), (["a", "b"], 5))

    def test_only(self):
        jobs = read("a (1s): b\nb (1s): c\nc (1s)\nd (1s): b\n")
        self.assertEqual(list(jobs.only(["b"])), ["b", "c"])
        self.assertEqual(list(jobs.only(["d", "a"])), ["a", "b", "c", "d"])
        with self.assertRaises(KeyError) as caught:
            jobs.only(["q"])
        self.assertEqual(caught.exception.args, ("q",))

    def test_schedule(self):
        text = "a (10s) ; cpu=2\nb (10s) ; cpu=2\nc (3s) ; cpu=1\nd (20s) : c\n"
        self.assertEqual(read(text).schedule(9), [(0, 3, "c"), (0, 10, "a"), (0, 10, "b"), (3, 23, "d")])
        self.assertEqual(read(text).schedule(9, {"cpu": 3}), [(0, 3, "c"), (0, 10, "a"), (3, 23, "d"), (10, 20, "b")])
        self.assertEqual(read(text).schedule(1), [(0, 3, "c"), (3, 23, "d"), (23, 33, "a"), (33, 43, "b")])
        with self.assertRaises(Error) as caught:
            read(text).schedule(2, {"cpu": 1})
        self.assertEqual(str(caught.exception), "a needs 2 of cpu")
        with self.assertRaises(ValueError):
            read(text).schedule(0)

    def test_jobs_without_time(self):
        self.assertEqual(read("a (0s)\nb (0s) : a\nc (2s) : b\n").schedule(1), [(0, 0, "a"), (0, 0, "b"), (0, 2, "c")])
        self.assertEqual(read("a (0s)\nb (4s)\nc (2s) : a\n").schedule(1), [(0, 4, "b"), (4, 4, "a"), (4, 6, "c")])
        self.assertEqual(read("a (2s)\nb (2s)\nc (1s) : a, b\n").schedule(2), [(0, 2, "a"), (0, 2, "b"), (2, 3, "c")])
