"""Earlier attempts in prompts, and the ranking of two steps."""

import pytest

from ecoshell.agent.view import View
from ecoshell.catalog import GROW
from ecoshell.messages import FINISH, Call, Observation, ToolSchema
from ecoshell.modes.ranking import ranking_request, verdict
from ecoshell.modes.requests import siblings_message
from ecoshell.strategies import Path, Sibling, Step, Thought

SCHEMA = ToolSchema("read_file", "Reads a file. " * 500, {"type": "object", "properties": {}})


def view(path, **more):
    return View(path, path.question, (), ("read_file", "count_text"), (SCHEMA,), GROW, **more)


@pytest.mark.parametrize(
    ("reply", "letter"),
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
def test_a_verdict_is_one_letter_or_empty(reply, letter):
    assert verdict(reply) == letter


def test_attempts_are_listed_with_their_outcome():
    attempts = (
        Sibling(Call("count_text", {"path": "a"}), "given up: a is empty"),
        Sibling(Call("read_file")),
    )
    message = siblings_message(view(Path("?"), siblings=attempts))
    assert message.speaker == "user"
    assert '- count_text(path="a"): given up: a is empty' in message.text
    assert "- read_file(): proposed, and not made yet" in message.text


def test_forbidden_registered_tools_are_listed_after_attempts():
    forbidden = frozenset({"read_file", "count_text"})
    text = siblings_message(
        view(Path("?"), siblings=(Sibling(Call("x")),), forbidden=forbidden)
    ).text
    assert text.endswith("Not to be used any more: read_file.")
    assert (
        "Not to be used"
        not in siblings_message(view(Path("?"), siblings=(Sibling(Call("x")),))).text
    )


def test_a_ranking_request_omits_schemas_and_cuts_long_texts():
    step = Step("why", Call("read_file", {"path": "a"}), Observation("word " * 5_000))
    path = Path("question " * 5_000, (step,))
    answer = Thought("", Call(FINISH, {"answer": "42"}))
    request = ranking_request(view(path), Thought("Count.", Call("count_text")), answer)
    assert not request.repeatable  # its reply is read as it is, even if it is cut
    text = request.messages[-1].text
    assert (request.purpose, request.want, request.tools) == ("rank", "text", ())
    assert "A: Count. → count_text()" in text
    assert "B: answer: 42" in text
    assert len(text) < 4_000


def test_a_ranking_request_labels_failures_and_answers():
    path = Path("?", (Step("", Call("read_file"), Observation("no such file", ok=False)),))
    text = (
        ranking_request(view(path), Thought("It is 42."), Thought("", Call("count_text")))
        .messages[-1]
        .text
    )
    assert "- read_file(): failed: no such file" in text
    assert "A: answer: It is 42." in text
