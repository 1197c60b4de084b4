"""Taking a question apart into branches, and the plan that comes of it."""

import pytest

from ecoshell.modes.stepwise.drafting import Part, plan_of, taken_apart
from ecoshell.planning.catp.base import TASK, GraphPlan, Node


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
    ("question", "refers"),
    [
        ("Read notes.txt and then count its words", [False, True]),
        ("List the files and then write the result to all.txt", [False, True]),
        ("Count a.txt and tell me what time it is", [False, False]),
        ("Count its words", [False]),
    ],
)
def test_a_part_waits_for_the_one_before_it_only_where_it_speaks_of_it(question, refers):
    assert [part.refers for part in taken_apart(question)] == refers


def test_each_part_becomes_a_node_and_further_uses_of_a_tool_are_counted():
    one, two, back = Part("count a"), Part("count b"), Part("add them up", 1, refers=True)
    plan, parts = plan_of([(one, "count"), (two, "count"), (back, "calculate")])
    assert plan == GraphPlan(
        (Node("count", (TASK,)), Node("count", (TASK,), 2), Node("calculate", ("count", "count#2")))
    )
    assert parts == {"count": one, "count#2": two, "calculate": back}
