"""An independent judge of plans in the token form: it shares no code with the mask, and is slow and plain."""

import itertools
import re


def nodes_of(text: str) -> list[tuple[str, list[str]]] | None:
    """The nodes of a plan; None for what is not in the language."""
    words = text.split(" ")
    if words[0] != "[SoP]" or words[-1] != "[EoP]":
        return None
    nodes: list[tuple[str, list[str]]] = []
    rest = words[1:-1]
    while rest:
        if len(rest) < 3 or "<EoD>" not in rest or not re.fullmatch(r"\[[^\]]+\]", rest[0]) or rest[1] != "<SoD>":
            return None
        end = rest.index("<EoD>")
        if not all(re.fullmatch(r"<[^>]+>", word) for word in rest[2:end]):
            return None
        nodes.append((rest[0][1:-1], [word[1:-1] for word in rest[2:end]]))
        rest = rest[end + 1 :]
    return nodes


def solves(text, tools, given, wanted, max_tokens):
    """Whether a plan of tools that each stand in it once, `{name: (inputs, output)}`, does the task."""
    nodes = nodes_of(text)
    if not nodes or len(text.split(" ")) - 1 > max_tokens or len({tool for tool, _ in nodes}) < len(nodes):
        return False
    done: list[str] = []
    for tool, deps in nodes:
        known = tool in tools and all(dep == "task" or dep in done for dep in deps)
        if not known or not deps or len(set(deps)) < len(deps):
            return False
        inputs = tools[tool][0]
        brought = [tools[dep][1] for dep in deps if dep != "task"]
        useless = any(kind not in inputs for kind in brought) or ("task" in deps and not set(given) & set(inputs))
        brought += given if "task" in deps else []
        if useless or any(brought.count(kind) < inputs.count(kind) for kind in inputs):
            return False
        done.append(tool)
    awaited = {dep for _, deps in nodes for dep in deps}
    ends = sorted(tools[tool][1] for tool in done if tool not in awaited)
    return ends == sorted(wanted)


def all_solutions(tools, given, wanted, max_tokens):
    """Every solution there is, found by trying everything."""
    found = set()
    for size in range(1, len(tools) + 1):
        for order in itertools.permutations(tools, size):
            choices = []
            for at in range(size):
                pool = ["task", *order[:at]]
                choices.append([pick for n in range(1, len(pool) + 1) for pick in itertools.permutations(pool, n)])
            for picks in itertools.product(*choices):
                body = [f"[{t}] <SoD> {' '.join(f'<{d}>' for d in p)} <EoD>" for t, p in zip(order, picks, strict=True)]
                text = f"[SoP] {' '.join(body)} [EoP]"
                if solves(text, tools, given, wanted, max_tokens):
                    found.add(text)
    return found
