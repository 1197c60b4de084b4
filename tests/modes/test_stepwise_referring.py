"""Words that speak of what came before, and what stands in their place."""

import pytest

from ecoshell.modes.stepwise.referring import references, replaced, said_out


@pytest.mark.parametrize(
    ("request_", "things", "said"),
    [
        ("multiply that by 3", ["4"], "multiply 4 by 3"),
        ("add 5 to it", ["4"], "add 5 to 4"),
        ("double the result", ["4"], "double 4"),
        ("add them up", ["4", "3"], "add 4 and 3 up"),
        ("add the two numbers", ["4", "3"], "add 4 and 3"),
        ("add both", ["4", "3"], "add 4 and 3"),
        ("what is their sum?", ["4", "3"], "what is the sum of 4 and 3?"),
        ("tell me the sum", ["4", "3", "2"], "tell me the sum of 4, 3 and 2"),
        ("double the sum", ["7"], "double 7"),
        ("calculate its square root", ["16"], "calculate the square root of 16"),
        ("count its words", ["a.txt"], "count the words of a.txt"),
        ("convert that many km to miles", ["6"], "convert 6 km to miles"),
        ("divide the first by the second", ["4", "3"], "divide 4 by 3"),
        ("multiply each by 2", ["4"], "multiply 4 by 2"),
        ("multiply the number of words by 2", ["4"], "multiply 4 by 2"),
        ("read that file", ["a.txt"], "read a.txt"),
    ],
)
def test_what_is_spoken_of_stands_in_the_place_of_the_words(request_, things, said):
    assert replaced(request_, things) == said


@pytest.mark.parametrize(
    "request_",
    [
        "what time is it in Tokyo",
        "tell me what day it is",
        "list the files in this folder",
        "find the files that contain milk",
        "calculate the sum of 3 and 4",
        "count the number of words in b.txt",
        'find "multiply that by 3" in b.txt',
        "read the file b.txt",
        "read the first line of b.txt",
        "list the files here",
    ],
)
def test_a_request_that_stands_by_itself_speaks_of_nothing_before_it(request_):
    assert references(request_) == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("multiply by 3", "multiply it by 3"),
        ("add 5", "add 5 to it"),
        ("subtract 5.", "subtract 5 from it."),
        ("double", "double it"),
        ("add 5 and 6", "add 5 and 6"),
        ("multiply 2 by 3", "multiply 2 by 3"),
    ],
)
def test_an_operation_without_its_operand_speaks_of_what_came_before(request_, said):
    assert said_out(request_) == said
