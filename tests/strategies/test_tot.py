from hypothesis import given
from hypothesis import strategies as st
from search_play import ANY_THOUGHT, Played, answers, calls, gives_up, is_answer

from ecoshell.messages import Observation
from ecoshell.strategies import AskModel, Backtrack, Rank, Thought
from ecoshell.strategies.search import TOT_DEPTH, WIDTH, tot


def walk(*thoughts, **play):
    return Played(tot, thoughts, **play)


def prefer(*names):
    """A judge who prefers tools in this order, whichever is shown first."""

    def choose(want):
        return min(want.first, want.second, key=lambda thought: names.index(thought.call.name))

    return choose


def shown_first(want):
    return want.first


def shown_last(want):
    return want.second


def cannot_say(want):
    return None


def test_two_steps_are_proposed_and_only_the_better_one_is_carried_out():
    played = walk(calls("a"), calls("b"), answers("3"), rank=prefer("b", "a"))
    assert played.made == ["b"]
    assert (played.outcome.ending, played.outcome.answer) == ("answered", "3")
    assert [want.proposal for want in played.of(AskModel)] == [True, True, True]


def test_the_second_proposal_is_told_of_the_first_and_that_it_was_not_made():
    played = walk(calls("a", path="x"), calls("b"), answers())
    (told,) = played.of(AskModel)[1].tried
    assert (told.call.name, told.call.arguments, told.outcome) == ("a", {"path": "x"}, "")


def test_a_later_proposal_wins_only_where_it_wins_in_both_orders():
    won = walk(calls("a"), calls("b"), answers(), rank=prefer("b", "a"))
    orders = [(want.first.call.name, want.second.call.name) for want in won.of(Rank)]
    assert (won.made, orders) == (["b"], [("a", "b"), ("b", "a")])


def test_disagreement_between_the_orders_falls_to_the_earlier_proposal():
    assert walk(calls("a"), calls("b"), answers(), rank=shown_last).made == ["a"]
    assert walk(calls("a"), calls("b"), answers(), rank=cannot_say).made == ["a"]


def test_the_second_order_is_not_paid_for_where_it_could_change_nothing():
    played = walk(calls("a"), calls("b"), answers(), rank=shown_first)
    assert (played.made, len(played.of(Rank))) == (["a"], 1)


def test_the_proposal_that_lost_is_taken_up_when_the_other_came_to_nothing():
    played = walk(calls("a"), calls("b"), gives_up("a led nowhere"), answers("3"))
    assert played.made == ["a", "b"]
    assert [step.call.name for step in played.outcome.path.steps] == ["b"]
    assert [leave.reason for leave in played.of(Backtrack)] == ["given up: a led nowhere"]
    assert len(played.of(AskModel)) == 4


def test_an_answer_proposed_first_ends_the_search_at_once():
    played = walk(answers("3"))
    assert (len(played.wants), played.outcome.answer) == (1, "3")


def test_an_answer_proposed_second_is_ranked_like_any_step():
    lost = walk(calls("a"), answers("early"), answers("late"), rank=shown_first)
    won = walk(calls("a"), Thought("early"), rank=lambda want: max(want.first, want.second, key=is_answer))
    assert (lost.made, lost.outcome.answer) == (["a"], "late")
    assert (won.made, won.outcome.answer) == ([], "early")


def test_an_answer_that_lost_is_given_when_the_other_step_came_to_nothing():
    played = walk(calls("a"), answers("early"), gives_up())
    assert (played.made, played.outcome.ending, played.outcome.answer) == (["a"], "answered", "early")


def test_a_second_proposal_that_gives_up_or_is_the_first_once_more_is_not_compared():
    for second in (gives_up(), calls("a", path="x")):
        played = walk(calls("a", path="x"), second, answers())
        assert (played.made, played.of(Rank)) == (["a"], [])


def test_a_step_without_a_rival_that_came_to_nothing_is_followed_by_a_new_thought():
    played = walk(calls("a"), gives_up("no other"), gives_up("a is empty"), calls("b"), answers())
    assert played.made == ["a", "b"]
    asked = played.of(AskModel)[3]
    assert (asked.proposal, [tried.outcome for tried in asked.tried]) == (False, ["given up: a is empty"])


def test_at_the_deepest_step_no_second_proposal_is_asked_for():
    steps = [call for at in range(TOT_DEPTH) for call in (calls("a", at=at), gives_up("none"))]
    played = walk(*steps, answers("3"))
    assert (played.made, len(played.outcome.path.steps)) == (["a"] * TOT_DEPTH, TOT_DEPTH)
    assert len(played.of(AskModel)) == 2 * TOT_DEPTH + 1


def test_with_one_step_left_the_only_proposal_is_taken():
    played = walk(calls("a"), max_steps=1)
    assert (played.made, played.outcome.ending, len(played.outcome.path.steps)) == (["a"], "exhausted", 1)


@given(
    thoughts=st.lists(ANY_THOUGHT, min_size=41, max_size=41),
    max_steps=st.integers(1, 40),
    luck=st.lists(st.booleans(), min_size=41, max_size=41),
    verdicts=st.lists(st.sampled_from([shown_first, shown_last, cannot_say]), min_size=82, max_size=82),
)
def test_no_search_passes_its_bounds_however_it_is_ranked(thoughts, max_steps, luck, verdicts):
    outcomes, ranks = iter(luck), iter(verdicts)

    def observe(call):
        return Observation("seen", ok=next(outcomes))

    def rank(want):
        return next(ranks)(want)

    played = walk(*thoughts, max_steps=max_steps, observe=observe, rank=rank)
    assert len(played.of(AskModel)) <= max_steps
    assert played.longest <= TOT_DEPTH
    assert all(children <= WIDTH for children in played.children)
    assert len(played.of(Rank)) <= len(played.of(AskModel))
    if played.outcome.ending == "answered":
        assert any(is_answer(thought) for thought in thoughts[: len(played.of(AskModel))])
