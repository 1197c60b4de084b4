"""An independent, slow and simple check of plans in token form, which shares no code with the mask."""

import itertools
import re


def nodes_of(text: str) -> list[tuple[str, list[str]]] | None:
    """The nodes of a plan, or None if the text is not a valid plan."""
    words = text.split(" ")
    if words[0] != "[SoP]" or words[-1] != "[EoP]":
        return None
    nodes: list[tuple[str, list[str]]] = []
    remaining = words[1:-1]
    while remaining:
        if (
            len(remaining) < 3
            or "<EoD>" not in remaining
            or not re.fullmatch(r"\[[^\]]+\]", remaining[0])
            or remaining[1] != "<SoD>"
        ):
            return None
        end = remaining.index("<EoD>")
        if not all(re.fullmatch(r"<[^>]+>", word) for word in remaining[2:end]):
            return None
        nodes.append((remaining[0][1:-1], [word[1:-1] for word in remaining[2:end]]))
        remaining = remaining[end + 1 :]
    return nodes


def solves(text, tools, inputs, outputs, max_tokens):
    """Whether a plan that uses each tool, `{name: (inputs, output)}`, at most once solves the task."""
    nodes = nodes_of(text)
    if (
        not nodes
        or len(text.split(" ")) - 1 > max_tokens
        or len({tool for tool, _ in nodes}) < len(nodes)
    ):
        return False
    done: list[str] = []
    for tool, deps in nodes:
        is_known = tool in tools and all(dep == "task" or dep in done for dep in deps)
        if not is_known or not deps or len(set(deps)) < len(deps):
            return False
        required = tools[tool][0]
        available = [tools[dep][1] for dep in deps if dep != "task"]
        useless = any(kind not in required for kind in available) or (
            "task" in deps and not set(inputs) & set(required)
        )
        available += inputs if "task" in deps else []
        if useless or any(available.count(kind) < required.count(kind) for kind in required):
            return False
        done.append(tool)
    awaited = {dep for _, deps in nodes for dep in deps}
    ends = sorted(tools[tool][1] for tool in done if tool not in awaited)
    return ends == sorted(outputs)


def all_solutions(tools, inputs, outputs, max_tokens):
    """Every solution, by exhaustive search."""
    solutions = set()
    for size in range(1, len(tools) + 1):
        for order in itertools.permutations(tools, size):
            choices = []
            for at in range(size):
                pool = ["task", *order[:at]]
                choices.append(
                    [
                        pick
                        for n in range(1, len(pool) + 1)
                        for pick in itertools.permutations(pool, n)
                    ]
                )
            for picks in itertools.product(*choices):
                body = [
                    f"[{t}] <SoD> {' '.join(f'<{d}>' for d in p)} <EoD>"
                    for t, p in zip(order, picks, strict=True)
                ]
                text = f"[SoP] {' '.join(body)} [EoP]"
                if solves(text, tools, inputs, outputs, max_tokens):
                    solutions.add(text)
    return solutions
