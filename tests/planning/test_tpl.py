import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.errors import UsageError
from ecoshell.planning.catp.plan import MAX_NODES, TASK, GraphPlan, Node, PlanFault
from ecoshell.planning.catp.tpl import MAX_TEXT, find_plan, parse, render

NAMES = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "c#",
            "c#2",
            "c#2#1",
            "SoP",
            "EoD",
            "task",
            "input_of_query",
            "my tool",
            "[x]",
            "<y>",
            '"',
            "\\",
            "1",
        ]
    ),
    st.text(min_size=1, max_size=12),
).filter(lambda name: name != TASK)
FORMS = ("tokens", "text")


@st.composite
def plans(draw, names=NAMES, max_nodes=12):
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, max_nodes))):
        node = Node(draw(names), (), draw(st.integers(1, 30)))
        labels = [earlier.label for earlier in nodes]
        if node.label in labels or node.label == TASK:
            continue
        after = draw(
            st.lists(st.sampled_from([TASK, *labels]), min_size=1, max_size=5, unique=True)
        )
        nodes.append(Node(node.tool, tuple(after), node.index))
    return GraphPlan(tuple(nodes) or (Node("a"),))


@given(plans())
def test_every_plan_is_parsed_from_both_forms_unchanged(plan):
    for form in FORMS:
        written = render(plan, form)
        assert parse(written) == plan
        assert written.isprintable()


@given(st.lists(st.tuples(NAMES, st.sets(st.integers(0, 8), min_size=1)), min_size=1, max_size=8))
def test_the_numbered_form_is_parsed_unchanged_if_indices_count_uses(drawn):
    nodes: list[Node] = []
    for tool, numbers in drawn:
        index = 1 + sum(node.tool == tool for node in nodes)
        after = [nodes[number].label if number < len(nodes) else TASK for number in sorted(numbers)]
        node = Node(tool, tuple(dict.fromkeys(after)), index)
        if node.label not in {earlier.label for earlier in nodes}:
            nodes.append(node)
    plan = GraphPlan(tuple(nodes))
    assert parse(render(plan, "numbered")) == plan


def test_the_three_forms_of_one_plan():
    plan = GraphPlan(
        (Node("read_file"), Node("read_file", index=2), Node("calc", ("read_file", "read_file#2")))
    )
    assert render(plan) == (
        "[SoP] [read_file] <SoD> <task> <EoD> [read_file#2] <SoD> <task> <EoD> "
        "[calc] <SoD> <read_file> <read_file#2> <EoD> [EoP]"
    )
    assert render(plan, "text") == (
        '["read_file", ["<task>"], "read_file#2", ["<task>"], "calc", ["read_file", "read_file#2"]]'
    )
    assert (
        render(plan, "numbered")
        == '[[1, "read_file", ["<task>"]], [2, "read_file", ["<task>"]], [3, "calc", [1, 2]]]'
    )


def test_whitespace_and_a_code_fence_are_ignored():
    plan = GraphPlan((Node("a"), Node("b", ("a",))))
    assert parse('```json\n[ "a" ,\n ["<task>"],\t"b", ["a"] ]\n```\n') == plan
    assert parse("\n[SoP][a]<SoD><task><EoD>\n[b]<SoD>< a ><EoD>[EoP]  ") == plan


def test_a_byte_order_mark_is_ignored_in_columns():
    assert (
        parse('\ufeff["a", ["<task>"]]')
        == parse('\ufeff```json\n["a", ["<task>"]]\n```')
        == GraphPlan((Node("a"),))
    )
    with pytest.raises(PlanFault, match=r"^line 1, column 8: ") as caught:
        parse('\ufeff["a", ["b"]]')
    assert caught.value.position == 8
    with pytest.raises(PlanFault, match=r"^line 1, column 1: .*no plan"):
        parse("\ufeff")


def test_whitespace_unknown_to_json_can_separate_dependencies():
    assert parse('["a",\xa0["<task>"], "b", ["a",\xa0"<task>"]]') == GraphPlan(
        (Node("a"), Node("b", ("a", TASK)))
    )
    assert parse('[[1, "a", ["<task>"]], [2, "b", [1,\xa0"<task>"]]]') == GraphPlan(
        (Node("a"), Node("b", ("a", TASK)))
    )


@pytest.mark.parametrize("plan", [None, 123, b'["a", ["<task>"]]', ["a", ["<task>"]]])
def test_a_plan_that_is_not_text_is_refused_with_its_type(plan):
    with pytest.raises(PlanFault, match=f"this is {type(plan).__name__}"):
        parse(plan)


