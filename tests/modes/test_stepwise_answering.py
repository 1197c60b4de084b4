import pytest

from ecoshell.messages import Call, Observation
from ecoshell.modes.stepwise.answering import can_be_worded, holds, quotation
from ecoshell.strategies.base import Step

COUNTED = "README.md: 7 lines, 15 words, 75 characters"
QUESTION = "How many lines has README.md?"


@pytest.mark.parametrize(
    ("answer", "honest"),
    [
        ("README.md has 7 lines.", True),
        ("README.md has 7 lines and 15 words.", True),
        ("README.md has 15 lines.", False),
        ("README.md has 8 lines.", False),
        ("README.md has lines.", False),
        ("README.md has 7 lines. It is a poem.", False),
        ("", False),
    ],
)
def test_an_answer_stands_only_with_the_numbers_units_and_words_of_the_result(answer, honest):
    assert holds(answer, QUESTION, COUNTED) is honest


def test_results_whose_point_is_not_a_number_are_quoted():
    assert can_be_worded("What is 17 * 23?", "17 * 23 = 391")
    assert not can_be_worded("Run echo hi", "hi")
    assert not can_be_worded("Find the budget", "notes.txt:2: the budget")
    assert not can_be_worded("Read it", "12 lines\nof text")
    assert not can_be_worded("Read it", "12 " + "word " * 100)


def test_a_single_result_is_quoted_as_it_is_and_several_with_their_calls():
    one = Step("", Call("read", {"path": "a"}), Observation("text\n"))
    assert quotation([one]) == "text"
    assert quotation([one, one]) == '`read(path="a")`:\n\n    text\n\n`read(path="a")`:\n\n    text'


def test_a_long_quotation_says_that_it_is_cut():
    assert quotation([Step("", Call("read"), Observation("x" * 5000))]).endswith("[truncated: 1000 more characters]")
