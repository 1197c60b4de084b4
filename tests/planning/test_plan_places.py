"""Where the faults of a written plan are said to be."""

import pytest

from ecoshell.planning.catp.faults import PlanFault
from ecoshell.planning.catp.prose import find_plan
from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.types import Signature
from ecoshell.planning.catp.validity import faults, validate

TOOLS = {
    "blur": Signature.strict(["image"], "image"),
    "caption": Signature.strict(["image"], "text"),
    "compare": Signature.strict(["image", "image"], "text"),
}


def problem(**limits):
    return Problem(TOOLS, ("image",), limits.pop("wanted", ("text",)), **limits)


@pytest.mark.parametrize(
    ("text", "one", "node", "line", "column"),
    [
        ('["caption", ["<task>"],\n "blur", ["caption"]]', problem(wanted=()), "blur", 2, 11),
        ('["caption", ["<task>"],\n "compare", ["<task>"]]', problem(wanted=()), "compare", 2, 2),
        ('A plan:\n["blur", ["<task>"]]', problem(), "blur", 2, 2),
        ('["blur", ["<task>"], "blur#2", ["blur"],\n"caption", ["blur#2"]]', problem(max_nodes=2), "caption", 2, 1),
        ('["blur", ["<task>"], "blur#2", ["blur"],\n"caption", ["blur#2"]]', problem(uses=1), "blur#2", 1, 22),
        ('["blur", ["<task>"], "caption", ["blur"]]', problem(max_tokens=8), "caption", 1, 22),
        ('["blur", ["<task>"], "caption", ["blur"]]', problem(max_tokens=2), "blur", 1, 2),
        ('["caption#3", ["<task>"]]', problem(), "caption#3", 1, 2),
        ('[[1, "caption", ["<task>"]],\n [2, "blur", ["<task>", 1]]]', problem(), "blur", 2, 25),
        ("[SoP] [caption] <SoD> <task> <EoD>\n[blur] <SoD> < caption > <EoD> [EoP]", problem(), "blur", 2, 16),
    ],
)
def test_every_fault_of_a_written_plan_tells_node_line_and_column(text, one, node, line, column):
    found = find_plan(text)
    first = faults(found.plan, one, found.places)[0]
    assert (first.node, first.line, first.column) == (node, line, column)
    assert first.message.startswith(f"line {line}, column {column}: ")
    assert f"`{node}`" in first.message
    assert faults(found.plan, one)[0].line is None


def test_several_faults_are_told_each_with_its_place():
    found = find_plan('["blur", ["<task>"],\n"caption", ["blur"], "blur#2",\n["caption"], "blur#3", ["caption"]]')
    with pytest.raises(PlanFault) as caught:
        validate(found.plan, problem(wanted=()), found.places)
    said = str(caught.value)
    assert said.startswith("line 3, column 2: `blur#2` takes image, and `caption` gives text.")
    assert " line 3, column 25: `blur#3` takes image, and `caption` gives text." in said
    assert said.count("line 3, column 2:") == 1


def test_a_plan_within_its_limit_of_tokens_is_not_too_long():
    found = find_plan('["blur", ["<task>"], "caption", ["blur"]]')
    assert faults(found.plan, problem(max_tokens=9), found.places) == []
