"""The strategy alone: what it wishes for, in which order, and where it goes on as ReAct does."""

import pytest

from ecoshell.messages import FINISH, Call, Observation
from ecoshell.strategies import (
    AskModel,
    CallTool,
    DraftGraph,
    GraphDraft,
    GraphResult,
    Outcome,
    Path,
    RunGraph,
    Step,
    Thought,
)
from ecoshell.strategies.graph import graph

START = Path("How many?")
A, B = (Step("", Call(name, {}, name), Observation(f"{name} found it")) for name in "ab")
ANSWER = Thought("", Call(FINISH, {"answer": "42"}))


def play(replies, *, max_steps=24):
    """Send these replies to the strategy; give back what it asked for and how it ended."""
    thinking, wants, reply = graph("How many?", max_steps), [], None
    replies = iter(replies)
    try:
        while True:
            wants.append(thinking.send(reply))
            reply = next(replies)
    except StopIteration as stop:
        return wants, stop.value


def test_a_plan_is_drafted_and_run_and_the_answer_comes_from_what_it_found():
    wants, outcome = play([GraphDraft(), GraphResult((A, B)), ANSWER])
    path = START.then(A, B)
    assert wants == [DraftGraph(START), RunGraph(START), AskModel(path)]
    assert outcome == Outcome("answered", "42", path)


def test_a_plan_that_cannot_be_run_is_written_again_with_what_is_wrong_with_it():
    wants, _ = play([GraphDraft("a waits for itself"), GraphDraft(), GraphResult((A,)), ANSWER])
    assert wants[:3] == [DraftGraph(START), DraftGraph(START, "a waits for itself"), RunGraph(START)]


def test_after_two_plans_that_cannot_be_run_it_goes_on_as_react_does():
    call = Call("a", {})
    wants, outcome = play([GraphDraft("no"), GraphDraft("no"), Thought("", call), (Observation("seen"),), ANSWER])
    assert [type(want) for want in wants] == [DraftGraph, DraftGraph, AskModel, CallTool, AskModel]
    assert outcome.answer == "42"


def test_the_rest_is_planned_once_more_after_a_failure_and_what_was_done_is_kept():
    wants, outcome = play(
        [GraphDraft(), GraphResult((A,), ("b failed: gone",)), GraphDraft(), GraphResult((B,)), ANSWER]
    )
    assert wants[2] == DraftGraph(START.then(A), "", ("b failed: gone",))
    assert wants[3] == RunGraph(START.then(A))
    assert outcome.path == START.then(A, B)


def test_it_is_not_planned_a_third_time():
    failed = GraphResult((), ("b failed: gone",))
    wants, outcome = play([GraphDraft(), failed, GraphDraft(), failed, ANSWER])
    assert [type(want) for want in wants] == [DraftGraph, RunGraph, DraftGraph, RunGraph, AskModel]
    assert outcome.ending == "answered"


def test_an_answer_in_the_place_of_a_plan_is_the_answer():
    wants, outcome = play([Thought("It is 42.")])
    assert wants == [DraftGraph(START)]
    assert (outcome.ending, outcome.answer) == ("answered", "It is 42.")


def test_a_call_in_the_place_of_a_plan_is_made():
    call = Call("a", {})
    wants, _ = play([Thought("Look.", call), (Observation("seen"),), ANSWER])
    assert wants[1:] == [CallTool(START, (call,)), AskModel(START.then(Step("Look.", call, Observation("seen"))))]


def test_without_anything_to_plan_with_it_thinks():
    wants, outcome = play([None, ANSWER])
    assert wants == [DraftGraph(START), AskModel(START)]
    assert outcome.answer == "42"


@pytest.mark.parametrize(
    ("max_steps", "replies", "asked"),
    [
        (1, [GraphDraft(), GraphResult((A,))], [DraftGraph, RunGraph]),
        (1, [GraphDraft("no")], [DraftGraph]),
        (2, [GraphDraft("no"), GraphDraft("no")], [DraftGraph, DraftGraph]),
        (
            2,
            [GraphDraft(), GraphResult((), ("a failed: no",)), GraphDraft(), GraphResult()],
            [DraftGraph, RunGraph, DraftGraph, RunGraph],
        ),
        (1, [Thought("", Call("a", {})), (Observation("seen"),)], [DraftGraph, CallTool]),
    ],
)
def test_drafts_count_as_steps(max_steps, replies, asked):
    wants, outcome = play(replies, max_steps=max_steps)
    assert [type(want) for want in wants] == asked
    assert outcome.ending == "exhausted"
