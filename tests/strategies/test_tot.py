"""The tot strategy, driven without a model."""

from hypothesis import given
from hypothesis import strategies as st
from search_play import ANY_THOUGHT, StrategyRun, answers, calls, gives_up, is_answer

from ecoshell.messages import Observation
from ecoshell.strategies import AskModel, Backtrack, Rank, Thought
from ecoshell.strategies.search import TOT_DEPTH, WIDTH, tot


def walk(*thoughts, **play):
    return StrategyRun(tot, thoughts, **play)


def prefer(*names):
    """A judge that prefers tools in this order, whichever is listed first."""

    def choose(request):
        return min(
            request.first, request.second, key=lambda thought: names.index(thought.call.name)
        )

    return choose


def prefer_first(request):
    return request.first


def prefer_second(request):
    return request.second


def undecided(request):
    return None


def test_only_the_better_of_two_proposed_steps_runs():
    played = walk(calls("a"), calls("b"), answers("3"), rank=prefer("b", "a"))
    assert played.called_tools == ["b"]
    assert (played.outcome.ending, played.outcome.answer) == ("answered", "3")
    assert [request.proposal for request in played.of(AskModel)] == [True, True, True]


def test_the_second_proposal_gets_the_first_as_an_untried_attempt():
    played = walk(calls("a", path="x"), calls("b"), answers())
    (attempt,) = played.of(AskModel)[1].siblings
    assert (attempt.call.name, attempt.call.arguments, attempt.outcome) == ("a", {"path": "x"}, "")


def test_a_later_proposal_must_win_in_both_orders():
    won = walk(calls("a"), calls("b"), answers(), rank=prefer("b", "a"))
    orders = [(request.first.call.name, request.second.call.name) for request in won.of(Rank)]
    assert (won.called_tools, orders) == (["b"], [("a", "b"), ("b", "a")])


def test_the_earlier_proposal_wins_a_disagreement():
    assert walk(calls("a"), calls("b"), answers(), rank=prefer_second).called_tools == ["a"]
    assert walk(calls("a"), calls("b"), answers(), rank=undecided).called_tools == ["a"]


def test_the_second_order_is_skipped_if_it_cannot_change_the_result():
    played = walk(calls("a"), calls("b"), answers(), rank=prefer_first)
    assert (played.called_tools, len(played.of(Rank))) == (["a"], 1)


def test_the_losing_proposal_runs_after_the_winner_failed():
    played = walk(calls("a"), calls("b"), gives_up("a led nowhere"), answers("3"))
    assert played.called_tools == ["a", "b"]
    assert [step.call.name for step in played.outcome.path.steps] == ["b"]
    assert [backtrack.reason for backtrack in played.of(Backtrack)] == ["given up: a led nowhere"]
    assert len(played.of(AskModel)) == 4


def test_an_answer_proposed_first_ends_the_search_at_once():
    played = walk(answers("3"))
    assert (len(played.requests), played.outcome.answer) == (1, "3")


def test_an_answer_proposed_second_is_ranked_like_any_step():
    lost = walk(calls("a"), answers("early"), answers("late"), rank=prefer_first)
    won = walk(
        calls("a"),
        Thought("early"),
        rank=lambda request: max(request.first, request.second, key=is_answer),
    )
    assert (lost.called_tools, lost.outcome.answer) == (["a"], "late")
    assert (won.called_tools, won.outcome.answer) == ([], "early")


def test_a_losing_answer_is_given_after_the_winner_failed():
    played = walk(calls("a"), answers("early"), gives_up())
    assert (played.called_tools, played.outcome.ending, played.outcome.answer) == (
        ["a"],
        "answered",
        "early",
    )


def test_a_second_proposal_that_gives_up_or_repeats_is_not_ranked():
    for second in (gives_up(), calls("a", path="x")):
        played = walk(calls("a", path="x"), second, answers())
        assert (played.called_tools, played.of(Rank)) == (["a"], [])


def test_a_failed_step_without_a_rival_is_followed_by_a_new_step():
    played = walk(calls("a"), gives_up("no other"), gives_up("a is empty"), calls("b"), answers())
    assert played.called_tools == ["a", "b"]
    request = played.of(AskModel)[3]
    assert (request.proposal, [attempt.outcome for attempt in request.siblings]) == (
        False,
        ["given up: a is empty"],
    )


def test_no_second_proposal_is_requested_at_the_depth_limit():
    steps = [call for at in range(TOT_DEPTH) for call in (calls("a", at=at), gives_up("none"))]
    played = walk(*steps, answers("3"))
    assert (played.called_tools, len(played.outcome.path.steps)) == (["a"] * TOT_DEPTH, TOT_DEPTH)
    assert len(played.of(AskModel)) == 2 * TOT_DEPTH + 1


def test_the_only_proposal_runs_with_one_step_left():
    played = walk(calls("a"), max_steps=1)
    assert (played.called_tools, played.outcome.ending, len(played.outcome.path.steps)) == (
        ["a"],
        "exhausted",
        1,
    )


@given(
    thoughts=st.lists(ANY_THOUGHT, min_size=41, max_size=41),
    max_steps=st.integers(1, 40),
    luck=st.lists(st.booleans(), min_size=41, max_size=41),
    verdicts=st.lists(
        st.sampled_from([prefer_first, prefer_second, undecided]), min_size=82, max_size=82
    ),
)
def test_every_search_stays_within_its_limits_under_any_ranking(
    thoughts, max_steps, luck, verdicts
):
    outcomes, ranks = iter(luck), iter(verdicts)

    def observe(call):
        return Observation("seen", ok=next(outcomes))

    def rank(request):
        return next(ranks)(request)

    played = walk(*thoughts, max_steps=max_steps, observe=observe, rank=rank)
    assert len(played.of(AskModel)) <= max_steps
    assert played.longest <= TOT_DEPTH
    assert all(children <= WIDTH for children in played.children)
    assert len(played.of(Rank)) <= len(played.of(AskModel))
    if played.outcome.ending == "answered":
        assert any(is_answer(thought) for thought in thoughts[: len(played.of(AskModel))])
