"""Where one request of a question ends and the next begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.agent.approval import verbs
from ecoshell.messages import ToolDocument
from ecoshell.modes.stepwise.parting import parts

COUNT, LIST = "count the words in a.txt", "list the files here"


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("What is 17 * 23?", ["What is 17 * 23?"]),
        ("Read a.txt and then count its words.", ["Read a.txt", "count its words."]),
        ("Read a.txt and count its words.", ["Read a.txt", "count its words."]),
        ("List the files. What time is it?", ["List the files.", "What time is it?"]),
        ("Add 3 and 4.", ["Add 3 and 4."]),
        ("Replace salt and pepper with sugar.", ["Replace salt and pepper with sugar."]),
        ("  ", ["  "]),
    ],
)
def test_a_question_is_taken_apart_where_another_request_begins(question, found):
    assert parts(question) == found


@pytest.mark.parametrize(
    "joint",
    [
        ", ",
        "; ",
        " and ",
        ", and ",
        " then ",
        ", then ",
        " and then ",
        ", after that ",
        " and also ",
        " plus ",
        "\n",
        "\n- ",
    ],
)
def test_whatever_joins_two_requests_both_are_found(joint):
    assert parts(f"{COUNT}{joint}{LIST}") == [COUNT, LIST]


@pytest.mark.parametrize("lead", ["Also ", "After that, ", "Then ", "Finally, "])
def test_a_sentence_that_begins_with_its_place_in_the_order_is_a_request(lead):
    assert parts(f"{COUNT}. {lead}{LIST}") == [f"{COUNT}.", LIST]


@pytest.mark.parametrize("said", ["First {}, second {}", "first, {}; second, {}", "1. {}\n2. {}"])
def test_requests_may_say_their_place(said):
    assert parts(said.format(COUNT, LIST)) == [COUNT, LIST]


@pytest.mark.parametrize(
    "whole",
    [
        'find "milk, list eggs and read bread" in a.txt',
        "find `a; then list b` in a.txt",
        "what is 1,000 * 3?",
        "count the words in a.txt, b.txt and c.txt",
        "count the words in a.txt, list.txt and read.txt",
        "fetch https://example.org/a,b;c",
        "read the lines, words and counts of a.txt",
        "read a.txt, which is long",
    ],
)
def test_a_request_is_not_cut_in_a_quotation_a_number_a_name_or_a_list(whole):
    assert parts(whole) == [whole]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("count the words in a.txt and the lines in b.txt", [COUNT, "count the lines in b.txt"]),
        ("Convert 10 kg to pounds and 5 miles to km", ["Convert 10 kg to pounds", "Convert 5 miles to km"]),
        ("find the word milk and the word egg in a.txt", ["find the word milk and the word egg in a.txt"]),
    ],
)
def test_a_request_that_goes_on_without_its_verb_is_given_it(question, found):
    assert parts(question) == found


@pytest.mark.parametrize("joint", [", then ", ". And ", "? ", " and then "])
def test_names_alone_are_asked_the_same_as_those_before_them(joint):
    found = [part.rstrip(".?") for part in parts(f"{COUNT}{joint}b.txt")]
    assert found == [COUNT, "count the words in b.txt"]


@pytest.mark.parametrize("greeting", ["Hi! ", "Hello there. ", "1. "])
def test_a_courtesy_is_no_request_beside_others(greeting):
    assert parts(greeting + COUNT) == [COUNT]
    assert parts(greeting.strip()) == [greeting.strip()]


def test_the_verbs_of_tools_begin_requests():
    tools = [
        ToolDocument("send_email", "Mail a text to somebody.", {}),
        ToolDocument("words", "Translate, render or transpose a text.", {}),
    ]
    known = verbs(tools)
    assert known == {"send", "mail", "translate", "render", "transpose"}
    assert parts("read a.txt, transpose it and mail it", known) == ["read a.txt", "transpose it", "mail it"]


REQUESTS = st.sampled_from(
    [
        COUNT,
        LIST,
        "what time is it in New York",
        'find "salt and list pepper" in b.txt',
        "calculate 1,000 * 3",
        "read it",
    ]
)
JOINTS = st.sampled_from([", ", "; ", " and ", ", then ", " and then ", "? ", ". Also ", "\n"])


@given(st.data(), st.lists(REQUESTS, min_size=1, max_size=8))
def test_of_however_many_requests_none_is_lost(data, requests):
    question = requests[0]
    for request in requests[1:]:
        question += data.draw(JOINTS) + request
    assert [part.rstrip(".?") for part in parts(question)] == requests
