"""Drives strategies without a model: functions answer every request, and the requests are recorded."""

from collections import defaultdict
from dataclasses import replace

from hypothesis import strategies as st

from ecoshell.messages import FINISH, Call, Observation
from ecoshell.strategies import AskModel, Backtrack, CallTool, Rank, Thought


def calls(name, **arguments):
    """A thought with a call."""
    return Thought("", Call(name, arguments))


def answers(text="42"):
    return Thought("", Call(FINISH, {"answer": text}))


def gives_up(why="no such file"):
    return Thought("", Call(FINISH, {"give_up": True, "answer": why}))


ANY_THOUGHT = st.one_of(
    st.builds(
        lambda name, path: calls(name, path=path), st.sampled_from("abc"), st.sampled_from("xyz")
    ),
    st.builds(gives_up, st.sampled_from(["nothing here", ""])),
    st.builds(answers),
    st.just(Thought("It is 42.")),
)


def is_answer(thought):
    call = thought.call
    return call is None or (call.name == FINISH and not call.arguments.get("give_up"))


class StrategyRun:
    """One run of a strategy; `thoughts` are its model's replies, `observe` answers calls and `rank` comparisons."""

    def __init__(
        self, strategy, thoughts, *, max_steps=24, observe=None, rank=lambda request: request.first
    ):
        self.requests = []
        self._thoughts = iter(thoughts)
        self._observe = observe or (lambda call: Observation(f"{call.name} did it"))
        self._rank = rank
        self._count = 0
        running, reply = strategy("How many?", max_steps), None
        try:
            while True:
                self.requests.append(running.send(reply))
                reply = self._reply(self.requests[-1])
        except StopIteration as stop:
            self.outcome = stop.value

    def of(self, kind):
        """The requests of one kind."""
        return [request for request in self.requests if isinstance(request, kind)]

    @property
    def called_tools(self):
        """Names of the called tools, in order."""
        return [call.name for request in self.of(CallTool) for call in request.calls]

    @property
    def children(self):
        """The number of calls from each path with any."""
        places = defaultdict(int)
        for request in self.of(CallTool):
            places[tuple(step.call.id for step in request.path.steps)] += 1
        return list(places.values())

    @property
    def longest(self):
        """Steps of the longest path."""
        return max(
            len(request.path.steps) + isinstance(request, CallTool) for request in self.requests
        )

    def _reply(self, request):
        match request:
            case AskModel():
                return self._numbered(next(self._thoughts))
            case CallTool():
                return tuple(map(self._observe, request.calls))
            case Rank():
                return self._rank(request)
            case Backtrack():
                return None

    def _numbered(self, thought):
        """The thought as the driver returns it, with a unique id for its call."""
        self._count += 1
        return (
            thought
            if thought.call is None
            else replace(thought, call=replace(thought.call, id=f"c{self._count}"))
        )
