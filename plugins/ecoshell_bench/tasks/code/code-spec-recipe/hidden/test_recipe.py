import unittest


from fractions import Fraction as F

from scaling import Ingredient, parse, render, scale


class Hidden(unittest.TestCase):
    def test_quantities(self):
        for line, value in (("3 eggs", F(3)), ("0.25 l milk", F(1, 4)), ("3/4 cup oil", F(3, 4)), ("2  1/2   g salt", F(5, 2))):
            result = parse(line)
            self.assertEqual((result.low, result.high), (value, value), line)

    def test_units(self):
        self.assertEqual(parse("1 Tablespoon honey"), Ingredient(F(1), F(1), "tbsp", "honey"))
        self.assertEqual(parse("2 cups"), Ingredient(F(2), F(2), "", "cups"))
        self.assertEqual(parse("2 LITRES water").unit, "l")
        self.assertEqual(parse("2 large eggs"), Ingredient(F(2), F(2), "", "large eggs"))
        self.assertEqual(parse("cups of love"), Ingredient(None, None, "", "cups of love"))
        self.assertEqual(parse("1 c  brown   sugar").name, "brown sugar")

    def test_ranges(self):
        self.assertEqual(parse("1 1/2 - 2 cups rice"), Ingredient(F(3, 2), F(2), "cup", "rice"))
        self.assertEqual(parse("1/2-3/4 tsp chili").low, F(1, 2))
        self.assertEqual(parse("0.5-1 1/4 l stock").high, F(5, 4))
        for line in ("3-2 eggs", "2-2 eggs"):
            with self.assertRaises(ValueError):
                parse(line)

    def test_errors_name_the_line(self):
        for line in ("", "   ", "1/0 cup oil", "0 eggs", "3", "0-2 eggs", "2 1/2"):
            with self.assertRaises(ValueError) as caught:
                parse(line)
            self.assertIn(line, str(caught.exception))

    def test_scale(self):
        for line, factor, expected in (
            ("1 tsp salt", 3, "1 tbsp salt"), ("1 tsp salt", 12, "1/4 cup salt"), ("3 tbsp oil", 2, "3/8 cup oil"),
            ("1 cup oil", F(1, 8), "2 tbsp oil"), ("1 cup oil", "1/48", "1 tsp oil"), ("1/2 cup oil", "1/2", "1/4 cup oil"),
            ("1-2 tsp pepper", 3, "1-2 tbsp pepper"), ("2-4 tsp pepper", 1, "2-4 tsp pepper"), ("pepper", 4, "pepper"),
            ("4 cloves garlic", "1/4", "1 clove garlic"), ("500 g flour", 2, "1000 g flour"), ("1 tbsp oil", "1/2", "1 1/2 tsp oil"),
        ):
            self.assertEqual(render(scale(parse(line), factor)), expected, (line, factor))
        for factor in (0, -1, F(-1, 2), "0"):
            with self.assertRaises(ValueError):
                scale(parse("3 eggs"), factor)

    def test_render_round_trips(self):
        for line in ("2 1/2 cups flour", "1 cup oil", "3/4 cup oil", "1/2-1 cup nuts", "1-2 cloves garlic", "salt", "7/3 l milk"):
            self.assertEqual(parse(render(parse(line))), parse(line))
        self.assertEqual(render(parse("0.5 - 1.5 CUPS nuts")), "1/2-1 1/2 cups nuts")
        self.assertEqual(render(parse("7/3 l milk")), "2 1/3 l milk")
        with self.assertRaises(Exception):
            parse("3 eggs").name = "x"
