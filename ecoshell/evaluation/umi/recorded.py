"""A model that says, in every role, what the reference says, and counts what it was sent.

A prompt is the tool array, then the messages, as providers put them. What it has in common with an earlier prompt, from
the first token on, is found cached, as providers' automatic prefix caches and llama.cpp have it.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, get_args

from ecoshell.budget.price import ZERO_PRICE
from ecoshell.evaluation.replay import PER_MESSAGE
from ecoshell.evaluation.umi.reference import Decision, Trajectory
from ecoshell.messages import FINISH, Call, Message, Usage
from ecoshell.models.base import PromptSize, Reply, Request, Traits
from ecoshell.models.protocol import as_plain_messages, call_text
from ecoshell.modes.roles import CALLER, PLANNER, SUMMARIZER
from ecoshell.modes.umi.decision import ENDINGS

Count = Callable[[str], int]
"""Counts the tokens of a text."""
Form = Literal["native", "text"]
"""How tools are sent: as an array and calls of the provider's own kind, or as text."""
FORMS: tuple[Form, ...] = get_args(Form)
_ENDINGS: dict[Decision, str] = dict(zip(("call", "finish", "give_up"), ENDINGS, strict=True))


class RecordedModel:
    """Plays the steps of one trajectory; its cache begins empty."""

    def __init__(self, trajectory: Trajectory, count: Count, form: Form) -> None:
        self._trajectory = trajectory
        self._count = count
        self._sent: list[tuple[str, ...]] = []
        self.number = 0
        """The step it is asked for, counted from 0."""
        self._traits = Traits("recorded", ZERO_PRICE, None, None, native_tools=form == "native", local=True)

    @property
    def traits(self) -> Traits:
        """A model that costs nothing."""
        return self._traits

    def count(self, text: str) -> int:
        """Tokens of a plain text."""
        return self._count(text)

    def size(self, request: Request) -> PromptSize:
        """Tokens of the prompt."""
        tokens = self._tokens(self._prompt(request))
        return PromptSize(tokens, tokens, exact=False)

    async def stream(self, request: Request) -> AsyncGenerator[Reply]:
        """The reference's part in this role."""
        prompt = self._prompt(request)
        cached = max((self._shared(prompt, before) for before in self._sent), default=0)
        self._sent.append(prompt)
        text, call = self._said(request.role)
        usage = Usage(input=self._tokens(prompt), cached=cached, output=self._written(text, call))
        yield Reply(text, () if call is None else (call,), usage)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _said(self, role: str) -> tuple[str, Call | None]:
        """What the reference says in a role, or as one model that plays them all."""
        step, final = self._trajectory.steps[self.number], self._trajectory.final
        if role == PLANNER:
            return f"{step.thought} {_ENDINGS[step.decision]}".strip(), None
        if role == SUMMARIZER:
            return final, None
        if step.decision == "call":
            return "" if role == CALLER else step.thought, Call(step.tool, step.arguments)
        answer = {"answer": final} if step.decision == "finish" else {"answer": step.thought or final, "give_up": True}
        return "" if step.decision == "give_up" else step.thought, Call(FINISH, answer)

    def _written(self, text: str, call: Call | None) -> int:
        """Tokens of a reply as it is written: calls as chat templates print them, or with the thought inside."""
        if call is None:
            return self._count(text)
        if not self._traits.native_tools:
            return self._count(call_text(call, text))
        return self._count(text) + self._count(call_text(call))

    def _prompt(self, request: Request) -> tuple[str, ...]:
        """The prompt in pieces: documents and messages."""
        if self._traits.native_tools:
            return (*(tool.as_entry() for tool in request.tools), *map(_piece, request.messages))
        return tuple(map(_piece, as_plain_messages(request)))

    def _tokens(self, pieces: tuple[str, ...]) -> int:
        return sum(self._count(piece) + PER_MESSAGE for piece in pieces)

    def _shared(self, one: tuple[str, ...], other: tuple[str, ...]) -> int:
        """Tokens that two prompts have in common from the first one on."""
        alike = _alike(one, other)
        tokens = self._tokens(one[:alike])
        if alike < min(len(one), len(other)):
            piece = one[alike]
            tokens += self._count(piece[: _alike(piece, other[alike])])
        return tokens


def _piece(message: Message) -> str:
    text = f"{message.speaker}\n{message.text}"
    if message.speaker != "assistant" or message.call is None:
        return text
    return f"{text}{call_text(message.call)}"


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many pieces, or letters, two sequences begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
