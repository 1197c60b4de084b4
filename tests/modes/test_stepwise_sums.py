"""Sums in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.modes.stepwise.sums import expressions, worded
from ecoshell.tools.builtin.calculate import evaluate

NUMBER = st.integers(-999, 999)


@pytest.mark.parametrize(
    ("said", "work"),
    [
        ("multiply {a} by {b}", lambda a, b: a * b),
        ("add {a} to {b}", lambda a, b: a + b),
        ("what is the sum of {a} and {b}?", lambda a, b: a + b),
        ("subtract {a} from {b}", lambda a, b: b - a),
        ("the difference between {a} and {b}", lambda a, b: a - b),
        ("the product of {a} and {b}", lambda a, b: a * b),
        ("double {a}", lambda a, b: 2 * a),
        ("square {a}", lambda a, b: a * a),
    ],
)
@given(a=NUMBER, b=NUMBER)
def test_a_sum_in_words_comes_to_what_it_says(said, work, a, b):
    (expression,) = worded(said.format(a=a, b=b))
    assert float(evaluate(expression).text) == work(a, b)


@given(st.lists(NUMBER, min_size=2, max_size=6))
def test_all_numbers_of_a_list_are_added(numbers):
    listed = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    (expression,) = worded(f"add {listed}")
    assert float(evaluate(expression).text) == sum(numbers)


@pytest.mark.parametrize(
    ("said", "expression"),
    [
        ("divide 1,000 by 8", "1000 / 8"),
        ("increase 80 by 15%", "80 + 15%"),
        ("multiply 3*4 by 2", "(3*4) * 2"),
        ("the average of 4, 6 and 8", "(4 + 6 + 8) / 3"),
        ("take half of 12", "12 / 2"),
    ],
)
def test_operands_may_be_written_in_any_way(said, expression):
    assert worded(said) == [expression]


@pytest.mark.parametrize(
    "said",
    ["multiply that by 3", "add 5", "count the words in a.txt and 3 more", "divide 3", "double the sum of 3 and 4"],
)
def test_what_lacks_a_number_or_says_more_is_no_sum(said):
    assert worded(said) == []


def test_what_is_written_with_signs_stays_as_it_is():
    assert expressions("what is 17 * 23?") == ["17 * 23"]