def test_plans_of_the_recorded_pools_are_parsed():
    written = json.dumps(
        ["image_denoising", ["input_of_query"], "object_detection", ["image_denoising"]]
    )
    assert parse(written) == GraphPlan(
        (Node("image_denoising"), Node("object_detection", ("image_denoising",)))
    )


def test_a_name_that_ends_like_an_index_is_distinguished_from_one():
    literal, second = GraphPlan((Node("c#2"),)), GraphPlan((Node("c", index=2),))
    assert render(literal, "text") == '["c#2#1", ["<task>"]]'
    assert render(second, "text") == '["c#2", ["<task>"]]'
    assert parse('["c#2", ["<task>"]]') == second
    assert parse('["c#2", ["<task>"]]', tools={"c#2"}) == literal


def test_a_tool_called_task_is_distinguished_from_the_task():
    plan = GraphPlan((Node("task"), Node("b", ("task", TASK))))
    assert render(plan) == '[SoP] ["task"] <SoD> <task> <EoD> [b] <SoD> <"task"> <task> <EoD> [EoP]'
    assert parse(render(plan)) == plan
    assert parse('["task", ["<task>"], "b", ["task", "<task>"]]') == plan


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "empty"),
        (" \n ", 2, 2, "empty"),
        ("[]", 1, 1, "empty"),
        ("[SoP] [EoP]", 1, 1, "empty"),
        ("[[]]", 1, 3, "number, 1"),
        ('["a"', 1, 5, "ends here"),
        ('["a', 1, 2, "in quotes"),
        ('["a", ["<task>"]', 1, 17, "ends here"),
        ('["a", ["<task>"]] ]', 1, 19, "the end of the text"),
        ('["a", []]', 1, 2, "names no dependency"),
        ('["a", ["<task>", "<task>"]]', 1, 18, "twice"),
        (" \n  [ ]", 2, 3, "empty"),
        ('["a",\n ["a"]]', 2, 3, "waits for itself"),
        (
            '["a", ["<task>"], "b", ["<task>", "a",\n"x\\"y" , "a"]]',
            2,
            1,
            "which is not in the plan",
        ),
        ('["a", ["<task>"], "b", ["<task>" ,"a", 1]]', 1, 40, "a dependency in quotes"),
        ('["a", [["<task>"]]]', 1, 8, "a dependency in quotes"),
        ('["a", [null]]', 1, 8, "a dependency in quotes"),
        ('["a", "b"]', 1, 7, "the tool's dependencies"),
        ('[[1, "a", [0]]]', 1, 12, "`node 0`, which is not in the plan"),
        ('[[1, "a", ["<task>"]], [2, "b", [-1]]]', 1, 34, "not in the plan"),
        ('[[1, "a", ["<task>"]], [2, "b", [1.0]]]', 1, 35, "`]`"),
        ('[[1, "a", ["<task>"]], [2, "b", [true]]]', 1, 34, "a node's number"),
        (
            '[SoP] [a] <SoD> <task> <EoD> [b] <SoD> <task> <"x y"> <a> <EoD> [EoP]',
            1,
            48,
            "`x y`, which is not",
        ),
        (
            "[SoP] [a] <SoD> <task> <EoD> [b,c] <SoD> <a> <b,c> <EoD> [EoP]",
            1,
            47,
            "waits for itself",
        ),
        ('["a", ["b"], "b", ["a"]]', 1, 8, "in a cycle: `a` → `b` → `a`"),
        ('["a", ["b"], "b", ["<task>"]]', 1, 8, "stands later"),
        ('["a", ["<task>"],\n"b", ["x"]]', 2, 7, "`x`, which is not in the plan"),
        ('["a", ["<task>"], "a", ["<task>"]]', 1, 19, "Two nodes are called `a`"),
        ('["", ["<task>"]]', 1, 2, "cannot be called"),
        ('["<task>", ["<task>"]]', 1, 2, "cannot be called"),
        ('["a\x01", ["<task>"]]', 1, 2, "not a JSON string"),
        ('["\\x", ["<task>"]]', 1, 2, "not a JSON string"),
        ('[["a", ["<task>"]]]', 1, 3, "number, 1"),
        ('[[1, "a", [2]]]', 1, 12, "`node 2`, which is not in the plan"),
        ('[[1, "a", ["<task>"]], [3, "b", [1]]]', 1, 25, "node 2, not 3"),
        ("[SoP] [a] <task> <EoD> [EoP]", 1, 16, "`<SoD>`"),
        ("[SoP] [a] <SoD> <EoD> [EoP]", 1, 8, "names no dependency"),
        ("[SoP] [a] <SoD> <task> <EoD>", 1, 29, "`[EoP]`"),
        ('{"plan": []}', 1, 1, "`[`"),
        ("count the words", 1, 1, "`[`"),
    ],
)
def test_an_invalid_plan_is_refused_at_its_position(text, line, column, words):
    with pytest.raises(PlanFault) as caught:
        parse(text)
    assert isinstance(caught.value, UsageError)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.message
    assert caught.value.message.startswith(f"line {line}, column {column}: ")


