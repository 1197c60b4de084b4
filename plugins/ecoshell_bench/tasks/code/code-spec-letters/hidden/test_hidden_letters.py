import unittest


from letters import TemplateError, render

DATA = {"n": 3, "f": 0.5, "yes": True, "no": False, "none": None, "list": [1, "b", None, True], "deep": {"a": [{"b": "x"}]}, "empty": "", "text": "Hi there",
        "zero": 0, "nothing": [], "d": {"k": 1, "l": 2}, "neg": -0.005, "big": 1234567.895}


class Hidden(unittest.TestCase):
    def check(self, pairs):
        for template, expected in pairs:
            self.assertEqual(render(template, DATA), expected, template)

    def errors(self, pairs):
        for template, line, message in pairs:
            with self.assertRaises(TemplateError, msg=template) as caught:
                render(template, DATA)
            self.assertEqual((caught.exception.line, caught.exception.message), (line, message), template)
            self.assertEqual(str(caught.exception), f"line {line}: {message}")

    def test_values(self):
        self.check([
            ("[[n]]|[[ f ]]|[[yes]]|[[no]]|[[none]]|[[list]]", "3|0.5|yes|no||1, b, , yes"), ("[[ deep.a.0.b ]]", "x"), ("no tags ]] here %]", "no tags ]] here %]"),
            ("[[\nn\n]]", "3"), ("", ""), ("a\n\n b ", "a\n\n b "),
        ])
        self.errors([
            ("\n[[ deep.a.1.b ]]", 2, "unknown: deep.a.1.b"), ("[[ text.upper ]]", 1, "unknown: text.upper"), ("[[ d ]]", 1, "cannot insert: d"), ("[[ list.k ]]", 1, "unknown: list.k"),
            ("[[ ]]", 1, "bad tag"), ("[[ a b ]]", 1, "bad tag"), ("[[ n ", 1, "unclosed tag"), ("x\n[[ .n ]]", 2, "bad tag"), ("[[ n | ]]", 1, "bad tag"),
        ])

    def test_filters(self):
        self.check([
            ('[[ text | upper | pad 10 ]]|', "HI THERE  |"), ("[[ n | pad -4 ]]", "   3"), ("[[ text | pad 3 ]]", "Hi there"), ('[[ gone.x | default "a \\"b\\" \\\\ | ]]" ]]', 'a "b" \\ | ]]'),
            ('[[ none | default "-" ]][[ empty | default "-" ]][[ zero | default "-" ]][[ no | default "-" ]]', "--0no"), ("[[ list | count ]][[ d | count ]][[ text | count ]]", "428"),
            ('[[ list | join " + " ]]', "1 + b +  + yes"), ("[[ big | money ]] [[ neg | money ]] [[ n | money ]] [[ zero | money ]]", "1,234,567.90 -0.01 3.00 0.00"),
            ('[[ empty | default "  ab " | trim | upper ]]', "AB"), ("[[ none | upper ]]", ""), ("[[ yes | upper ]]", "YES"), ("[[text|count|pad 2]].", "8 ."),
        ])
        self.errors([
            ("[[ text | money ]]", 1, "cannot money: text"), ("[[ n | count ]]", 1, "cannot count: n"), ('[[ text | join "," ]]', 1, "cannot join: text"), ("[[ yes | money ]]", 1, "cannot money: yes"),
            ("[[ d | upper ]]", 1, "cannot upper: d"), ("[% if no %]\n[[ n | shout ]][% end %]", 2, "bad filter: shout"), ("[[ n | pad ]]", 1, "bad filter: pad"), ('[[ n | pad "3" ]]', 1, "bad filter: pad"),
            ("[[ n | upper 3 ]]", 1, "bad filter: upper"), ('[[ n | upper | default "x" ]]', 1, "bad filter: default"), ("[[ n | join 3 ]]", 1, "bad filter: join"),
        ])

    def test_conditions(self):
        chosen = "[% if {} %]A[% elif {} %]B[% else %]C[% end %]"
        for first, second, expected in (
            ("yes", "yes", "A"), ("no", "n", "B"), ("zero", "none", "C"), ("nothing", "not nothing", "B"), ("gone.x", "not gone.x", "B"), ('text == "Hi there"', "yes", "A"),
            ("n == 3", "yes", "A"), ("n != 3", "n != 4", "B"), ('n == "3"', "gone == 3", "C"), ("gone != 3", "yes", "A"), ("not yes", "no", "C"),
        ):
            self.assertEqual(render(chosen.format(first, second), DATA), expected, (first, second))

    def test_loops(self):
        self.check([
            ("[% for x in list %][[loop.number]][[ x ]][% if not loop.last %],[% end %][% end %]", "11,2b,3,4yes"), ("[% for k in d %][[ k ]][% end %]", "kl"),
            ("[% for n in deep.a %][% for z in list %][% if loop.first %][[ n.b ]][% end %][% end %][[ loop.first ]][% end %][[ n ]]", "xyes3"),
            ("[% for x in nothing %]a[% none %]b[% end %]", "b"),
        ])
        self.errors([("[% for x in text %][% end %]", 1, "cannot loop: text"), ("\n\n[% for x in gone %][% end %]", 3, "unknown: gone"), ("[% for x in list %][% end %][[ loop.number ]]", 1, "unknown: loop.number")])

    def test_set(self):
        self.check([
            ("[% set n = text %][[ n ]]", "Hi there"), ("[% if yes %][% set n = text | count %][[ n ]][% end %][[ n ]]", "83"), ("[% set l = list %][% for x in l %].[% end %]", "...."),
            ("[% for x in list %][[ n ]][% set n = x %][% end %][[ n ]]", "33333"), ('[% set a = gone | default "x" %][[ a ]]', "x"), ("[% set m = f | money %][[ m | pad -5 ]]", " 0.50"),
        ])
        self.assertNotIn("m", DATA)
        self.errors([("[% set a.b = n %]", 1, "bad tag"), ("[% if yes %][% set q = n %][% end %][[ q ]]", 1, "unknown: q")])

    def test_lines(self):
        self.check([
            ("a\n  [% if yes %]  \nb\n[% end %]\nc", "a\nb\nc"), ("a [% if yes %]\nb[% end %]\nc", "a \nb\nc"), ("a\n[# note #]\nb[# x\ny #]c", "a\nbc"),
            ("[% set q = n %]\n[[ q ]]\n", "3\n"), ("x\n[% if yes %][% end %]\ny", "x\n\ny"), ("x\n  [[ empty ]]  \ny", "x\n    \ny"), ("[% if yes %]\nz\n[% end %]", "z\n"),
        ])

    def test_structure(self):
        self.errors([
            ("a\n[% if yes %]\n[% for x in list %]\n[% end %]", 2, "unclosed block"), ("[% end %]", 1, "unexpected end"), ("[% for x in list %]\n[% else %][% end %]", 2, "unexpected else"),
            ("[% if yes %][% else %][% elif no %][% end %]", 1, "unexpected elif"), ("[% if yes %][% none %][% end %]", 1, "unexpected none"), ("[% for in list %][% end %]", 1, "bad tag"),
            ("[% if yes %]\n[% while n %]", 2, "bad tag"), ("[% if n = 3 %][% end %]", 1, "bad tag"), ("a\n[# b", 2, "unclosed tag"), ("[% if %][% end %]", 1, "bad tag"), ("[[ gone ]]\n[% end %]", 2, "unexpected end"),
            ("[% if yes %]\n[[ n | shout ]]", 2, "bad filter: shout"),
        ])
        self.assertTrue(issubclass(TemplateError, Exception))
