import random
import re
from importlib.util import find_spec

import pytest

from ecoshell.planning.catp.faults import PlanFault
from ecoshell.planning.catp.grammar import plan_grammar
from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.tpl import parse, render
from ecoshell.planning.catp.types import Signature
from ecoshell.planning.catp.validity import faults

TEXT_TOOL = Signature(frozenset({"text"}), frozenset({"text"}))
PICTURES = {
    "blur": Signature.strict(["image"], "image"),
    "caption": Signature.strict(["image"], "text"),
    "compare": Signature.strict(["image", "image"], "text"),
    "look_and_answer": Signature.strict(["image", "text"], "text"),
}
SYMBOL = re.compile(r'"((?:[^"\\]|\\.)*)"|([\w-]+)|\|')

Rules = dict[str, list[list[tuple[str, str]]]]
"""For each rule its alternatives, as pairs of a literal and a name, of which one is empty."""


def rules_of(grammar: str) -> Rules:
    found: Rules = {}
    for line in grammar.splitlines():
        name, _, body = line.partition(" ::= ")
        alternatives: list[list[tuple[str, str]]] = [[]]
        for match in SYMBOL.finditer(body):
            if match[0] == "|":
                alternatives.append([])
            else:
                alternatives[-1].append((re.sub(r"\\(.)", r"\1", match[1] or ""), match[2] or ""))
        found[name] = alternatives
    return found


def walked(rules: Rules, rng: random.Random, name: str = "root") -> str:
    """A text the grammar generates, its alternatives drawn evenly."""
    return "".join(literal or walked(rules, rng, inner) for literal, inner in rng.choice(rules[name]))


def generated(rules: Rules, name: str = "root") -> set[str]:
    """All the texts the grammar generates."""
    found: set[str] = set()
    for alternative in rules[name]:
        texts = {""}
        for literal, inner in alternative:
            texts = {text + end for text in texts for end in ({literal} if literal else generated(rules, inner))}
        found |= texts
    return found


@pytest.mark.parametrize(
    "problem",
    [
        Problem({f"tool_{number}": TEXT_TOOL for number in range(20)}, max_nodes=12),
        Problem({'my "tool"\\': TEXT_TOOL, "größe": TEXT_TOOL, "#2": TEXT_TOOL, "a\nb": TEXT_TOOL}, max_nodes=4),
        Problem(PICTURES, ("image",), max_nodes=6),
        Problem(PICTURES, ("image",), ("text",), max_nodes=5),
        Problem(PICTURES, ("image",), ("image", "text"), max_nodes=4),
        Problem(PICTURES, ("image", "text"), ("text", "text"), max_nodes=4),
    ],
)
def test_every_plan_the_grammar_generates_is_valid(problem):
    rules, rng = rules_of(plan_grammar(problem)), random.Random(3)
    plans = [walked(rules, rng) for _ in range(200)]
    for written in plans:
        plan = parse(written, tools=problem.tools)
        assert faults(plan, problem) == []
        assert render(plan, "numbered") == written
    assert len(set(plans)) > 30
    assert max(len(parse(written).nodes) for written in plans) > 2


@pytest.mark.parametrize("wanted", [(), ("text",), ("image", "text")])
def test_the_grammar_generates_every_valid_plan_once(wanted):
    tools = {name: PICTURES[name] for name in ("blur", "caption", "look_and_answer")}
    most = 3
    problem = Problem(tools, ("image",), wanted, max_nodes=most)
    every: set[str] = {"["}
    complete: set[str] = set()
    for number in range(1, most + 1):
        waits = [""]
        for one in ('"<task>"', *map(str, range(1, number))):
            waits += [f"{before}, {one}" if before else one for before in waits]
        every = {f'{so_far}[{number}, "{tool}", [{wait}]]' for so_far in every for tool in tools for wait in waits[1:]}
        complete |= {f"{so_far}]" for so_far in every if not faults(parse(f"{so_far}]"), problem)}
        every = {f"{so_far}, " for so_far in every}
    assert generated(rules_of(plan_grammar(problem))) == complete
    assert complete


def test_a_problem_no_plan_solves_has_no_grammar():
    with pytest.raises(PlanFault, match="No plan of these tools"):
        plan_grammar(Problem({"blur": PICTURES["blur"]}, ("image",), ("text",)))


def test_what_a_grammar_cannot_count_is_refused():
    with pytest.raises(ValueError, match="bounds neither"):
        plan_grammar(Problem(PICTURES, uses=1))


def test_where_too_many_rules_would_be_needed_the_plans_are_shorter():
    problem = Problem(PICTURES, ("image",), ("text", "text", "image"), max_nodes=16)
    rules, rng = rules_of(plan_grammar(problem)), random.Random(5)
    assert len(rules) < 5_000
    assert all(faults(parse(walked(rules, rng)), problem) == [] for _ in range(50))


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the local extra is not installed")
def test_llama_cpp_takes_the_grammar_and_lets_valid_plans_pass_alone():
    from ecoshell.models.choosing import Grammar
    from ecoshell.models.embedded import embedded_path
    from ecoshell.models.llama import Vocabulary

    vocabulary = Vocabulary(embedded_path())
    end = vocabulary.tokens("<|im_end|>", special=True)

    def passes(grammar: str, written: str) -> bool:
        state = Grammar(vocabulary, grammar)
        try:
            for token in (*vocabulary.tokens(written), *end):
                if state.allows([token]) != [True]:
                    return False
                state.accept(token)
            return True
        finally:
            state.close()

    try:
        odd = plan_grammar(Problem({'my "tool"\\': TEXT_TOOL, "größe": TEXT_TOOL}, max_nodes=4))
        assert passes(odd, '[[1, "my \\"tool\\"\\\\", ["<task>"]], [2, "größe", [1]]]')
        assert not passes(odd, '[[1, "größe", [1]]]')
        assert not passes(odd, '[[1, "größe", ["<task>"]], [2, "größe", [1, 1]]]')
        assert not passes(odd, '[[1, "other", ["<task>"]]]')
        pictures = plan_grammar(Problem(PICTURES, ("image",), ("text",), max_nodes=5))
        rules, rng = rules_of(pictures), random.Random(4)
        assert all(passes(pictures, walked(rules, rng)) for _ in range(20))
        assert not passes(pictures, '[[1, "blur", ["<task>"]]]')
        assert not passes(pictures, '[[1, "caption", ["<task>"]], [2, "caption", ["<task>"]]]')
    finally:
        vocabulary.close()
