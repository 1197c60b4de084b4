"""Finding plans in prose, and the positions of their faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.catp.plan import GraphPlan, Node, PlanFault
from ecoshell.planning.catp.rules import Problem, faults, validate
from ecoshell.planning.catp.tpl import MAX_TEXT, find_plan, render
from ecoshell.planning.catp.types import Signature

PLAN = GraphPlan(
    (Node("count", ("<task>",)), Node("count", ("<task>",), 2), Node("sum", ("count", "count#2")))
)
TOOLS = {"count", "sum", "odd [name", 'odd] "name'}
FORMS = ("tokens", "text", "numbered")
AROUND = [
    "{}",
    "Here is [my] plan: {}",
    "{} I hope [that] this [1] helps]",
    "[Note: here it comes\n\n{}\n",
    "It's 5\" [it's 5\" long] and so: {}",
    "- [ ] count\n- [x] add up\n{}",
    "See [the docs](https://example.org) and [[links]], [].\n{}",
    "```json\n{}\n```\nThis counts [both] files.",
    "Sure!\n```\n{}\n```",
    'Nodes are ["count"], and ["<task>"] is the question. {}',
    '{}\nIn it ["count", ["<task>"]] counts, and ["count#2", ["<task>"]] too.',
    "{0}\nOnce more: {0}",
    '{{"plan": {}}}',
    "\ufeff{}",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", AROUND)
def test_a_plan_is_found_in_prose_with_brackets(around, form):
    assert find_plan(around.format(render(PLAN, form)), TOOLS).plan == PLAN


@pytest.mark.parametrize("form", FORMS)
def test_brackets_and_quotes_in_names_do_not_end_a_plan(form):
    plan = GraphPlan((Node("odd [name"), Node('odd] "name', ("odd [name",))))
    assert find_plan(f"A [plan] is {render(plan, form)}, [as] I say.", TOOLS).plan == plan


def test_the_same_plan_in_two_forms_is_one_plan():
    assert (
        find_plan(f"{render(PLAN, 'numbered')} is {render(PLAN)} and {render(PLAN, 'text')}").plan
        == PLAN
    )


@given(st.text(alphabet='a "\n.,(){}', max_size=30), st.text(alphabet="a [].,(){}\n", max_size=30))
def test_a_plan_is_found_in_any_prose_without_brackets(prefix, suffix):
    assert find_plan(f"{prefix}{render(PLAN, 'text')}{suffix}").plan == PLAN


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('Here is [my]\nplan: ["count", ["lost"]] [so]', 2, 18, "`lost`, which is not in the plan"),
        (
            'Here is [my] plan: ["cuont", ["<task>"]]',
            1,
            21,
            "no tool called `cuont`. Nearest: `count`",
        ),
        ('A [plan]:\n```\n["count", ["<task>"\n```', 4, 1, "Expected `,` or `]`"),
        ("[ab] [count, [<task>]] [c]", 1, 7, "a tool's name in quotes; here is `count"),
        ("Plan: [SoP] [count] <SoD> <task> <EoD> [my] words", 1, 45, "Expected `<SoD>`"),
        ("I would count.", 1, 1, "Expected `[`, as a plan begins; here is `I would count.`"),
        ("  ", 1, 3, "the text is empty"),
        ("That is [].", 1, 9, "The plan is empty"),
        ('Cut: ["count", ["<task>"], "sum', 1, 28, "in quotes"),
    ],
)
def test_the_position_of_a_fault_counts_from_the_start_of_the_text(text, line, column, words):
    with pytest.raises(PlanFault) as caught:
        find_plan(text, TOOLS)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.message
    assert caught.value.message.count("line ") == 1


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('["count", ["<task>"]]\n["count#2", ["<task>"]]', 1, 1),
        ('["count", ["<task>"], "count#2", ["<task>"]]\n["sum", ["count", "count#2"]]', 2, 1),
        ('First ["count", ["<task>"]]. Wait, better: ["sum", ["<task>"], "count", ["sum"]]', 1, 7),
        ('[[1, "count", ["<task>"]]], or rather ["sum", ["<task>"]]', 1, 39),
    ],
)
def test_two_different_plans_are_refused(text, line, column):
    with pytest.raises(PlanFault, match="There are two plans") as caught:
        find_plan(text, TOOLS)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        '["count", ["sum", ["<task>"]]]',
        '[["count", ["<task>"]], ["sum", ["count"]]]',
        '[1, ["count", ["<task>"]], 2, ["sum", ["<task>"]]]',
        '[("count", ["<task>"]), {"then": ["sum", ["<task>"]]}]',
        '["count", ["<task>"], "lost", ["<task>"]] ["count", ["<task>"]]',
    ],
)
def test_a_part_of_an_invalid_plan_is_not_a_plan(text):
    with pytest.raises(PlanFault):
        find_plan(text, TOOLS)


def test_a_text_over_the_length_limit_is_refused():
    written = render(PLAN)
    padding = " " * (MAX_TEXT - len(written))
    assert find_plan(padding + written).plan == PLAN
    with pytest.raises(
        PlanFault, match=r"has 200,001 characters; at most 200,000 are read"
    ) as caught:
        find_plan(f" {padding}{written}")
    assert caught.value.column == MAX_TEXT + 1


PICTURES = {
    "blur": Signature.strict(["image"], "image"),
    "caption": Signature.strict(["image"], "text"),
    "compare": Signature.strict(["image", "image"], "text"),
}


def problem(**limits):
    return Problem(PICTURES, ("image",), limits.pop("wanted", ("text",)), **limits)


@pytest.mark.parametrize(
    ("text", "task", "node", "line", "column"),
    [
        ('["caption", ["<task>"],\n "blur", ["caption"]]', problem(wanted=()), "blur", 2, 11),
        ('["caption", ["<task>"],\n "compare", ["<task>"]]', problem(wanted=()), "compare", 2, 2),
        ('A plan:\n["blur", ["<task>"]]', problem(), "blur", 2, 2),
        (
            '["blur", ["<task>"], "blur#2", ["blur"],\n"caption", ["blur#2"]]',
            problem(max_nodes=2),
            "caption",
            2,
            1,
        ),
        (
            '["blur", ["<task>"], "blur#2", ["blur"],\n"caption", ["blur#2"]]',
            problem(uses=1),
            "blur#2",
            1,
            22,
        ),
        ('["blur", ["<task>"], "caption", ["blur"]]', problem(max_tokens=8), "caption", 1, 22),
        ('["blur", ["<task>"], "caption", ["blur"]]', problem(max_tokens=2), "blur", 1, 2),
        ('["caption#3", ["<task>"]]', problem(), "caption#3", 1, 2),
        ('[[1, "caption", ["<task>"]],\n [2, "blur", ["<task>", 1]]]', problem(), "blur", 2, 25),
        (
            "[SoP] [caption] <SoD> <task> <EoD>\n[blur] <SoD> < caption > <EoD> [EoP]",
            problem(),
            "blur",
            2,
            16,
        ),
    ],
)
def test_a_fault_of_a_plan_in_text_has_node_line_and_column(text, task, node, line, column):
    located = find_plan(text)
    first = faults(located.plan, task, located)[0]
    assert (first.node, first.line, first.column) == (node, line, column)
    assert first.message.startswith(f"line {line}, column {column}: ")
    assert f"`{node}`" in first.message
    assert faults(located.plan, task)[0].line is None


def test_several_faults_are_reported_with_their_positions():
    located = find_plan(
        '["blur", ["<task>"],\n"caption", ["blur"], "blur#2",\n["caption"], "blur#3", ["caption"]]'
    )
    with pytest.raises(PlanFault) as caught:
        validate(located.plan, problem(wanted=()), located)
    message = str(caught.value)
    assert message.startswith("line 3, column 2: `blur#2` takes image, and `caption` gives text.")
    assert " line 3, column 25: `blur#3` takes image, and `caption` gives text." in message
    assert message.count("line 3, column 2:") == 1


def test_a_plan_at_its_token_limit_is_valid():
    located = find_plan('["blur", ["<task>"], "caption", ["blur"]]')
    assert faults(located.plan, problem(max_tokens=9), located) == []
