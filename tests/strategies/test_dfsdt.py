from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from search_play import ANY_THOUGHT, Played, answers, calls, gives_up, is_answer

from ecoshell.messages import Observation
from ecoshell.strategies import AskModel, Backtrack, CallTool, Path, Rank
from ecoshell.strategies.search import DFSDT_DEPTH, FAILURES, WIDTH, dfsdt

FAILED = Observation("no such file", ok=False)


def walk(*thoughts, **play):
    return Played(dfsdt, thoughts, **play)


def test_a_question_that_goes_well_costs_what_react_costs():
    played = walk(calls("a"), calls("b"), answers("3"))
    assert [type(want) for want in played.wants] == [AskModel, CallTool, AskModel, CallTool, AskModel]
    assert (played.outcome.ending, played.outcome.answer, len(played.outcome.path.steps)) == ("answered", "3", 2)


def test_after_giving_up_the_last_step_is_replaced_by_another():
    played = walk(calls("a"), calls("b"), gives_up("b knows nothing"), calls("c"), answers("3"))
    assert played.made == ["a", "b", "c"]
    assert [step.call.name for step in played.outcome.path.steps] == ["a", "c"]
    (left,) = played.of(Backtrack)
    assert ([step.call.name for step in left.path.steps], len(left.to.steps)) == (["a", "b"], 1)


def test_siblings_are_told_what_was_tried_and_what_came_of_it():
    played = walk(calls("a", path="x"), gives_up("x is empty"), calls("b"), answers())
    told = played.of(AskModel)[2].tried
    assert [(tried.call.name, tried.call.arguments, tried.outcome) for tried in told] == [
        ("a", {"path": "x"}, "given up: x is empty")
    ]


def test_a_branch_does_not_see_the_steps_of_the_one_that_was_left():
    played = walk(calls("tool_register", tool_name="a"), gives_up(), calls("b"), answers())
    assert played.of(AskModel)[2].path == Path("How many?")
    assert played.outcome.path.registered == ()


def test_when_both_children_came_to_nothing_the_search_goes_back_one_further():
    played = walk(calls("a"), calls("b"), gives_up(), calls("c"), gives_up(), calls("d"), answers())
    assert [step.call.name for step in played.outcome.path.steps] == ["d"]
    assert [len(leave.to.steps) for leave in played.of(Backtrack)] == [1, 0]


def test_giving_up_before_anything_was_tried_ends_the_search():
    played = walk(gives_up("it cannot be done"))
    assert (played.outcome.ending, played.outcome.answer) == ("gave_up", "it cannot be done")


def test_when_nothing_is_left_to_try_the_last_reason_is_given():
    played = walk(calls("a"), gives_up("first"), calls("b"), gives_up("second"))
    assert (played.outcome.ending, played.outcome.answer) == ("gave_up", "second")


def test_failures_in_a_row_lead_back_before_the_first_of_them():
    failing = [calls("fail", path=str(at)) for at in range(FAILURES)]
    thoughts = [calls("a"), *failing, calls("b"), answers()]
    played = walk(*thoughts, observe=lambda call: FAILED if call.name == "fail" else Observation(""))
    (left,) = played.of(Backtrack)
    assert [step.call.name for step in left.to.steps] == ["a"]
    assert "no such file" in left.reason
    assert played.of(AskModel)[-2].tried[0].call.arguments == {"path": "0"}
    assert [step.call.name for step in played.outcome.path.steps] == ["a", "b"]


def test_a_call_that_was_tried_already_is_not_made_again():
    played = walk(calls("a", path="x"), gives_up("nothing"), calls("a", path="x"))
    assert played.made == ["a"]
    assert played.outcome.ending == "gave_up"


def test_at_the_deepest_step_only_an_answer_is_taken():
    played = walk(*(calls("a", at=at) for at in range(DFSDT_DEPTH + 1)), calls("b"), answers("3"))
    assert played.made == ["a"] * DFSDT_DEPTH + ["b"]
    assert (played.outcome.ending, len(played.outcome.path.steps)) == ("answered", DFSDT_DEPTH)
    assert played.of(Backtrack)[0].reason == f"no answer after {DFSDT_DEPTH} steps"


def test_out_of_steps_the_path_with_the_most_results_is_what_there_is():
    fail, again, third = (calls("fail", at=at) for at in range(3))
    thoughts = [calls("a"), calls("b"), fail, gives_up(), again, gives_up(), third, gives_up()]
    played = walk(*thoughts, max_steps=8, observe=lambda call: FAILED if call.name == "fail" else Observation(""))
    assert played.outcome.ending == "exhausted"
    assert [step.call for step in played.outcome.path.steps[:2]] == [want.calls[0] for want in played.of(CallTool)[:2]]
    assert (played.outcome.path.results, played.of(Backtrack)[-1].to) == (2, played.outcome.path)


@given(
    thoughts=st.lists(ANY_THOUGHT, min_size=41, max_size=41),
    max_steps=st.integers(1, 40),
    luck=st.lists(st.booleans(), min_size=41, max_size=41),
)
def test_no_search_passes_its_bounds_and_the_first_answer_ends_it(thoughts, max_steps, luck):
    outcomes = iter(luck)
    played = walk(*thoughts, max_steps=max_steps, observe=lambda call: Observation("seen", ok=next(outcomes)))
    thought = len(played.of(AskModel))
    assert thought <= max_steps
    assert played.longest <= DFSDT_DEPTH
    assert all(children <= WIDTH for children in played.children)
    assert not played.of(Rank)
    first = next(at for at, one in enumerate([*thoughts, answers()]) if is_answer(one))
    assert (played.outcome.ending == "answered") == (first == thought - 1)


@given(st.lists(ANY_THOUGHT, min_size=41, max_size=41), st.integers(1, 40))
def test_a_search_only_goes_on_from_where_it_has_been(thoughts, max_steps):
    seen = [Path("How many?")]
    for want in walk(*thoughts, max_steps=max_steps).wants:
        if isinstance(want, Backtrack):
            assert want.to in seen
        elif want.path not in seen:
            assert replace(want.path, steps=want.path.steps[:-1]) in seen
        seen.append(want.path)
