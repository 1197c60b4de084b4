"""The tool planning language: parse and print branching plans (CATP-LLM §3.1, SPEC §3).

tokens    [SoP] [count_text] <SoD> <task> <EoD> [calculate] <SoD> <count_text> <EoD> [EoP]
text      ["count_text", ["<task>"], "calculate", ["count_text"]]
numbered  [[1, "count_text", ["<task>"]], [2, "calculate", [1]]]

The first two are the paper's. The third names what a node waits for by its number, so that a grammar can hold a model
to it exactly (planning/catp/grammar). A dependency is `<task>` or a node that stands earlier. A label is a tool's name,
and from its second use on its index: `read_file#2`; a tool whose own name ends so is written with its index, `c#2#1`.
In the token form a name with blanks, brackets or quotes, or one of the language's own words, is a JSON string:
`["my tool"]`, `<"task">`.
"""

from collections.abc import Collection
from typing import Literal

from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.planning.catp.checks import MAX_NODES, check
from ecoshell.planning.catp.faults import PlanFault
from ecoshell.planning.catp.reading import Reader
from ecoshell.planning.catp.scanner import unfenced
from ecoshell.planning.catp.words import quoted, token_word, written_label

__all__ = ["MAX_NODES", "Form", "PlanFault", "parse", "render", "tokens"]

Form = Literal["tokens", "text", "numbered"]


def parse(text: str, *, tools: Collection[str] | None = None, max_nodes: int = MAX_NODES) -> GraphPlan:
    """The plan that a text in any of the forms says, and nothing else; a code fence around it is passed over.

    `tools` are the names that are known; None takes every name. Raises PlanFault, which tells the place, also for what
    is no text. What a model writes has prose around it: that is read by planning/catp/prose.
    """
    taken = _text(text)
    return Reader(taken, unfenced(taken), tools, max_nodes).written().plan


def render(plan: GraphPlan, form: Form = "tokens") -> str:
    """The plan as a text that `parse` reads back, all on one line; raises PlanFault for what is no plan.

    The numbered form keeps the order of the nodes, not their indices: these count the uses of each tool from 1 on.
    """
    check(plan)
    if form == "tokens":
        return " ".join(tokens(plan))
    if form == "text":
        words = {node.label: quoted(written_label(node)) for node in plan.nodes} | {TASK: quoted(TASK)}
        return f"[{', '.join(f'{words[node.label]}, [{_listed(node, words)}]' for node in plan.nodes)}]"
    numbers = {node.label: str(number) for number, node in enumerate(plan.nodes, 1)} | {TASK: quoted(TASK)}
    entries = (f"[{numbers[node.label]}, {quoted(node.tool)}, [{_listed(node, numbers)}]]" for node in plan.nodes)
    return f"[{', '.join(entries)}]"


def tokens(plan: GraphPlan) -> list[str]:
    """The plan as the sequence of tool, dependency and structure tokens that a model learns to write."""
    words = {node.label: token_word(written_label(node)) for node in plan.nodes} | {TASK: "task"}
    found = ["[SoP]"]
    for node in plan.nodes:
        found += [f"[{words[node.label]}]", "<SoD>", *(f"<{words[label]}>" for label in node.after), "<EoD>"]
    return [*found, "[EoP]"]


def _text(written: object) -> str:
    if isinstance(written, str):
        return written
    raise PlanFault(f"A plan is read from a text (str), and this is {type(written).__name__}.")


def _listed(node: Node, words: dict[str, str]) -> str:
    return ", ".join(words[label] for label in node.after)
