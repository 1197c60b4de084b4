"""Constrained generation of valid plans: a token mask, and a grammar for local models (SPEC §3).

Both follow `Rules.choices`: every prefix can be completed to a valid plan, and every valid plan can be written, with
dependencies in canonical order.
"""

from collections import Counter
from dataclasses import replace

from ecoshell.models.grammar import literal
from ecoshell.planning.catp.plan import TASK, Node, PlanFault, shown
from ecoshell.planning.catp.rules import FAR, Problem, State
from ecoshell.planning.catp.tpl import CLOSE, END, OPEN, START, quoted, token_word

MAX_RULES = 4_000
"""Maximum size of a grammar; larger ones are written for fewer nodes."""


class Draft:
    """A plan written token by token."""

    def __init__(self, problem: Problem) -> None:
        self.tokens: list[str] = [START]
        self._problem = problem
        self._rules = problem.rules
        self._state: State | None = self._rules.start
        self._nodes: list[Node] = []
        self._uses: Counter[str] = Counter()
        self._next: dict[str, tuple[State | None, Node | None]] | None = None

    @property
    def finished(self) -> bool:
        """Whether the plan ends with [EoP]."""
        return self.tokens[-1] == END

    def next_tokens(self) -> list[str]:
        """Return the valid next tokens; none for a finished plan or an unsolvable problem."""
        return list(self._following())

    def add(self, token: str) -> None:
        """Append a token; raises PlanFault for an invalid one."""
        allowed = self._following()
        if token not in allowed:
            raise PlanFault(
                f"{shown(token)} may not come here.", fix=f"These may: {', '.join([*allowed][:9])}."
            )
        self.tokens.append(token)
        self._state, new_node = allowed[token]
        self._next = None
        if new_node is not None:
            self._nodes.append(new_node)
            self._uses[new_node.tool] += 1

    def _following(self) -> dict[str, tuple[State | None, Node | None]]:
        """Return the valid next tokens, each with the next state and the node that it starts."""
        if self._next is None:
            self._next = {}
            limit = self._problem.max_tokens
            tokens_left = FAR - 1 if limit is None else limit - len(self.tokens) + 1
            if self._state is not None and self.tokens[-1][0] == "[" and self._nodes:
                self._next[OPEN] = self._state, None
            elif self._state is not None:
                for (kind, number), after in self._rules.choices(self._state, tokens_left):
                    if kind == "node":
                        self._next[f"<{token_word(self._nodes[number])}>"] = after, None
                    elif kind != "tool":
                        self._next[_SIGNS[kind]] = after, None
                    else:
                        for tool, tool_class in self._rules.class_of.items():
                            used = self._uses[tool]
                            if tool_class == number and (
                                self._problem.uses is None or used < self._problem.uses
                            ):
                                node = Node(tool, index=used + 1)
                                self._next[f"[{token_word(node)}]"] = after, node
        return self._next


_SIGNS = {"task": TASK, "close": CLOSE, "end": END}


def plan_grammar(problem: Problem) -> str:
    """Return the GBNF grammar of valid plans in the numbered form, which needs the fewest states.

    Plans have up to the maximum nodes of the problem, or as many as MAX_RULES rules can express. Raises PlanFault for
    an unsolvable problem, and ValueError for limits on uses or tokens, which a grammar cannot count.
    """
    if problem.uses is not None or problem.max_tokens is not None:
        raise ValueError("a grammar bounds neither the uses of a tool nor the tokens")
    rules: dict[State, str] = {}
    for nodes in range(1, problem.max_nodes + 1):
        further = _states(replace(problem, max_nodes=nodes))
        if further is None:
            break
        rules = further
    if not rules:
        raise PlanFault("No plan of these tools gives what the task asks for.")
    lines = ['root ::= "[" s0', *rules.values()]
    for number in range(len(problem.rules.classes)):
        tools = (
            literal(quoted(tool))
            for tool, tool_class in problem.rules.class_of.items()
            if tool_class == number
        )
        lines.append(f"tool-{number} ::= {' | '.join(tools)}")
    return "\n".join(lines) + "\n"


def _states(problem: Problem) -> dict[State, str] | None:
    """Return the rules of all reachable states; None if there are too many."""
    start = problem.rules.start
    numbers, rules, waiting = {start: 0}, dict[State, str](), [start]
    while waiting:
        state, ways = waiting.pop(), list[str]()
        for (kind, number), after in problem.rules.choices(state):
            if kind == "tool":
                comma, due = ", " if state.groups else "", len(state.groups) + 1
                written = f'{literal(f"{comma}[{due}, ")} tool-{number} ", ["'
            elif kind == "node":
                written = literal(
                    f"{', ' if state.task or any(state.dependencies) else ''}{number + 1}"
                )
            else:
                written = {"task": literal(quoted(TASK)), "close": '"]]"', "end": '"]"'}[kind]
            if after is not None and after not in numbers:
                numbers[after] = len(numbers)
                waiting.append(after)
            ways.append(written if after is None else f"{written} s{numbers[after]}")
        if not ways:
            return {}  # only the start state can be a dead end
        rules[state] = f"s{numbers[state]} ::= {' | '.join(ways)}"
        if len(numbers) > MAX_RULES:
            return None
    return rules
