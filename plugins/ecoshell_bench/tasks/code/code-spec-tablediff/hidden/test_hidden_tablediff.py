import unittest


import subprocess
import sys
import tempfile
from pathlib import Path

from tablediff import compare


def rows(order):
    return [{"id": name, "v": name} for name in order]


class Hidden(unittest.TestCase):
    def test_equal_values(self):
        for old, new, same in (
            ("1.50", "1.5", True), ("-0", "0", True), (" 7 ", "7", True), ("1e2", "100", True), ("0x10", "16", False), ("1_0", "10", False),
            ("nan", "NaN", False), ("inf", "Infinity", False), ("a", "A", False), ("", "0", False), ("a ", "a", False), ("0.1", "0.10000000000000000001", False),
        ):
            result = compare([{"id": "1", "v": old}], [{"id": "1", "v": new}], ["id"])
            self.assertEqual(not result.changed, same, (old, new))
            self.assertEqual(bool(result), not same)

    def test_columns(self):
        result = compare([{"id": "1", "a": "1", "c": "2"}], [{"b": "9", "id": "1", "a": "2"}], ["id"])
        self.assertEqual(list(result.changed[0][1].items()), [("b", (None, "9")), ("a", ("1", "2")), ("c", ("2", None))])
        self.assertFalse(compare([{"id": "1", "a": "1"}], [{"id": "1", "a": "2"}], ["id"], ignore=["a"]))

    def test_keys(self):
        with self.assertRaises(KeyError) as caught:
            compare([{"id": "1"}], [{"id": "1"}], ["id", "day"])
        self.assertEqual(caught.exception.args, ("day",))
        for old, new, side in ((rows("aa"), rows("a"), "old"), (rows("a"), rows("bb"), "new")):
            with self.assertRaisesRegex(ValueError, side):
                compare(old, new, ["id"])
        result = compare([{"a": "1", "b": "2"}], [{"a": "12", "b": ""}], ["a", "b"])
        self.assertEqual((len(result.added), len(result.removed)), (1, 1))

    def test_order_of_lists(self):
        result = compare(rows("dcab"), rows("xbay"), ["id"])
        self.assertEqual([row["id"] for row in result.removed], ["d", "c"])
        self.assertEqual([row["id"] for row in result.added], ["x", "y"])

    def test_moved_is_smallest(self):
        for old, new, count in (("abcdef", "fabcde", 1), ("abcdef", "fedcba", 5), ("abcd", "acbd", 1), ("abxcd", "dabyc", 1), ("abc", "abc", 0), ("abcdefgh", "bahgcdef", 3)):
            moved = compare(rows(old), rows(new), ["id"]).moved
            self.assertEqual(len(moved), count, (old, new))
            gone = {key[0] for key in moved}
            both = (set(old) & set(new)) - gone
            self.assertEqual([c for c in old if c in both], [c for c in new if c in both])
            self.assertEqual([key[0] for key in moved], [c for c in new if c in gone])

    def test_many_rows(self):
        numbers = [str(n) for n in range(20000)]
        result = compare(rows(numbers), rows(numbers[1:] + numbers[:1]), ["id"])
        self.assertEqual(result.moved, [("0",)])

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            old, new = Path(folder, "old.csv"), Path(folder, "new.csv")
            old.write_text("\ufeffid,day,v,w\n1,mon,a,1\n2,tue,b,2\n3,wed,c,3\n", encoding="utf-8")
            new.write_text("id,day,v\n3,wed,c\n1,mon,é\n4,thu,\"x;y\"\n", encoding="utf-8")

            def run(*arguments):
                command = [sys.executable, "-X", "utf8", "tablediff.py", str(old), str(new), *arguments]
                ended = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
                return ended.returncode, ended.stdout

            self.assertEqual(run("--key", "id,day", "--ignore", "w"), (1, "- 2/tue\n+ 4/thu\n~ 1/mon: v: a -> é\n"))
            status, printed = run("--key", "id", "--order")
            self.assertEqual(printed.splitlines()[2:4], ["~ 3: w: 3 -> (none)", "~ 1: v: a -> é; w: 1 -> (none)"])
            self.assertEqual((status, len(printed.splitlines())), (1, 5))
            self.assertIn(printed.splitlines()[4], ("> 3", "> 1"))
            self.assertEqual(run("--key", "id,v"), (1, "- 1/a\n- 2/b\n+ 1/é\n+ 4/x;y\n~ 3/c: w: 3 -> (none)\n"))
            self.assertEqual(run("--key", "name"), (2, ""))
            new.write_text(old.read_text(encoding="utf-8"), encoding="utf-8")
            self.assertEqual(run("--key", "id", "--order"), (0, ""))
            new.write_text("id\n1\n1\n", encoding="utf-8")
            self.assertEqual(run("--key", "id"), (2, ""))
            new.unlink()
            self.assertEqual(run("--key", "id"), (2, ""))
