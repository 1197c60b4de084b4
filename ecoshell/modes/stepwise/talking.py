"""Talk: an answer without tools from a model too small for a protocol, shown a few lines of it and a little history."""

from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files

from ecoshell.agent.mode import View
from ecoshell.errors import UsageError
from ecoshell.events import Emit, Notice
from ecoshell.messages import Message
from ecoshell.models.base import Request
from ecoshell.models.metered import MeteredModel

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
    """What the model says to the question; raises UsageError for one that is too long for it."""
    traits = model.traits
    _refuse_too_long(view.path.question, traits.name, traits.context)
    if len(view.along) > _along_room(traits.context):
        emit(Notice(f"{traits.name} reads only the beginning of what goes along with the question."))
    reply = await model.ask(request(view, traits.context, answer_tokens), emit, role=role)
    return reply.text.strip()


def request(view: View, context: int | None, answer_tokens: int) -> Request:
    """Talk about the question and what goes along with it, which chose no tool and is read here."""
    spoken = [message for message in view.history if message.speaker in ("user", "assistant") and not message.call]
    earlier = [
        replace(message, text=_cut(_without(view.contexts, message.text), _REMEMBERED_CHARACTERS)) for message in spoken
    ]
    along = _cut(view.along, _along_room(context))
    asked = f"{view.path.question}\n\n{along}" if along else view.path.question
    messages = (Message("system", _TALK), *_shots(), *earlier[-_REMEMBERED:], Message("user", asked))
    return Request(messages, want="text", max_tokens=answer_tokens, purpose="answer")


def _refuse_too_long(question: str, model: str, context: int | None) -> None:
    """A text that cannot fit is refused by its length: to count the tokens of megabytes takes minutes."""
    if context is not None and len(question) > _MOST_CHARACTERS_PER_TOKEN * context:
        raise UsageError(
            f"The question has {len(question):,} characters, and {model} has a context of {context:,} tokens.",
            kept="Nothing was sent.",
            fix="Ask something shorter, put long text in a file, or choose a model with a larger context.",
        )


def _along_room(context: int | None) -> int:
    """Characters of what goes along with a question; few enough to fit even when each is a token."""
    return _MOST_CHARACTERS if context is None else context // 2


def _without(contexts: Iterable[str], text: str) -> str:
    """A question without what other models were told before it of where the agent works."""
    for context in contexts:
        text = text.removeprefix(f"{context}\n\n")
    return text


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]} [cut]"


def _shots() -> list[Message]:
    """A few lines of talk that show the model the tone."""
    lines = (files("ecoshell.modes.stepwise") / "talk.md").read_text(encoding="utf-8").splitlines()
    said = (line.partition(": ") for line in lines if line)
    return [Message("assistant" if speaker == "assistant" else "user", text) for speaker, _, text in said]
