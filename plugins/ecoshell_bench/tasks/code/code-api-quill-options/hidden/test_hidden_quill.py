import unittest


import subprocess
import sys
import tempfile
from pathlib import Path

from quill.contents import contents
from quill.model import Items, Options, Paragraph, QuillError, Section, Table, Title
from quill.reader import read
from quill.render import render
from quill.wrap import divide, wrap

TEXT = """= Notes
== Drinks
Tea and
coffee.
- hot, which may
  go on
- cold

=== Prices
| name | price | note |
| tea | 2.50 |
| coffee, black | 12 | x |
== Food
"""


class Hidden(unittest.TestCase):
    def test_reading(self):
        self.assertEqual(read(TEXT), [
            Title("Notes"), Section(1, "Drinks"), Paragraph("Tea and coffee."), Items(["hot, which may go on", "cold"]), Section(2, "Prices"),
            Table([["name", "price", "note"], ["tea", "2.50"], ["coffee, black", "12", "x"]]), Section(1, "Food"),
        ])
        self.assertEqual(read("- a\n\n- b\n"), [Items(["a"]), Items(["b"])])
        self.assertEqual(read("- a\nb\n"), [Items(["a"]), Paragraph("b")])
        for text, line in (("a\n= b\n", 2), ("| a\n", 1), ("x\n\n|\n", 3)):
            with self.assertRaisesRegex(QuillError, f"line {line}:"):
                read(text)

    def test_wrapping(self):
        for text, width, expected in (
            ("a bb ccc", 4, ["a bb", "ccc"]), ("", 5, []), ("abcdefgh ij", 4, ["abcdefgh", "ij"]), ("x abcdefgh", 4, ["x", "abcdefgh"]),
            ("remember", 7, ["remem-", "ber"]), ("remember", 5, ["re-", "member"]), ("remember", 3, ["re-", "member"]), ("a remember", 5, ["a re-", "member"]),
            ("the (lantern).", 9, ["the (lan-", "tern)."]), ("the Gardener,", 11, ["the Garden-", "er,"]), ("the gardener", 10, ["the gar-", "dener"]), ("lantern", 7, ["lantern"]), ("a lantern", 5, ["a", "lan-", "tern"]),
        ):
            self.assertEqual(wrap(text, width), expected, (text, width))

    def test_dividing(self):
        self.assertEqual(divide("wintertime", 8), ("winter-", "time"))
        self.assertEqual(divide("wintertime", 3), ("", "wintertime"))
        self.assertEqual(divide("\u201cWintertime!\u201d", 8), ("\u201cWinter-", "time!\u201d"))

    def test_no_line_is_too_long(self):
        from quill.words import BY_WORD

        text = " ".join(BY_WORD)
        for width in (20, 33, 72):
            lines = wrap(text, width)
            self.assertLessEqual(max(map(len, lines)), width)
            joined = " ".join(lines).replace("- ", "")
            self.assertEqual(joined, text)

    def test_tables(self):
        self.assertEqual(render(read(TEXT)).split("\n\n")[5], "name           price  note\n-------------  -----  ----\ntea             2.50\ncoffee, black     12  x")
        self.assertEqual(render(read("| a | long |\n| 10% | -5 |\n| 1,000 | x |\n")), "    a  long\n-----  ----\n  10%  -5\n1,000  x\n")
        self.assertEqual(render(read("| a |\n")), "a\n-\n")

    def test_contents(self):
        self.assertEqual(contents(read(TEXT)), ["1 Drinks", "  1.1 Prices", "2 Food"])
        self.assertEqual(contents(read("=== a\n== b\n==== c\n=== d\n=== e\n==== f\n== g\n=== h\n")), ["  1.1 a", "2 b", "    2.1.1 c", "  2.2 d", "  2.3 e", "    2.3.1 f", "3 g", "  3.1 h"])

    def test_rendering(self):
        text = render(read(TEXT), Options(10, True))
        self.assertEqual(text.split("\n\n")[:5], ["*****\nNotes\n*****", "1 Drinks\n  1.1 Prices\n2 Food", "1 Drinks\n========", "Tea and\ncoffee.", "- hot,\n  which\n  may go\n  on\n- cold"])
        self.assertEqual(render(read("== a\n"), Options(contents=True)), "1 a\n\n1 a\n===\n")
        self.assertEqual(render(read("=== ab\n")), "ab\n--\n")
        self.assertEqual(render([]), "\n")
        self.assertEqual(render(read("= abcdefghijkl\n"), Options(width=10)), "**********\nabcdefghijkl\n**********\n")

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "n.txt")
            path.write_text("= T\n== a\nthe lantern\n")

            def run(*arguments):
                ended = subprocess.run([sys.executable, "-m", "quill", *arguments], capture_output=True, text=True)
                return ended.returncode, ended.stdout

            self.assertEqual(run(str(path), "--width", "10"), (0, "*\nT\n*\n\na\n=\n\nthe lan-\ntern\n"))
            self.assertEqual(run(str(path), "--contents")[1][:15], "*\nT\n*\n\n1 a\n\n1 a")
            self.assertEqual(run(str(path) + "x"), (1, ""))

    def test_options(self):
        from dataclasses import FrozenInstanceError

        from quill import render as module

        for wrong in ({"width": 9}, {"gap": 0}):
            with self.assertRaises(ValueError):
                Options(**wrong)
        with self.assertRaises(FrozenInstanceError):
            Options().width = 3
        self.assertFalse(hasattr(module, "WIDTH"))
        for call in (lambda: render([], width=20), lambda: render([], Options(), True), lambda: render([], with_contents=True)):
            with self.assertRaises(TypeError):
                call()
        self.assertEqual(render(read("| a | b |\n| c | d |\n"), Options(gap=4)), "a    b\n-    -\nc    d\n")

    def test_options_of_the_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "n.txt")
            path.write_text("| a | b |\n")
            for arguments, expected in ((("--gap", "1"), (0, "a b\n- -\n")), (("--gap", "0"), (1, "")), (("--width", "9"), (1, ""))):
                ended = subprocess.run([sys.executable, "-m", "quill", str(path), *arguments], capture_output=True, text=True)
                self.assertEqual((ended.returncode, ended.stdout), expected)
                self.assertNotIn("Traceback", ended.stderr)
                self.assertEqual(bool(ended.stderr), ended.returncode == 1)
