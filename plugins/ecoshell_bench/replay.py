"""What recorded runs would have cost under a presentation: every request they would have sent, without a model.

The model of a provider's bill, and of what the shell sends:

- A prompt is the tool array, then the system prompt, then the conversation, as providers put them. What it has in
  common with the prompt before it, from the first token on, is read from the cache; the rest is written to it.
- There is no `finish`, as where no strategy searches; an answer is text.
- A registration is a model call of its own: the whole prompt once more, and a short call as output. Recorded thoughts
  stay with the calls they were recorded with.
- A tool is registered right before its first use. A tool that the catalog does not have needs no registration.
- Several runs may be the questions of one session: what was said, registered and cached stays.
- A cache holds for the whole session, and begins empty with each.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ecoshell.catalog.presentation import STABLE, TEXT, Presentation
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, ToolDocument, Usage
from ecoshell_bench.trajectories import RecordedRun, RecordedStep

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
        session = Session(self, pool)
        session.ask(run, upfront)
        return session.bill

    def array_tokens(self, registered: Sequence[ToolDocument]) -> int:
        """Tokens of the tool array."""
        return sum(self.count(document.as_entry()) for document in self.presentation.array(registered, finish=False))

    def message_tokens(self, text: str) -> int:
        """Tokens of a message."""
        return self.count(text) + PER_MESSAGE


class Session:
    """Runs, one after another, on their way from question to answer."""

    def __init__(self, scenario: Scenario, pool: Sequence[ToolDocument]) -> None:
        self.bill = Bill()
        self.registered: dict[str, ToolDocument] = {}
        self._scenario = scenario
        self._known = {document.name: document for document in pool}
        self._array = scenario.array_tokens(())
        self._messages = scenario.message_tokens(scenario.system)
        self._asked = False

    @property
    def history(self) -> int:
        """Tokens of all messages so far, the system prompt's included."""
        return self._messages

    def ask(
        self,
        run: RecordedRun,
        upfront: Sequence[ToolDocument] = (),
        *,
        about: Mapping[str, str] | None = None,
        wrong: str = "",
    ) -> None:
        """One question with its run; documents of `upfront` are put there with it, and `about` goes with the names.

        `wrong` is a tool that is registered as well, before the first one that is needed and not there.
        """
        scenario, names = self._scenario, () if self._asked else tuple(self._known)
        self._asked = True
        fresh = [document for document in upfront if document.name not in self.registered]
        self.registered |= {document.name: document for document in fresh}
        self._array = scenario.array_tokens([*self.registered.values()])
        listing = scenario.presentation.opening(names, fresh, about=about)
        self._messages += scenario.message_tokens(f"{listing}\n\n{run.query}" if listing else run.query)
        for step in run.steps:
            if step.tool is not None and step.tool not in self.registered:
                if wrong and wrong not in self.registered:
                    self._register(self._known[wrong])
                wrong = ""
                self._register(self._known[step.tool])
            self._exchange(step.thought, self._call(step), step.observation)
        self._exchange("", run.answer, "")

    def _register(self, document: ToolDocument) -> None:
        call = _call_text(TOOL_REGISTER, json.dumps({"tool_name": document.name}, ensure_ascii=False))
        self._exchange("", call, self._scenario.presentation.registration_result(document))
        self.registered[document.name] = document
        self._array = self._scenario.array_tokens([*self.registered.values()])

    def _exchange(self, thought: str, call: str, observation: str) -> None:
        """One request, its reply, and what both leave in the conversation."""
        output = self._scenario.count(thought) + self._scenario.count(call)
        self.bill.call(self._array, self._messages, output)
        self._messages += output + PER_MESSAGE + self._scenario.message_tokens(observation)

    def _call(self, step: RecordedStep) -> str:
        call = _call_text(step.called, step.arguments)
        return _call_text(TOOL_CALL, call) if self._scenario.presentation in (STABLE, TEXT) else call


def _call_text(name: str, arguments: str) -> str:
    """A call as chat templates print it."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'
