"""Taking a question apart into branches, and the plan that comes of it."""

import pytest

from ecoshell.modes.stepwise.drafting import Part, plan_of, taken_apart
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            "count the words in a.txt and b.txt and tell me the current time",
            ["count the words in a.txt", "count the words in b.txt", "tell me the current time"],
        ),
        ("Count the lines of a.md, `b.md` and c.md", ["Count the lines of a.md", "Count the lines of `b.md`"]),
        ("What time is it in Tokyo and New York?", ["What time is it in Tokyo?", "What time is it in New York?"]),
        ("Fetch https://a.org and https://b.org", ["Fetch https://a.org", "Fetch https://b.org"]),
        ("Copy a.txt to b.txt", ["Copy a.txt to b.txt"]),
        ("What is 17 * 23?", ["What is 17 * 23?"]),
    ],
)
def test_what_is_asked_of_several_things_is_asked_of_each(question, parts):
    assert [part.text for part in taken_apart(question)][: len(parts)] == parts


@pytest.mark.parametrize(
    ("question", "waits"),
    [
        ("Read notes.txt and then count its words", [[], [0]]),
        ("List the files and then write the result to all.txt", [[], [0]]),
        ("Count a.txt and tell me what time it is", [[], []]),
        ("Count its words", [[]]),
        ("count the words in a.txt, then multiply that by 3", [[], [0]]),
        ("count the words in a.txt and multiply by 3", [[], [0]]),
        ("count the words in a.txt and b.txt, then add them", [[], [], [0, 1]]),
        ("count a.txt and b.txt, then double each", [[], [], [0], [1]]),
        ("what time is it, count a.txt, count b.txt and add the results", [[], [], [], [1, 2]]),
        ("count a.txt, calculate 2 * 3 and divide the first by the second", [[], [], [0, 1]]),
        ("calculate 2 * 3, add 1 to it and then double that", [[], [0], [1]]),
        ("count the words in a.txt and list the files in this folder", [[], []]),
        ("count a.txt and find the files that contain milk", [[], []]),
        ("count a.txt and calculate the sum of 3 and 4", [[], []]),
        ('count a.txt and find "that" in b.txt', [[], []]),
    ],
)
def test_a_part_waits_for_those_before_it_that_its_words_speak_of_and_no_others(question, waits):
    assert [[one.position for one in part.after] for part in taken_apart(question)] == waits


def test_what_is_to_be_taken_together_is_so_once_each_thing_is_there():
    *each, together = taken_apart("sum the word counts of a.txt and b.txt")
    assert [part.text for part in each] == ["sum the word counts of a.txt", "sum the word counts of b.txt"]
    assert (together.text, together.after) == ("sum them", tuple(each))


def test_sums_of_several_numbers_are_one_thing_and_several_sums_are_several():
    assert [part.text for part in taken_apart("add 3 * 4 and 5 * 6")] == ["add 3 * 4 and 5 * 6"]
    assert [part.text for part in taken_apart("calculate 3 * 4 and 5 * 6")] == ["calculate 3 * 4", "calculate 5 * 6"]


def test_each_part_becomes_a_node_and_further_uses_of_a_tool_are_counted():
    one, two = Part("count a"), Part("count b", position=1)
    back = Part("add them up", (one, two), 2)
    plan, parts = plan_of([(one, "count"), (two, "count"), (back, "calculate")])
    assert plan == GraphPlan(
        (Node("count", (TASK,)), Node("count", (TASK,), 2), Node("calculate", ("count", "count#2")))
    )
    assert parts == {"count": one, "count#2": two, "calculate": back}
