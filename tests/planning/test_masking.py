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
"""Tools with the input and output types of OpenCATP's tools."""
OPENCATP = Path(__file__).parents[3] / "shared" / "data" / "opencatp"
KINDS = st.sampled_from(["image", "text"])


def problem(tools, outputs, inputs=("image",), **limits):
    return Problem(
        {name: Signature.strict(*io) for name, io in tools.items()},
        inputs,
        outputs,
        uses=1,
        **limits,
    )


def all_drawable(task: Problem) -> set[str]:
    """Every plan the mask allows; asserts that no draft is a dead end."""
    plans, queue = set(), [[]]
    while queue:
        tokens = queue.pop()
        draft = Draft(task)
        for token in tokens:
            draft.add(token)
        following = draft.next_tokens()
        assert len(following) == len(set(following))
        if draft.finished:
            plans.add(" ".join(draft.tokens))
        else:
            assert following or not tokens, f"a dead end: {draft.tokens}"
            queue += [[*tokens, token] for token in following]
    return plans


def mutated(plan, rng):
    """A plan with one token removed, doubled or replaced."""
    tokens = plan.split(" ")
    at = rng.randrange(1, len(tokens) - 1)
    tokens[at : at + 1] = rng.choice(([], [tokens[at]] * 2, [rng.choice(tokens)]))
    return " ".join(tokens)


@pytest.mark.parametrize("name", problems(TYPES))
def test_drawn_plans_are_valid_and_validator_and_judge_agree_on_others(name):
    task, rng = problems(TYPES)[name], random.Random(6)
    plans = [random_plan(task, rng) for _ in range(60)]
    unmasked = [
        *(mutated(plan, rng) for plan in plans),
        *(random_plan(task, rng, masked=False) for _ in range(60)),
    ]
    verdicts = {
        plan: solves(plan, TYPES, list(task.inputs), task.outputs, task.max_tokens)
        for plan in (*plans, *unmasked)
    }
    assert all(verdicts[plan] for plan in plans)
    assert {plan: valid(plan, task) for plan in verdicts} == verdicts
    assert len(set(plans)) > 40
    assert not all(verdicts.values())


def test_every_combination_of_types_has_a_problem():
    assert len(problems(TYPES)) == len(TASK_TYPES) == 9
    assert "image→image+text+text" in problems(TYPES)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(st.lists(KINDS, min_size=1, max_size=2).map(tuple), KINDS),
        min_size=1,
    ),
    st.lists(KINDS, min_size=1, max_size=2),
    st.lists(KINDS, min_size=1, max_size=2),
    st.integers(4, 16),
)
def test_the_mask_allows_exactly_the_valid_plans(tools, inputs, outputs, max_tokens):
    task = problem(tools, tuple(outputs), tuple(inputs), max_tokens=max_tokens)
    solutions = all_solutions(tools, inputs, outputs, max_tokens)
    assert all_drawable(task) == {plan for plan in solutions if in_order(plan)}


def in_order(plan):
    """Whether each node lists the task first and then earlier nodes in plan order."""
    nodes = nodes_of(plan)
    order = ["task", *(tool for tool, _ in nodes)]
    return all(after == sorted(after, key=order.index) for _, after in nodes)


def test_token_and_node_limits_force_the_shortest_end_of_a_plan():
    tools = {
        "blur": (("image",), "image"),
        "caption": (("image",), "text"),
        "translate": (("text",), "text"),
    }
    tight = problem(tools, ("text",), max_tokens=9)
    assert {len(plan.split()) - 1 for plan in all_drawable(tight)} == {5, 9}
    two = problem(tools, ("text",), max_nodes=2)
    assert max(plan.count("<SoD>") for plan in all_drawable(two)) == 2
    draft = Draft(two)
    for token in ("[blur]", "<SoD>", "<task>", "<EoD>"):
        draft.add(token)
    assert draft.next_tokens() == ["[caption]"]


