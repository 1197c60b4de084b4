"""Helpers for tests of whole turns: scripted models and the events of a turn."""

from dataclasses import replace

from ecoshell.agent import Approval, QuoteChoice
from ecoshell.agent.memory import Memory
from ecoshell.agent.model_set import ModelSet
from ecoshell.models.script import ScriptModel
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.small import single_mode


class Recorder(ScriptModel):
    """A scripted model that records its requests."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        async for piece in super().stream(request):
            yield piece


class ByTool(Recorder):
    """A recorder that answers a request for one tool with the next line that calls this tool.

    The nodes of a tool graph ask in any order.
    """

    async def stream(self, request):
        if len(request.callable_now) == 1:
            self._put_first(request.callable_now[0].name)
        async for piece in super().stream(request):
            yield piece

    def _put_first(self, tool):
        for at in range(self._next, len(self._lines)):
            if any(call.name == tool for call in self._lines[at].calls):
                self._lines.insert(self._next, self._lines.pop(at))
                return


class User:
    """A scripted user that records every request in `asked`.

    It takes its decisions in turn, except for kinds of requests with a fixed one: `approval`,
    `limit`, `cost` or `quote`, which starts by default.
    """

    def __init__(self, *decisions, approval=None, limit=None, cost=None, quote=None):
        self.decisions = list(decisions)
        self.approval, self.limit, self.cost = approval, limit, cost
        self.quote = quote
        self.asked = []

    async def approve(self, request):
        decision = self._decide(request, self.approval)
        return decision if isinstance(decision, Approval) else Approval(decision)

    async def at_limit(self, hit):
        return self._decide(hit, self.limit)

    async def at_cost(self, request):
        return self._decide(request, self.cost)

    async def at_quote(self, quoted):
        self.asked.append(quoted)
        return QuoteChoice("start") if self.quote is None else self.quote

    async def trust(self, request):
        return self._decide(request, None)

    def _decide(self, request, fixed):
        self.asked.append(request)
        return self.decisions.pop(0) if fixed is None else fixed


def say(text="", call=None, /, *, usage=None, **arguments):
    """A line of a script: a text, or a call with these arguments."""
    line = {"text": text}
    if call:
        line["call"] = {"name": call, "arguments": arguments}
    if usage:
        line["usage"] = usage
    return line


def counts(number):
    """Lines of a script with one `count_text` call each."""
    return [say("", "count_text", text=f"text {index}") for index in range(number)]


def register(name, text=""):
    return say(text, "tool_register", tool_name=name)


def finish(answer="", **more):
    return say("", "finish", answer=answer, **more)


async def turn(shell, question="How many lines has notes.txt?"):
    """All events of one turn."""
    return [event async for event in shell.ask(question)]


def every_pair(first, second, third):
    """Pairwise combinations: every pair of the first two lists, with values of the third list spread over them."""
    return [
        (a, b, third[(at + by) % len(third)])
        for at, a in enumerate(first)
        for by, b in enumerate(second)
    ]


def is_replayed(shell):
    """Whether the stored events rebuild the memory of the live session."""
    live = shell.conversation.memory
    again = Memory(shell.deps.catalog, [event for _, event in shell.store.events(shell.session)])
    parts = ("messages", "shown", "library", "commands", "turns", "answers", "number")
    return all(getattr(live, part) == getattr(again, part) for part in parts)


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def with_traits(shell, **traits):
    """Give the shell's scripted model these traits, and the aids that follow from them."""
    metered = shell.deps.models.current.model
    metered._model.traits = replace(metered.traits, **traits)
    shell.deps.models.current = ModelSet(metered, single_mode(metered, ModeLimits(200, 100)))
    return shell
