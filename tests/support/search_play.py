"""Strategies driven without a model: every wish is answered from functions, and what was wished for is on record."""

from collections import defaultdict
from dataclasses import replace

from hypothesis import strategies as st

from ecoshell.messages import FINISH, Call, Observation
from ecoshell.strategies import AskModel, Backtrack, CallTool, Rank, Thought


def calls(name, **arguments):
    """A thought that calls a tool."""
    return Thought("", Call(name, arguments))


def answers(text="42"):
    return Thought("", Call(FINISH, {"answer": text}))


def gives_up(why="no such file"):
    return Thought("", Call(FINISH, {"give_up": True, "answer": why}))


ANY_THOUGHT = st.one_of(
    st.builds(lambda name, path: calls(name, path=path), st.sampled_from("abc"), st.sampled_from("xyz")),
    st.builds(gives_up, st.sampled_from(["nothing here", ""])),
    st.builds(answers),
    st.just(Thought("It is 42.")),
)


def is_answer(thought):
    call = thought.call
    return call is None or (call.name == FINISH and not call.arguments.get("give_up"))


class Played:
    """One run of a strategy; `thoughts` are given in turn, `observe` and `rank` decide on calls and comparisons."""

    def __init__(self, strategy, thoughts, *, max_steps=24, observe=None, rank=lambda want: want.first):
        self.wants = []
        self._thoughts = iter(thoughts)
        self._observe = observe or (lambda call: Observation(f"{call.name} did it"))
        self._rank = rank
        self._asked = 0
        running, reply = strategy("How many?", max_steps), None
        try:
            while True:
                self.wants.append(running.send(reply))
                reply = self._reply(self.wants[-1])
        except StopIteration as stop:
            self.outcome = stop.value

    def of(self, kind):
        """The wishes of one kind."""
        return [want for want in self.wants if isinstance(want, kind)]

    @property
    def made(self):
        """Names of the tools that were called, in order."""
        return [call.name for want in self.of(CallTool) for call in want.calls]

    @property
    def children(self):
        """How many calls were made at each place where any was."""
        places = defaultdict(int)
        for want in self.of(CallTool):
            places[tuple(step.call.id for step in want.path.steps)] += 1
        return list(places.values())

    @property
    def longest(self):
        """Steps of the longest path there was."""
        return max(len(want.path.steps) + isinstance(want, CallTool) for want in self.wants)

    def _reply(self, want):
        match want:
            case AskModel():
                return self._numbered(next(self._thoughts))
            case CallTool():
                return tuple(map(self._observe, want.calls))
            case Rank():
                return self._rank(want)
            case Backtrack():
                return None

    def _numbered(self, thought):
        """The thought as the driver gives it: each call has an id of its own."""
        self._asked += 1
        return thought if thought.call is None else replace(thought, call=replace(thought.call, id=f"c{self._asked}"))
