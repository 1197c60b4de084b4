import pytest

from ecoshell.messages import Call, Observation
from ecoshell.modes.stepwise.answering import can_be_worded, grounded, holds, quotation
from ecoshell.strategies import Step

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
    block = '`read(path="a")`:\n\n```\ntext\n```'
    assert quotation([one, one]) == f"{block}\n\n{block}"


@pytest.mark.parametrize(
    "text", ["__name__", "a,b\n1,2", "12*7 and 3*4", "  indented", "- a list", "3. three", "a | b"]
)
def test_what_markdown_would_change_is_quoted_in_a_fence(text):
    assert quotation([Step("", Call("read"), Observation(f"{text}\n"))]) == f"```\n{text}\n```"


def test_a_fence_is_longer_than_any_in_what_it_holds():
    assert quotation([Step("", Call("read"), Observation("```\nx\n```"))]).startswith("````\n```\nx")


@pytest.mark.parametrize(
    "text", ["391", "door.txt created: 1 line, 12 bytes.", "17 * 23 = 391", "my_file.txt has 2 lines"]
)
def test_one_line_that_markdown_shows_as_it_is_needs_no_fence(text):
    assert quotation([Step("", Call("read"), Observation(text))]) == text


def test_of_a_file_no_number_is_told_of_what_the_result_does_not_speak_of():
    question = "What is the budget in notes.txt?"
    assert not holds("The budget is 15 words.", question, "notes.txt: 4 lines, 15 words")
    assert holds("notes.txt has 15 words.", question, "notes.txt: 4 lines, 15 words")


READ = "Project plan\nBudget: 4,200 euros\nTravel: 300 euros\n"


@pytest.mark.parametrize(
    ("answer", "question", "stays"),
    [
        ("The budget is 4,200 euros.", "What is the budget?", True),
        ("The budget is 4,300 euros.", "What is the budget?", False),
        ("The budget is 300 euros.", "What is the budget?", False),
        ("The budget is 300 euros for travel.", "And for travel?", False),
        ("The budget is secret.", "What is the budget?", False),
        ("The budget is.", "What is the budget?", False),
    ],
)
def test_an_answer_on_what_was_read_stands_only_by_one_line_of_it(answer, question, stays):
    told = grounded(answer, question, READ, sure=False)
    assert (told == answer) is stays
    assert stays or ("euros\n```" in told and "Project" not in told)


def test_a_long_quotation_says_that_it_is_cut():
    assert quotation([Step("", Call("read"), Observation("x" * 5000))]).endswith(
        "[truncated: 1000 more characters]\n```"
    )
