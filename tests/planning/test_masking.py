import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_judge import all_solutions, nodes_of, solves

from ecoshell.planning.catp.masking import Draft
from ecoshell.planning.catp.plan import GraphPlan, Node, PlanFault
from ecoshell.planning.catp.rules import Problem, faults, validate
from ecoshell.planning.catp.tpl import parse, render
from ecoshell.planning.catp.types import Signature
from ecoshell_bench.catp_random import TASK_TYPES, problems, random_plan, valid

TYPES = {
    "colorize": (("image",), "image"),
    "denoise": (("image",), "image"),
    "deblur": (("image",), "image"),
    "enlarge": (("image",), "image"),
    "classify": (("image",), "text"),
    "caption": (("image",), "text"),
    "detect": (("image",), "text"),
    "summarize": (("text",), "text"),
    "translate": (("text",), "text"),
    "paint": (("text",), "image"),
    "answer": (("text", "text"), "text"),
    "look_and_answer": (("image", "text"), "text"),
}
"""Tools of the shapes that OpenCATP's have, some of each."""
OPENCATP = Path(__file__).parents[3] / "shared" / "data" / "opencatp"
KINDS = st.sampled_from(["image", "text"])


def problem(tools, wanted, given=("image",), **limits):
    return Problem({name: Signature.strict(*io) for name, io in tools.items()}, given, wanted, uses=1, **limits)


def all_drawable(one: Problem) -> set[str]:
    """Every plan the mask lets be written, and the proof that it leads nowhere else."""
    found, waiting = set(), [[]]
    while waiting:
        tokens = waiting.pop()
        draft = Draft(one)
        for token in tokens:
            draft.add(token)
        following = draft.next_tokens()
        assert len(following) == len(set(following))
        if draft.finished:
            found.add(" ".join(draft.tokens))
        else:
            assert following or not tokens, f"a dead end: {draft.tokens}"
            waiting += [[*tokens, token] for token in following]
    return found


def mutated(plan, rng):
    """A plan with one of its tokens left out, doubled, or another in its place."""
    tokens = plan.split(" ")
    at = rng.randrange(1, len(tokens) - 1)
    tokens[at : at + 1] = rng.choice(([], [tokens[at]] * 2, [rng.choice(tokens)]))
    return " ".join(tokens)


@pytest.mark.parametrize("task", problems(TYPES))
def test_what_the_mask_lets_be_written_is_valid_and_of_other_plans_validator_and_judge_say_the_same(task):
    one, rng = problems(TYPES)[task], random.Random(6)
    plans = [random_plan(one, rng) for _ in range(60)]
    others = [*(mutated(plan, rng) for plan in plans), *(random_plan(one, rng, masked=False) for _ in range(60))]
    judged = {plan: solves(plan, TYPES, list(one.given), one.wanted, one.max_tokens) for plan in (*plans, *others)}
    assert all(judged[plan] for plan in plans)
    assert {plan: valid(plan, one) for plan in judged} == judged
    assert len(set(plans)) > 40
    assert not all(judged.values())


def test_there_is_a_problem_for_every_combination_of_types():
    assert len(problems(TYPES)) == len(TASK_TYPES) == 9
    assert "image→image+text+text" in problems(TYPES)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abc"), st.tuples(st.lists(KINDS, min_size=1, max_size=2).map(tuple), KINDS), min_size=1
    ),
    st.lists(KINDS, min_size=1, max_size=2),
    st.lists(KINDS, min_size=1, max_size=2),
    st.integers(4, 16),
)
def test_the_mask_allows_all_valid_plans_and_no_others(tools, given, wanted, most):
    one = problem(tools, tuple(wanted), tuple(given), max_tokens=most)
    assert all_drawable(one) == {plan for plan in all_solutions(tools, given, wanted, most) if in_order(plan)}


def in_order(plan):
    """Whether each node waits for the task first, and then for others as they stand."""
    nodes = nodes_of(plan)
    order = ["task", *(tool for tool, _ in nodes)]
    return all(after == sorted(after, key=order.index) for _, after in nodes)


def test_no_limit_of_tokens_or_nodes_is_passed_and_the_shortest_closure_is_forced_before():
    tools = {"blur": (("image",), "image"), "caption": (("image",), "text"), "translate": (("text",), "text")}
    tight = problem(tools, ("text",), max_tokens=9)
    assert {len(plan.split()) - 1 for plan in all_drawable(tight)} == {5, 9}
    two = problem(tools, ("text",), max_nodes=2)
    assert max(plan.count("<SoD>") for plan in all_drawable(two)) == 2
    draft = Draft(two)
    for token in ("[blur]", "<SoD>", "<task>", "<EoD>"):
        draft.add(token)
    assert draft.next_tokens() == ["[caption]"]


