"""Talk: an answer without tools from a model too small for a protocol, shown a few lines of it and a little history."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from ecoshell.agent.model_set import View
from ecoshell.errors import UsageError
from ecoshell.events import Emit, Event, Notice, TextArrived
from ecoshell.messages import META_TOOLS, Message, Observation
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.stepwise import answering, values
from ecoshell.modes.stepwise.looking import gist
from ecoshell.strategies import Step

_TALK = "You are ecoshell, a helpful assistant in a terminal. You run a small language model. Answer briefly."
_MOST_CHARACTERS = 4000
"""Of what goes along with the question, where the context is not known."""
_MOST_CHARACTERS_PER_TOKEN = 8
"""More than any real text has on average."""
_REMEMBERED = 4
"""Messages of earlier turns that are shown."""
_REMEMBERED_CHARACTERS = 800
"""Of each of them; a turn may have carried whole files along."""


async def talked(model: MeteredModel, view: View, emit: Emit, *, answer_tokens: int, role: str) -> str:
    """What the model says to the question; raises UsageError for one that is too long for it.

    Where the question is about what goes along with it, or was read last, it is what stands there: worded by the model
    where that can be checked, else quoted.
    """
    traits, question = model.traits, view.path.question
    if traits.context is not None and len(question) > _MOST_CHARACTERS_PER_TOKEN * traits.context:
        # refused by its length: to count the tokens of megabytes takes minutes
        raise UsageError(
            f"The question has {len(question):,} characters, and {traits.name} has a context of {traits.context:,} "
            "tokens.",
            kept="Nothing was sent.",
            fix="Ask something shorter, put long text in a file, or choose a model with a larger context.",
        )
    if len(view.along) > _along_room(traits.context):
        emit(Notice(f"{traits.name} reads only the beginning of what goes along with the question."))
    read = view.along or _read_last(view.history)

    def hushed(event: Event) -> None:
        """Tell everything but text, which is still to be checked."""
        if not isinstance(event, TextArrived):
            emit(event)

    told = hushed if read else emit
    asked, examples = request(view, traits.context, answer_tokens), _Examples(told)
    reply = await model.ask(asked, examples.hear, role=role)
    if examples.within(reply.text):
        asked = replace(asked, messages=tuple(one for one in asked.messages if one not in _shots()))
        reply = await model.ask(asked, told, role=role)
    else:
        examples.release()
    answer = reply.text.strip()
    return answering.grounded(answer, gist(view), read, sure=bool(view.along)) if read else answer


def request(view: View, context: int | None, answer_tokens: int) -> Request:
    """Talk about the question and what goes along with it, which chose no tool and is read here."""
    earlier: list[Message] = []
    for message in view.history:
        if message.speaker in ("user", "assistant") and not message.call:
            text = message.text
            for before in view.contexts:  # what other models were told of where the agent works
                text = text.removeprefix(f"{before}\n\n")
            earlier.append(replace(message, text=_cut(text, _REMEMBERED_CHARACTERS)))
    along = _cut(view.along, _along_room(context))
    asked = f"{view.path.question}\n\n{along}" if along else view.path.question
    messages = (Message("system", _TALK), *_shots(), *earlier[-_REMEMBERED:], Message("user", asked))
    return Request(messages, want="text", max_tokens=answer_tokens, purpose="answer")


class _Examples:
    """Lets the pieces of an answer through, but for what may become one of the worked examples in its prompt."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held: list[TextArrived] = []
        self._said = [message.text for message in _shots() if message.speaker == "assistant"]

    def hear(self, event: Event) -> None:
        """Tell an event, or hold it back until more has come."""
        if not isinstance(event, TextArrived):
            self._emit(event)
            return
        self._held.append(event)
        text = "".join(one.text for one in self._held)
        ends = (text[start:] for start in range(len(text)))
        if not self.within(text) and not any(said.startswith(end) for end in ends for said in self._said):
            self.release()

    def release(self) -> None:
        """Tell what was held back."""
        for event in self._held:
            self._emit(event)
        self._held.clear()

    def within(self, text: str) -> bool:
        """Whether a worked example is in the text."""
        return any(said in text for said in self._said)


def _read_last(history: Sequence[Message]) -> str:
    """What tools gave of files and addresses in the last turn in which any did."""
    found: list[str] = []
    for message in reversed(history):
        if message.speaker == "user" and found:
            break
        if message.speaker != "tool" or message.call is None or message.call.name in META_TOOLS:
            continue
        if values.names(Step("", message.call, Observation(message.text))):
            found.insert(0, message.text)
    return "\n".join(found)


def _along_room(context: int | None) -> int:
    """Characters of what goes along with a question; few enough to fit even when each is a token."""
    return _MOST_CHARACTERS if context is None else context // 2


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]} [cut]"


@cache
def _shots() -> list[Message]:
    """A few lines of talk that show the model the tone."""
    lines = (files("ecoshell.modes.stepwise") / "talk.md").read_text(encoding="utf-8").splitlines()
    said = (line.partition(": ") for line in lines if line)
    return [Message("assistant" if speaker == "assistant" else "user", text) for speaker, _, text in said]
