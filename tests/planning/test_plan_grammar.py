import random
import re
from importlib.util import find_spec

import pytest

from ecoshell.planning.catp.masking import plan_grammar
from ecoshell.planning.catp.plan import PlanFault
from ecoshell.planning.catp.rules import Problem, faults
from ecoshell.planning.catp.tpl import parse, render
from ecoshell.planning.catp.types import Signature

TEXT_TOOL = Signature(frozenset({"text"}), frozenset({"text"}))
PICTURES = {
    "blur": Signature.strict(["image"], "image"),
    "caption": Signature.strict(["image"], "text"),
    "compare": Signature.strict(["image", "image"], "text"),
    "look_and_answer": Signature.strict(["image", "text"], "text"),
}
SYMBOL = re.compile(r'"((?:[^"\\]|\\.)*)"|([\w-]+)|\|')

Rules = dict[str, list[list[tuple[str, str]]]]
"""The alternatives of each rule, as pairs of a literal and a rule name, one of which is empty."""


def rules_of(grammar: str) -> Rules:
    rules: Rules = {}
    for line in grammar.splitlines():
        name, _, body = line.partition(" ::= ")
        alternatives: list[list[tuple[str, str]]] = [[]]
        for match in SYMBOL.finditer(body):
            if match[0] == "|":
                alternatives.append([])
            else:
                alternatives[-1].append((re.sub(r"\\(.)", r"\1", match[1] or ""), match[2] or ""))
        rules[name] = alternatives
    return rules


def random_text(rules: Rules, rng: random.Random, name: str = "root") -> str:
    """A random text of the grammar, drawn evenly from the alternatives."""
    return "".join(
        literal or random_text(rules, rng, inner) for literal, inner in rng.choice(rules[name])
    )


def all_texts(rules: Rules, name: str = "root") -> set[str]:
    """All texts of the grammar."""
    rule_texts: set[str] = set()
    for alternative in rules[name]:
        texts = {""}
        for literal, inner in alternative:
            texts = {
                text + end
                for text in texts
                for end in ({literal} if literal else all_texts(rules, inner))
            }
        rule_texts |= texts
    return rule_texts


@pytest.mark.parametrize(
    "problem",
    [
        Problem({f"tool_{number}": TEXT_TOOL for number in range(20)}, max_nodes=12),
        Problem(
            {'my "tool"\\': TEXT_TOOL, "größe": TEXT_TOOL, "#2": TEXT_TOOL, "a\nb": TEXT_TOOL},
            max_nodes=4,
        ),
        Problem(PICTURES, ("image",), max_nodes=6),
        Problem(PICTURES, ("image",), ("text",), max_nodes=5),
        Problem(PICTURES, ("image",), ("image", "text"), max_nodes=4),
        Problem(PICTURES, ("image", "text"), ("text", "text"), max_nodes=4),
    ],
)
def test_every_plan_the_grammar_generates_is_valid(problem):
    rules, rng = rules_of(plan_grammar(problem)), random.Random(3)
    plans = [random_text(rules, rng) for _ in range(200)]
    for written in plans:
        plan = parse(written, tools=problem.tools)
        assert faults(plan, problem) == []
        assert render(plan, "numbered") == written
    assert len(set(plans)) > 30
    assert max(len(parse(written).nodes) for written in plans) > 2


@pytest.mark.parametrize("outputs", [(), ("text",), ("image", "text")])
def test_the_grammar_generates_exactly_the_valid_plans(outputs):
    tools = {name: PICTURES[name] for name in ("blur", "caption", "look_and_answer")}
    max_nodes = 3
    problem = Problem(tools, ("image",), outputs, max_nodes=max_nodes)
    prefixes: set[str] = {"["}
    plans: set[str] = set()
    for number in range(1, max_nodes + 1):
        waits = [""]
        for label in ('"<task>"', *map(str, range(1, number))):
            waits += [f"{labels}, {label}" if labels else label for labels in waits]
        prefixes = {
            f'{prefix}[{number}, "{tool}", [{wait}]]'
            for prefix in prefixes
            for tool in tools
            for wait in waits[1:]
        }
        plans |= {f"{prefix}]" for prefix in prefixes if not faults(parse(f"{prefix}]"), problem)}
        prefixes = {f"{prefix}, " for prefix in prefixes}
    assert all_texts(rules_of(plan_grammar(problem))) == plans
    assert plans


def test_an_unsolvable_problem_has_no_grammar():
    with pytest.raises(PlanFault, match="No plan of these tools"):
        plan_grammar(Problem({"blur": PICTURES["blur"]}, ("image",), ("text",)))


def test_an_unbounded_problem_is_refused():
    with pytest.raises(ValueError, match="bounds neither"):
        plan_grammar(Problem(PICTURES, uses=1))


def test_plans_are_shorter_if_the_grammar_would_need_too_many_rules():
    problem = Problem(PICTURES, ("image",), ("text", "text", "image"), max_nodes=16)
    rules, rng = rules_of(plan_grammar(problem)), random.Random(5)
    assert len(rules) < 5_000
    assert all(faults(parse(random_text(rules, rng)), problem) == [] for _ in range(50))


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the local extra is not installed")
def test_llama_cpp_accepts_valid_plans_only():
    from ecoshell.models.choosing import Grammar
    from ecoshell.models.embedded import embedded_path
    from ecoshell.models.llama import Vocabulary

    vocabulary = Vocabulary(embedded_path())
    end = vocabulary.tokens("<|im_end|>", special=True)

    def passes(grammar: str, written: str) -> bool:
        state = Grammar(vocabulary, grammar)
        for token in (*vocabulary.tokens(written), *end):
            if state.allows([token]) != [True]:
                return False
            state.accept(token)
        return True

    try:
        odd = plan_grammar(Problem({'my "tool"\\': TEXT_TOOL, "größe": TEXT_TOOL}, max_nodes=4))
        assert passes(odd, '[[1, "my \\"tool\\"\\\\", ["<task>"]], [2, "größe", [1]]]')
        assert not passes(odd, '[[1, "größe", [1]]]')
        assert not passes(odd, '[[1, "größe", ["<task>"]], [2, "größe", [1, 1]]]')
        assert not passes(odd, '[[1, "other", ["<task>"]]]')
        pictures = plan_grammar(Problem(PICTURES, ("image",), ("text",), max_nodes=5))
        rules, rng = rules_of(pictures), random.Random(4)
        assert all(passes(pictures, random_text(rules, rng)) for _ in range(20))
        assert not passes(pictures, '[[1, "blur", ["<task>"]]]')
        assert not passes(pictures, '[[1, "caption", ["<task>"]], [2, "caption", ["<task>"]]]')
    finally:
        vocabulary.close()
