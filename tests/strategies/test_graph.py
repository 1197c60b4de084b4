"""The graph strategy without I/O: its requests, their order, and the fallback to single steps."""

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
    """Send these replies to the strategy; return its requests and its outcome."""
    thinking, requests, reply = graph("How many?", max_steps), [], None
    replies = iter(replies)
    try:
        while True:
            requests.append(thinking.send(reply))
            reply = next(replies)
    except StopIteration as stop:
        return requests, stop.value


def test_a_plan_is_drafted_and_run_before_the_answer():
    requests, outcome = play([GraphDraft(), GraphResult((A, B)), ANSWER])
    path = START.then(A, B)
    assert requests == [DraftGraph(START), RunGraph(START), AskModel(path)]
    assert outcome == Outcome("answered", "42", path)


def test_an_invalid_plan_is_drafted_again_with_its_error():
    requests, _ = play([GraphDraft("a waits for itself"), GraphDraft(), GraphResult((A,)), ANSWER])
    assert requests[:3] == [
        DraftGraph(START),
        DraftGraph(START, "a waits for itself"),
        RunGraph(START),
    ]


def test_two_invalid_plans_fall_back_to_single_steps():
    call = Call("a", {})
    requests, outcome = play(
        [GraphDraft("no"), GraphDraft("no"), Thought("", call), (Observation("seen"),), ANSWER]
    )
    assert [type(request) for request in requests] == [
        DraftGraph,
        DraftGraph,
        AskModel,
        CallTool,
        AskModel,
    ]
    assert outcome.answer == "42"


def test_a_failure_leads_to_a_second_plan_that_keeps_finished_steps():
    requests, outcome = play(
        [
            GraphDraft(),
            GraphResult((A,), ("b failed: gone",)),
            GraphDraft(),
            GraphResult((B,)),
            ANSWER,
        ]
    )
    assert requests[2] == DraftGraph(START.then(A), "", ("b failed: gone",))
    assert requests[3] == RunGraph(START.then(A))
    assert outcome.path == START.then(A, B)


def test_there_is_no_third_plan():
    failed = GraphResult((), ("b failed: gone",))
    requests, outcome = play([GraphDraft(), failed, GraphDraft(), failed, ANSWER])
    assert [type(request) for request in requests] == [
        DraftGraph,
        RunGraph,
        DraftGraph,
        RunGraph,
        AskModel,
    ]
    assert outcome.ending == "answered"


def test_an_answer_instead_of_a_plan_ends_the_turn():
    requests, outcome = play([Thought("It is 42.")])
    assert requests == [DraftGraph(START)]
    assert (outcome.ending, outcome.answer) == ("answered", "It is 42.")


def test_a_call_instead_of_a_plan_runs():
    call = Call("a", {})
    requests, _ = play([Thought("Look.", call), (Observation("seen"),), ANSWER])
    assert requests[1:] == [
        CallTool(START, (call,)),
        AskModel(START.then(Step("Look.", call, Observation("seen")))),
    ]


def test_without_a_planner_the_model_is_called_for_a_step():
    requests, outcome = play([None, ANSWER])
    assert requests == [DraftGraph(START), AskModel(START)]
    assert outcome.answer == "42"


@pytest.mark.parametrize(
    ("max_steps", "replies", "kinds"),
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
def test_drafts_count_as_steps(max_steps, replies, kinds):
    requests, outcome = play(replies, max_steps=max_steps)
    assert [type(request) for request in requests] == kinds
    assert outcome.ending == "exhausted"
