"""Chat templates from a GGUF's own metadata: messages become tokens, and what messages hold stays data.

Only the template's own text may contain control tokens. What a person, a tool or a model wrote is cut by the tokenizer
as plain text, so that `<|im_end|>` in a web page ends nothing.
"""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ecoshell.errors import ModelBroken
from ecoshell.messages import Message
from ecoshell.models.gguf import Vocabulary

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MARK = re.compile("\ue000([0-9]+)\ue001")

Render = Callable[[list[dict[str, str]]], str]


class ChatTemplate:
    """The chat template of one model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        start, end = vocabulary.start_and_end()
        self._start = start
        self._render = _compile(vocabulary.metadata("tokenizer.chat_template") or CHATML, start, end)

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's tokens for system, user and assistant messages, ready for the assistant's next words."""
        rendered, texts = self._rendered(messages)
        starts_itself = bool(self._start) and rendered.startswith(self._start)
        tokens = [] if starts_itself else self._vocabulary.tokens("", special=True, start=True)
        place = 0
        for mark in _MARK.finditer(rendered):
            tokens += self._vocabulary.tokens(rendered[place : mark.start()], special=True)
            tokens += self._vocabulary.tokens(texts[int(mark.group(1))])
            place = mark.end()
        return tokens + self._vocabulary.tokens(rendered[place:], special=True)

    def _rendered(self, messages: Sequence[Message]) -> tuple[str, list[str]]:
        """The template's text with a mark in place of each message's text, and those texts."""
        for shaped in (list(messages), alternating(messages)):
            marked = [
                {"role": message.speaker, "content": f"\ue000{number}\ue001"} for number, message in enumerate(shaped)
            ]
            try:
                return self._render(marked), [message.text for message in shaped]
            except ValueError:  # the template refuses this order of speakers; the plainer one follows
                continue
        raise ModelBroken("The model's chat template refuses the conversation.", fix="Use another GGUF of this model.")


def alternating(messages: Sequence[Message]) -> list[Message]:
    """The messages as user and assistant strictly in turn, the system text at the head of the first."""
    shaped: list[Message] = []
    for message in messages:
        speaker = "assistant" if message.speaker == "assistant" else "user"
        if shaped and shaped[-1].speaker == speaker:
            shaped[-1] = Message(speaker, f"{shaped[-1].text}\n\n{message.text}")
        else:
            shaped.append(Message(speaker, message.text))
    return shaped


def _compile(template: str, start: str, end: str) -> Render:
    formatter_type: Any = import_module("llama_cpp.llama_chat_format").Jinja2ChatFormatter
    template_error: type[Exception] = import_module("jinja2").TemplateError
    try:
        formatter = formatter_type(template=template, eos_token=end, bos_token=start)
    except template_error as error:
        fix = "Use another GGUF of this model."
        raise ModelBroken(f"The model's chat template is broken: {error}.", fix=fix) from error

    def render(messages: list[dict[str, str]]) -> str:
        try:
            return str(formatter(messages=messages).prompt)
        except template_error as error:
            raise ValueError(str(error)) from error

    return render