def test_a_tool_can_be_repeated_with_the_next_index_without_a_limit_of_uses():
    task = Problem({"count": Signature(frozenset({"text"}), frozenset({"text"}))}, max_nodes=3)
    draft = Draft(task)
    for token in ("[count]", "<SoD>", "<task>", "<EoD>", "[count#2]", "<SoD>"):
        draft.add(token)
    assert set(draft.next_tokens()) == {"<count>", "<task>"}
    rng = random.Random(1)
    plans = [random_plan(task, rng) for _ in range(50)]
    assert all(valid(plan, task) for plan in plans)
    assert max(plan.count("<SoD>") for plan in plans) == 3


def test_an_invalid_token_is_refused_with_the_valid_ones():
    draft = Draft(problem(TYPES, ("text",)))
    with pytest.raises(PlanFault, match=r"`\[EoP\]` may not come here.") as caught:
        draft.add("[EoP]")
    assert "[caption]" in caught.value.fix
    assert draft.tokens == ["[SoP]"]


def test_a_problem_without_a_solution_has_no_first_token():
    task = problem({"blur": (("image",), "image")}, ("text",))
    assert Draft(task).next_tokens() == []
    assert random_plan(task, random.Random(1)) == ""


@pytest.mark.parametrize(
    ("text", "label", "words"),
    [
        ('["captoin", ["<task>"]]', "captoin", "tool called `captoin`. Nearest: `caption`"),
        ('["caption", ["<task>"], "caption#2", ["<task>"]]', "caption#2", "at most"),
        ('["caption#2", ["<task>"]]', "caption#2", "call it `caption`"),
        (
            '["caption", ["<task>"], "classify", ["caption"]]',
            "classify",
            "takes image, and `caption` gives text",
        ),
        ('["translate", ["<task>"]]', "translate", "takes text, and `<task>` gives image"),
        ('["look_and_answer", ["<task>"]]', "look_and_answer", "needs text"),
        (
            '["denoise", ["<task>"]]',
            "denoise",
            "asks for text, nothing more and nothing less; the plan ends in `denoise`",
        ),
        (
            '["caption", ["<task>"], "detect", ["<task>"]]',
            "caption",
            "ends in `caption` (text), `detect` (text)",
        ),
    ],
)
def test_a_fault_of_a_plan_names_its_node(text, label, words):
    fault = faults(parse(text), problem(TYPES, ("text",)))[0]
    assert fault.node == label
    assert words in fault.message


def test_several_faults_are_reported_together():
    plan = parse('["nothing", ["<task>"], "nowhere", ["nothing"]]')
    with pytest.raises(PlanFault, match=r"called `nothing`.*called `nowhere`") as caught:
        validate(plan, problem(TYPES, ("text",)))
    assert caught.value.node == "nothing"


def test_a_plan_of_a_thousand_nodes_is_valid_and_rendered():
    tools = {
        f"t{number}": Signature(frozenset({"text"}), frozenset({"text"})) for number in range(1_000)
    }
    nodes = [Node("t0"), *(Node(f"t{at}", (f"t{at - 1}", f"t{at // 2}")) for at in range(3, 1_000))]
    plan = GraphPlan((nodes[0], Node("t1"), Node("t2", ("t1",)), *nodes[1:]))
    assert faults(plan, Problem(tools, max_nodes=1_000)) == []
    assert parse(render(plan)) == plan
    assert faults(plan, Problem(tools, max_nodes=999)) != []


@pytest.mark.skipif(not OPENCATP.exists(), reason="the recorded plans are missing")
def test_the_recorded_plans_are_valid_for_their_outputs():
    constants = json.loads((OPENCATP / "constants.json").read_text(encoding="utf-8"))
    types = {
        tool: (tuple(takes.split("-")), gives)
        for tool, (takes, gives) in constants["tool_io"].items()
    }
    tasks, checked = problems(types), set()
    for name in ("seq_plan_pool.jsonl", "nonseq_plan_pool.jsonl"):
        for line in (OPENCATP / name).read_text(encoding="utf-8").splitlines():
            plan = parse(json.dumps(json.loads(line)["plan"]))
            outputs = "+".join(sorted(types[node.tool][1] for node in plan.sinks))
            assert faults(plan, tasks[f"image→{outputs}"]) == []
            checked.add(outputs)
    assert checked == {"image", "text", "image+text", "text+text", "image+text+text"}
