"""What a recorded run would have cost under a presentation: every request it would have sent, without a model.

The model of a provider's bill, and of what the shell sends:

- A prompt is the tool array, then the system prompt, then the conversation, as providers put them. What it has in
  common with the prompt before it, from the first token on, is read from the cache; the rest is written to it.
- A registration is a model call of its own: the whole prompt once more, and a short call as output. Recorded thoughts
  stay with the calls they were recorded with.
- A tool is registered right before its first use. A tool that the catalog does not have needs no registration.
- A cache holds for the whole run, and begins empty with each run.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ecoshell.catalog.presentation import PLAIN, STABLE, Presentation
from ecoshell.evaluation.trajectories import RecordedRun, RecordedStep
from ecoshell.messages import FINISH, TOOL_CALL, TOOL_REGISTER, ToolDocument, Usage

PER_MESSAGE = 3
"""Tokens of a message's frame, as the shell counts them for remote models."""


@dataclass(slots=True)
class Bill:
    """Adds up the usage of one run's calls; `calls` counts them."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    _array: int = 0
    _messages: int = 0

    def call(self, array: int, messages: int, output: int) -> None:
        """One request with these tokens of tool array and messages; both only ever grow, and the array stands first."""
        cached = self._array + (self._messages if array == self._array else 0)
        prompt = array + messages
        self.usage += Usage(input=prompt, output=output, cached=cached, cache_write=prompt - cached)
        self.calls += 1
        self._array, self._messages = array, messages


@dataclass(frozen=True, slots=True)
class Scenario:
    """How runs are replayed: a presentation, the system prompt, and what counts the tokens of a text."""

    presentation: Presentation
    system: str
    count: Callable[[str], int]

    def replay(self, run: RecordedRun, pool: Sequence[ToolDocument], upfront: Sequence[ToolDocument] = ()) -> Bill:
        """The bill of a run that knows the tools of `pool`, those of `upfront` registered from the start."""
        return _Replay(self, {document.name: document for document in pool}, upfront).run(run)

    def array_tokens(self, registered: Sequence[ToolDocument]) -> int:
        """Tokens of the tool array."""
        return sum(self.count(document.as_entry()) for document in self.presentation.array(registered))

    def message_tokens(self, text: str) -> int:
        """Tokens of a message."""
        return self.count(text) + PER_MESSAGE


def replay_all(run: RecordedRun, system: str, pool: Sequence[ToolDocument], count: Callable[[str], int]) -> Bill:
    """The bill with every document in the array from the start, as an agent without EcoAct has it."""
    return Scenario(PLAIN, system, count).replay(run, pool, pool)


class _Replay:
    """One run on its way from question to answer."""

    def __init__(self, scenario: Scenario, known: dict[str, ToolDocument], upfront: Sequence[ToolDocument]) -> None:
        self._scenario = scenario
        self._known = known
        self._registered = list(upfront)
        self._array = scenario.array_tokens(self._registered)
        self._messages = 0
        self._bill = Bill()

    def run(self, run: RecordedRun) -> Bill:
        scenario = self._scenario
        listing = scenario.presentation.opening(list(self._known), self._registered)
        opening = f"{listing}\n\n{run.query}" if listing else run.query
        self._messages = scenario.message_tokens(scenario.system) + scenario.message_tokens(opening)
        registered = {document.name for document in self._registered}
        for step in run.steps:
            if step.tool is not None and step.tool not in registered:
                registered.add(step.tool)
                self._register(self._known[step.tool])
            self._exchange(step.thought, self._call(step), step.observation)
        self._exchange("", _call_text(FINISH, json.dumps({"answer": run.answer}, ensure_ascii=False)), "")
        return self._bill

    def _register(self, document: ToolDocument) -> None:
        call = _call_text(TOOL_REGISTER, json.dumps({"tool_name": document.name}, ensure_ascii=False))
        self._exchange("", call, self._scenario.presentation.registration_result(document))
        self._registered.append(document)
        self._array = self._scenario.array_tokens(self._registered)

    def _exchange(self, thought: str, call: str, observation: str) -> None:
        """One request, its reply, and what both leave in the conversation."""
        output = self._scenario.count(thought) + self._scenario.count(call)
        self._bill.call(self._array, self._messages, output)
        self._messages += output + PER_MESSAGE + self._scenario.message_tokens(observation)

    def _call(self, step: RecordedStep) -> str:
        call = _call_text(step.called, step.arguments)
        return _call_text(TOOL_CALL, call) if self._scenario.presentation is STABLE else call


def _call_text(name: str, arguments: str) -> str:
    """A call as chat templates print it."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'
