"""Masking: which tokens may come next, so that every plan that is begun can be completed to a valid one (SPEC §3)."""

from ecoshell.planning.catp.base import TASK, Node
from ecoshell.planning.catp.completion import FAR, Completions, Opened
from ecoshell.planning.catp.faults import PlanFault, shown
from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.words import token_word, written_label

START, END, OPEN, CLOSE = "[SoP]", "[EoP]", "<SoD>", "<EoD>"


class Mask:
    """The mask of one problem; it keeps what it has worked out, for any number of drafts."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.completions = Completions(problem)
        self.beginnings = {f"[{_word(node)}]": node for node in map(Node, problem.tools)}
        """The first use of each tool, by its token."""

    def draft(self) -> "Draft":
        """A plan that begins."""
        return Draft(self)


class Draft:
    """A plan that is written token by token."""

    def __init__(self, mask: Mask) -> None:
        self.tokens: list[str] = [START]
        self._problem = mask.problem
        self._ways = mask.completions
        self._standing = self._ways.start
        self._tools = dict(mask.beginnings)
        """What each tool's token would begin now: its first use, or a further one."""
        groups = range(len(self._problem.rules.gives))
        self._sinks: list[list[str]] = [[] for _ in groups]
        """Dependency tokens of the nodes that no other waits for, by group."""
        self._spare: list[list[str]] = [[] for _ in groups]
        """Those of the other nodes."""
        self._node = Node("")
        self._opened: Opened | None = None
        self._waits: list[str] = []
        self._next: list[str] | None = None

    @property
    def finished(self) -> bool:
        """Whether [EoP] is written."""
        return self.tokens[-1] == END

    def next_tokens(self) -> list[str]:
        """The tokens that may come next: none when the plan is finished, or when the problem has no solution."""
        if self._next is None:
            most = self._problem.max_tokens
            self._next = [] if self.finished else self._within(FAR - 1 if most is None else most - len(self.tokens) + 1)
        return self._next

    def add(self, token: str) -> None:
        """Write a token; raises PlanFault for one that may not come."""
        allowed = self.next_tokens()
        if token not in allowed:
            raise PlanFault(f"{shown(token)} may not come here.", fix=f"These may: {', '.join(allowed[:9])}.")
        self.tokens.append(token)
        self._next = None
        if self._opened is None:
            if token != END:
                self._node, self._waits = self._tools.pop(token), []
                self._opened = self._ways.opened(self._problem.rules.class_of[self._node.tool])
        elif token == CLOSE:
            self._close(self._opened)
        elif token != OPEN:
            self._opened = self._with(self._opened, token)
            self._waits.append(token)

    def _within(self, left: int) -> list[str]:
        """The tokens from which the end can be reached within so many, themselves among them."""
        if self._opened is None:
            ways, classes = self._ways.openings(self._standing), self._problem.rules.class_of
            found = [token for token, node in self._tools.items() if ways[classes[node.tool]] <= left]
            return [*found, END] if ways[-1] <= left else found
        if self.tokens[-1][0] == "[":
            return [OPEN]
        sinks, spare, task, close = self._ways.offers(self._standing, self._opened)
        found: list[str] = []
        for tokens, way in (*zip(self._sinks, sinks, strict=True), *zip(self._spare, spare, strict=True)):
            if way <= left:
                found += [token for token in tokens if token not in self._waits]
        return [*found, *([TASK] if task <= left else ()), *([CLOSE] if close <= left else ())]

    def _with(self, opened: Opened, token: str) -> Opened:
        """The node with one more dependency."""
        if token == TASK:
            return opened._replace(task=True)
        for group, (sinks, spare) in enumerate(zip(self._sinks, self._spare, strict=True)):
            if token in sinks:
                return self._ways.with_sink(opened, group)
            if token in spare:
                return self._ways.with_other(opened, group)
        raise KeyError(token)

    def _close(self, opened: Opened) -> None:
        """The node is written: it is a sink, what it waits for is none any more, its tool may have a further use."""
        self._standing = self._ways.after(self._standing, opened)
        for sinks, spare in zip(self._sinks, self._spare, strict=True):
            spare += [token for token in sinks if token in self._waits]
            sinks[:] = [token for token in sinks if token not in self._waits]
        self._sinks[self._problem.rules.group_of[opened.tool]].append(f"<{_word(self._node)}>")
        self._opened = None
        if self._problem.uses is None or self._node.index < self._problem.uses:
            further = Node(self._node.tool, index=self._node.index + 1)
            self._tools[f"[{_word(further)}]"] = further


def _word(node: Node) -> str:
    return token_word(written_label(node))
