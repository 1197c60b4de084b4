import unittest


from fractions import Fraction

from scaling import Ingredient, parse, render, scale


class Scaling(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(parse("2 1/2 cups flour"), Ingredient(Fraction(5, 2), Fraction(5, 2), "cup", "flour"))
        self.assertEqual(parse("salt"), Ingredient(None, None, "", "salt"))
        self.assertEqual(parse("2-3 cloves garlic").high, 3)

    def test_scale(self):
        self.assertEqual(render(scale(parse("2 tsp sugar"), 3)), "2 tbsp sugar")
        self.assertEqual(render(scale(parse("1 cup rice"), "3/2")), "1 1/2 cups rice")


if __name__ == "__main__":
    unittest.main()
