"""What models are told of siblings, and how a verdict is read."""

import pytest

from ecoshell.agent.mode import View
from ecoshell.catalog import GROW
from ecoshell.messages import FINISH, Call, Observation, ToolSchema
from ecoshell.modes.ranking import ranking_request, verdict
from ecoshell.modes.requests import tried_message
from ecoshell.strategies import Path, Step, Thought, Tried

SCHEMA = ToolSchema("read_file", "Reads a file. " * 500, {"type": "object", "properties": {}})


def view(path, **more):
    return View(path, path.question, (), ("read_file", "count_text"), (SCHEMA,), GROW, **more)


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("A", "A"),
        ("B", "B"),
        (" **B**", "B"),
        ("B.", "B"),
        ("A: it reads first", "A"),
        ("The better step is B.", "B"),
        ("A better step is B", ""),
        ("neither", ""),
        ("", ""),
        ("Both are fine", ""),
        ("a", ""),
    ],
)
def test_a_verdict_is_one_letter_or_it_is_none(said, letter):
    assert verdict(said) == letter


def test_what_was_tried_is_told_with_what_came_of_it_or_that_it_is_not_made_yet():
    tried = (Tried(Call("count_text", {"path": "a"}), "given up: a is empty"), Tried(Call("read_file")))
    told = tried_message(view(Path("?"), tried=tried))
    assert told.speaker == "user"
    assert '- count_text(path="a"): given up: a is empty' in told.text
    assert "- read_file(): proposed, and not made yet" in told.text


def test_registered_tools_that_are_barred_by_now_are_named_beside_what_was_tried():
    barred = frozenset({"read_file", "count_text"})
    told = tried_message(view(Path("?"), tried=(Tried(Call("x")),), forbidden=barred)).text
    assert told.endswith("Not to be used any more: read_file.")
    assert "Not to be used" not in tried_message(view(Path("?"), tried=(Tried(Call("x")),))).text


def test_two_steps_are_compared_without_documents_and_with_long_texts_cut():
    step = Step("why", Call("read_file", {"path": "a"}), Observation("word " * 5_000))
    path = Path("question " * 5_000, (step,))
    answer = Thought("", Call(FINISH, {"answer": "42"}))
    request = ranking_request(view(path), Thought("Count.", Call("count_text")), answer)
    shown = request.messages[-1].text
    assert (request.purpose, request.want, request.tools) == ("rank", "text", ())
    assert "A: Count. → count_text()" in shown
    assert "B: answer: 42" in shown
    assert len(shown) < 4_000


def test_a_failure_and_an_answer_in_plain_text_are_shown_as_such():
    path = Path("?", (Step("", Call("read_file"), Observation("no such file", ok=False)),))
    shown = ranking_request(view(path), Thought("It is 42."), Thought("", Call("count_text"))).messages[-1].text
    assert "- read_file(): failed: no such file" in shown
    assert "A: answer: It is 42." in shown