def test_a_tool_may_come_again_with_the_next_index_where_uses_are_not_bounded():
    one = Problem({"count": Signature(frozenset({"text"}), frozenset({"text"}))}, max_nodes=3)
    draft = Draft(one)
    for token in ("[count]", "<SoD>", "<task>", "<EoD>", "[count#2]", "<SoD>"):
        draft.add(token)
    assert set(draft.next_tokens()) == {"<count>", "<task>"}
    rng = random.Random(1)
    plans = [random_plan(one, rng) for _ in range(50)]
    assert all(valid(plan, one) for plan in plans)
    assert max(plan.count("<SoD>") for plan in plans) == 3


def test_a_token_that_may_not_come_is_refused_with_those_that_may():
    draft = Draft(problem(TYPES, ("text",)))
    with pytest.raises(PlanFault, match=r"`\[EoP\]` may not come here.") as caught:
        draft.add("[EoP]")
    assert "[caption]" in caught.value.fix
    assert draft.tokens == ["[SoP]"]


def test_a_problem_without_a_solution_has_no_first_token():
    one = problem({"blur": (("image",), "image")}, ("text",))
    assert Draft(one).next_tokens() == []
    assert random_plan(one, random.Random(1)) == ""


@pytest.mark.parametrize(
    ("text", "label", "words"),
    [
        ('["captoin", ["<task>"]]', "captoin", "There is no tool called `captoin`. Nearest: `caption`"),
        ('["caption", ["<task>"], "caption#2", ["<task>"]]', "caption#2", "at most"),
        ('["caption#2", ["<task>"]]', "caption#2", "call it `caption`"),
        ('["caption", ["<task>"], "classify", ["caption"]]', "classify", "takes image, and `caption` gives text"),
        ('["translate", ["<task>"]]', "translate", "takes text, and `<task>` gives image"),
        ('["look_and_answer", ["<task>"]]', "look_and_answer", "needs text"),
        (
            '["denoise", ["<task>"]]',
            "denoise",
            "asks for text, nothing more and nothing less; the plan ends in `denoise`",
        ),
        ('["caption", ["<task>"], "detect", ["<task>"]]', "caption", "ends in `caption` (text), `detect` (text)"),
    ],
)
def test_what_keeps_a_plan_from_the_task_is_told_with_the_node(text, label, words):
    found = faults(parse(text), problem(TYPES, ("text",)))
    assert found[0].node == label
    assert words in found[0].message


def test_several_faults_are_told_at_once():
    plan = parse('["nothing", ["<task>"], "nowhere", ["nothing"]]')
    with pytest.raises(PlanFault, match=r"called `nothing`.*called `nowhere`") as caught:
        validate(plan, problem(TYPES, ("text",)))
    assert caught.value.node == "nothing"


def test_a_plan_of_a_thousand_nodes_is_valid_and_prints():
    tools = {f"t{number}": Signature(frozenset({"text"}), frozenset({"text"})) for number in range(1_000)}
    nodes = [Node("t0"), *(Node(f"t{at}", (f"t{at - 1}", f"t{at // 2}")) for at in range(3, 1_000))]
    plan = GraphPlan((nodes[0], Node("t1"), Node("t2", ("t1",)), *nodes[1:]))
    assert faults(plan, Problem(tools, max_nodes=1_000)) == []
    assert parse(render(plan)) == plan
    assert faults(plan, Problem(tools, max_nodes=999)) != []


@pytest.mark.skipif(not OPENCATP.exists(), reason="the recorded plans are not here")
def test_the_recorded_plans_are_valid_for_what_they_end_in():
    constants = json.loads((OPENCATP / "constants.json").read_text(encoding="utf-8"))
    types = {tool: (tuple(takes.split("-")), gives) for tool, (takes, gives) in constants["tool_io"].items()}
    known, checked = problems(types), set()
    for name in ("seq_plan_pool.jsonl", "nonseq_plan_pool.jsonl"):
        for line in (OPENCATP / name).read_text(encoding="utf-8").splitlines():
            plan = parse(json.dumps(json.loads(line)["plan"]))
            wanted = "+".join(sorted(types[node.tool][1] for node in plan.sinks))
            assert faults(plan, known[f"image→{wanted}"]) == []
            checked.add(wanted)
    assert checked == {"image", "text", "image+text", "text+text", "image+text+text"}
