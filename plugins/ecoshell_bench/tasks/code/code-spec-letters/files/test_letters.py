import unittest


from letters import TemplateError, render


class Examples(unittest.TestCase):
    def test_values(self):
        self.assertEqual(render("Dear [[ who.name | upper ]], you owe [[ sum | money ]].", {"who": {"name": "Bo"}, "sum": 1234.5}),
                         "Dear BO, you owe 1,234.50.")

    def test_loop(self):
        text = "Items:\n[% for item in items %]\n- [[ item ]]\n[% none %]\nnothing\n[% end %]\nBye"
        self.assertEqual(render(text, {"items": ["a", "b"]}), "Items:\n- a\n- b\nBye")
        self.assertEqual(render(text, {"items": []}), "Items:\nnothing\nBye")

    def test_error(self):
        with self.assertRaises(TemplateError) as caught:
            render("one\n[[ nobody.name ]]", {})
        self.assertEqual(str(caught.exception), "line 2: unknown: nobody.name")
