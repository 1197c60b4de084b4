"""The mask as the paper's authors have it in their code, to be measured against ours (SPEC §3).

It looks at the task's type, at the tools used so far and at the last one's output, and not at whether a tool has
anything to wait for, whether the plan can still be ended, or whether a dependency was named before.
"""

from collections.abc import Mapping
from itertools import pairwise

from ecoshell.planning.catp.base import TASK
from ecoshell.planning.catp.masking import CLOSE, END, OPEN
from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.types import IMAGE, TEXT, Signature

_Shape = tuple[tuple[str, ...], str]
"""What a tool takes and gives."""
_Task = tuple[tuple[str, ...], tuple[str, ...]]
"""What a task gives and wants."""
_II, _IT, _TT, _TI = ((IMAGE,), IMAGE), ((IMAGE,), TEXT), ((TEXT,), TEXT), ((TEXT,), IMAGE)
_TTT: _Shape = ((TEXT, TEXT), TEXT)
_FIRST: Mapping[_Task, tuple[_Shape, ...]] = {
    ((IMAGE,), (IMAGE,)): (_II,),
    ((TEXT,), (IMAGE,)): (_TT, _TI),
    ((TEXT,), (TEXT,)): (_TT,),
    ((TEXT, TEXT), (TEXT,)): (_TT, _TTT),
}
_LATER: Mapping[_Task, tuple[_Shape, ...]] = {((TEXT,), (IMAGE,)): (_II,)}
_FROM_IMAGES = (_II, _IT)


class PublishedMask:
    """The authors' rules for one problem of theirs (planning/catp/tasks)."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._task = (problem.given, problem.wanted)

    def tools(self, tokens: list[str]) -> list[str]:
        """What may come where a tool or [EoP] is due."""
        used = [token[1:-1] for token in tokens if token[0] == "["][1:]
        shapes = self._shapes(bool(used))
        found = [
            f"[{tool}]"
            for tool, one in self._problem.tools.items()
            if tool not in used and (shapes is None or _shape(one) in shapes)
        ]
        return [*found, END] if used and self._may_end(tokens, used) else found

    def dependencies(self, tokens: list[str]) -> list[str]:
        """What may come where a dependency or <EoD> is due."""
        *earlier, current = [token[1:-1] for token in tokens if token[0] == "["][1:]
        takes, _ = _shape(self._problem.tools[current])
        found = [f"<{tool}>" for tool in earlier if (_shape(self._problem.tools[tool])[1],) == takes]
        if (IMAGE if IMAGE in self._problem.given else TEXT) in takes:
            found.append(TASK)
        return found if tokens[-1] == OPEN else [*found, CLOSE]

    def _shapes(self, begun: bool) -> tuple[_Shape, ...] | None:
        """The shapes of tools that suit the task; None for all."""
        if len(set(self._problem.given)) > 1:
            return None
        if self._task in _FIRST:
            return (*_FIRST[self._task], *(_LATER.get(self._task, ()) if begun else ()))
        return (*_FROM_IMAGES, _TT) if begun else _FROM_IMAGES

    def _may_end(self, tokens: list[str], used: list[str]) -> bool:
        wanted = self._problem.wanted
        if len(wanted) == 1:
            return _shape(self._problem.tools[used[-1]])[1] == wanted[0]
        awaited = {token for before, token in pairwise(tokens) if before != CLOSE and token[0] == "<"}
        sinks = [_shape(self._problem.tools[tool])[1] for tool in used if f"<{tool}>" not in awaited]
        return all(sinks.count(kind) >= wanted.count(kind) for kind in wanted)


def _shape(signature: Signature) -> _Shape:
    return signature.needs, min(signature.gives)