def test_an_unknown_tool_is_named_with_its_position_and_similar_names():
    with pytest.raises(
        PlanFault, match=r"line 1, column 2: .*tool called `read_fil`. Nearest: `read_file`"
    ):
        parse('["read_fil", ["<task>"]]', tools=["read_file", "current_time"])


def test_messages_escape_control_characters_of_the_plan():
    with pytest.raises(PlanFault) as caught:
        parse('["a", ["\\u001b[31m' + "x" * 5_000 + '"]]')
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("name", ["\\ud800", "\\udc00x", "\\u0000", "\ud800", "é\u202e"])
def test_a_message_about_any_name_can_be_encoded(name):
    with pytest.raises(PlanFault) as caught:
        parse(f'["{name}", ["<task>"]]', tools=["a"])
    assert caught.value.message.encode().isascii() or "é" in caught.value.message
    assert caught.value.message.isprintable()


def test_a_plan_over_the_node_limit_is_refused_at_the_first_node_too_many():
    entries = ", ".join(f'"t{number}", ["<task>"]' for number in range(MAX_NODES + 1))
    with pytest.raises(PlanFault, match=f"more than {MAX_NODES} nodes") as caught:
        parse(f"[{entries}]")
    assert caught.value.position == 1 + entries.index(f'"t{MAX_NODES}"')
    assert caught.value.node == f"t{MAX_NODES}"
    allowed = entries[: entries.index(f', "t{MAX_NODES}"')]
    assert len(parse(f"[{allowed}]").nodes) == MAX_NODES


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "empty"),
        ((Node("a", ()),), "names no dependency"),
        ((Node("a", ("x",)),), "not in the plan"),
        ((Node("a", index=0),), "index"),
        ((Node(TASK),), "cannot be called"),
        ((Node("a", ("b",)), Node("b", ("a",))), "cycle: `a` → `b` → `a`"),
        ((Node("a", ("b",)), Node("b")), "stands later"),
        ((Node("a"), Node("a")), "Two nodes"),
    ],
)
def test_an_invalid_plan_cannot_be_constructed(nodes, message):
    with pytest.raises(PlanFault, match=message):
        GraphPlan(nodes)


def test_a_fully_connected_plan_is_parsed_from_every_form_unchanged():
    names = [f"tool_{number}" for number in range(300)]
    plan = GraphPlan(
        tuple(Node(name, tuple(names[:at]) or (TASK,)) for at, name in enumerate(names))
    )
    assert all(parse(render(plan, form)) == plan for form in ("tokens", "text", "numbered"))


@settings(max_examples=300)
@given(st.text(alphabet='[]<>",#\\ aSoPDEk1_\n`\x00é', max_size=60) | st.text(max_size=40))
def test_any_text_is_a_plan_or_a_fault(text):
    with suppress(PlanFault):
        plan = parse(text)
        assert parse(render(plan)) == plan


@given(plans(), st.data())
def test_a_truncated_plan_is_a_fault(plan, data):
    for form in FORMS:
        text = render(plan, form)
        with pytest.raises(PlanFault):
            parse(text[: data.draw(st.integers(0, len(text) - 1))])


GARBAGE = {
    "brackets": "[" * 1_000_000,
    "an open string": '["' + "x" * 1_000_000,
    "escapes": '["' + '\\"' * 500_000,
    "blanks": " " * 1_000_000 + "x",
    "beginnings": "[SoP] " * 160_000,
    "an open list": '["a", [' + '"x", ' * 200_000,
    "one dependency": '["a", [' + '"<task>", ' * 99_999 + '"<task>"]]',
    "fences": "```" * 330_000,
    "nested": '["a", ' + "[" * 1_000_000,
    "nested numbers": '[[1, "a", ' + "[" * 1_000_000 + "]" * 1_000_000,
    "a long number": '[[1, "a", [' + "9" * 1_000_000 + "]]]",
    "nothing": "\0" * 1_000_000,
    "surrogates": '["' + "\ud800" * 1_000_000 + '", ["<task>"]]',
    "itself": "[SoP] [a] <SoD> " + "<a> " * 250_000 + "<EoD> [EoP]",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_million_characters_of_garbage_are_a_fault(name):
    with pytest.raises(PlanFault) as caught:
        parse(GARBAGE[name], tools=["a"])
    assert len(caught.value.message) < 300
    with pytest.raises(PlanFault) as caught:
        find_plan(GARBAGE[name][:MAX_TEXT], ["a"])
    assert len(caught.value.message) < 300
