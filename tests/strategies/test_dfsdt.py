"""The dfsdt strategy, driven without a model."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from search_play import ANY_THOUGHT, StrategyRun, answers, calls, gives_up, is_answer

from ecoshell.messages import Observation
from ecoshell.strategies import AskModel, Backtrack, CallTool, Path, Rank
from ecoshell.strategies.search import DFSDT_DEPTH, FAILURES, WIDTH, dfsdt

FAILED = Observation("no such file", ok=False)


def walk(*thoughts, **play):
    return StrategyRun(dfsdt, thoughts, **play)


def test_a_question_without_failures_costs_as_much_as_with_react():
    played = walk(calls("a"), calls("b"), answers("3"))
    assert [type(request) for request in played.requests] == [
        AskModel,
        CallTool,
        AskModel,
        CallTool,
        AskModel,
    ]
    assert (played.outcome.ending, played.outcome.answer, len(played.outcome.path.steps)) == (
        "answered",
        "3",
        2,
    )


def test_giving_up_replaces_the_last_step():
    played = walk(calls("a"), calls("b"), gives_up("b knows nothing"), calls("c"), answers("3"))
    assert played.called_tools == ["a", "b", "c"]
    assert [step.call.name for step in played.outcome.path.steps] == ["a", "c"]
    (backtrack,) = played.of(Backtrack)
    assert ([step.call.name for step in backtrack.path.steps], len(backtrack.to.steps)) == (
        ["a", "b"],
        1,
    )


def test_siblings_get_earlier_attempts_with_their_outcome():
    played = walk(calls("a", path="x"), gives_up("x is empty"), calls("b"), answers())
    attempts = played.of(AskModel)[2].siblings
    assert [
        (attempt.call.name, attempt.call.arguments, attempt.outcome) for attempt in attempts
    ] == [("a", {"path": "x"}, "given up: x is empty")]


def test_a_branch_does_not_contain_steps_of_an_abandoned_branch():
    played = walk(calls("tool_register", tool_name="a"), gives_up(), calls("b"), answers())
    assert played.of(AskModel)[2].path == Path("How many?")
    assert played.outcome.path.registered == ()


def test_the_search_backtracks_one_step_further_after_both_children_failed():
    played = walk(calls("a"), calls("b"), gives_up(), calls("c"), gives_up(), calls("d"), answers())
    assert [step.call.name for step in played.outcome.path.steps] == ["d"]
    assert [len(backtrack.to.steps) for backtrack in played.of(Backtrack)] == [1, 0]


def test_giving_up_on_the_first_step_ends_the_search():
    played = walk(gives_up("it cannot be done"))
    assert (played.outcome.ending, played.outcome.answer) == ("gave_up", "it cannot be done")


def test_an_exhausted_search_gives_the_last_reason():
    played = walk(calls("a"), gives_up("first"), calls("b"), gives_up("second"))
    assert (played.outcome.ending, played.outcome.answer) == ("gave_up", "second")


def test_consecutive_failures_backtrack_before_the_first_of_them():
    failing = [calls("fail", path=str(at)) for at in range(FAILURES)]
    thoughts = [calls("a"), *failing, calls("b"), answers()]
    played = walk(
        *thoughts, observe=lambda call: FAILED if call.name == "fail" else Observation("")
    )
    (backtrack,) = played.of(Backtrack)
    assert [step.call.name for step in backtrack.to.steps] == ["a"]
    assert "no such file" in backtrack.reason
    assert played.of(AskModel)[-2].siblings[0].call.arguments == {"path": "0"}
    assert [step.call.name for step in played.outcome.path.steps] == ["a", "b"]


def test_the_same_call_is_not_made_twice():
    played = walk(calls("a", path="x"), gives_up("nothing"), calls("a", path="x"))
    assert played.called_tools == ["a"]
    assert played.outcome.ending == "gave_up"


def test_only_an_answer_is_accepted_at_the_depth_limit():
    played = walk(*(calls("a", at=at) for at in range(DFSDT_DEPTH + 1)), calls("b"), answers("3"))
    assert played.called_tools == ["a"] * DFSDT_DEPTH + ["b"]
    assert (played.outcome.ending, len(played.outcome.path.steps)) == ("answered", DFSDT_DEPTH)
    assert played.of(Backtrack)[0].reason == f"no answer after {DFSDT_DEPTH} steps"


def test_the_step_limit_returns_the_path_with_most_results():
    fail, again, third = (calls("fail", at=at) for at in range(3))
    thoughts = [calls("a"), calls("b"), fail, gives_up(), again, gives_up(), third, gives_up()]
    played = walk(
        *thoughts,
        max_steps=8,
        observe=lambda call: FAILED if call.name == "fail" else Observation(""),
    )
    assert played.outcome.ending == "exhausted"
    assert [step.call for step in played.outcome.path.steps[:2]] == [
        request.calls[0] for request in played.of(CallTool)[:2]
    ]
    assert (played.outcome.path.results, played.of(Backtrack)[-1].to) == (2, played.outcome.path)


@given(
    thoughts=st.lists(ANY_THOUGHT, min_size=41, max_size=41),
    max_steps=st.integers(1, 40),
    luck=st.lists(st.booleans(), min_size=41, max_size=41),
)
def test_every_search_stays_within_its_limits_and_ends_at_the_first_answer(
    thoughts, max_steps, luck
):
    outcomes = iter(luck)
    played = walk(
        *thoughts, max_steps=max_steps, observe=lambda call: Observation("seen", ok=next(outcomes))
    )
    thought = len(played.of(AskModel))
    assert thought <= max_steps
    assert played.longest <= DFSDT_DEPTH
    assert all(children <= WIDTH for children in played.children)
    assert not played.of(Rank)
    first = next(at for at, candidate in enumerate([*thoughts, answers()]) if is_answer(candidate))
    assert (played.outcome.ending == "answered") == (first == thought - 1)


@given(st.lists(ANY_THOUGHT, min_size=41, max_size=41), st.integers(1, 40))
def test_a_search_continues_only_from_visited_paths(thoughts, max_steps):
    visited = [Path("How many?")]
    for request in walk(*thoughts, max_steps=max_steps).requests:
        if isinstance(request, Backtrack):
            assert request.to in visited
        elif request.path not in visited:
            assert replace(request.path, steps=request.path.steps[:-1]) in visited
        visited.append(request.path)
