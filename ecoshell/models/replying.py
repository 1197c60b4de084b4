"""Parses a streamed reply piece by piece: reasoning, then free text, then calls.

Text is passed on as it arrives, except what is or may become a call; of a call of `finish`, the answer is passed on.
Local models are constrained to a grammar where a call starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from ecoshell.messages import FINISH, Call, ToolSchema, Usage
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.answer_text import AnswerText, ElementAnswer
from ecoshell.models.call_format import CallFormat
from ecoshell.models.call_parsing import Head
from ecoshell.models.elements import open_end
from ecoshell.models.grammar import ending_grammar
from ecoshell.models.protocol import call_fault, parse_reply

if TYPE_CHECKING:
    from ecoshell.models.choosing import Chooser

_MAX_HEAD = 400  # maximum characters of a call before its arguments
MIN_TOKENS_AFTER_REASONING = 64  # for the answer; at least a quarter of `max_tokens`


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """The form of a model's replies."""

    calls: CallFormat
    tags: tuple[str, str] | None = None  # None if the family does not reason
    inside: bool = False  # whether the prompt ends inside reasoning
    is_remote: bool = False  # whether the model is remote, so that no grammar applies


class ReplyReader:
    """Parses one reply, and constrains the chooser of a local model."""

    def __init__(self, request: Request, form: ReplyForm) -> None:
        self._request = request
        self._calls = form.calls
        self._tags = form.tags if request.want != "call" or form.inside or form.is_remote else None
        self._is_remote = form.is_remote
        self._names = frozenset(schema.name for schema in request.callable_now)
        self._text = self._reasoning = ""
        self._shown = 0  # characters of the text that were passed on
        self._state = "reasoning" if form.inside and self._tags else "begins"
        self._unknown = ""  # the name of an unknown tool, once a call of it has started
        self._place = 0  # start of the first call, after its marker
        self._called: Head | None = None  # the first call's start, once known
        self._answer = ElementAnswer(form.calls.elements) if form.calls.elements else AnswerText()
        self.over = False  # whether the rest of the reply is not needed
        room = request.max_tokens
        self.most_reasoning = room - max(MIN_TOKENS_AFTER_REASONING, room // 4)
        """Tokens after which reasoning is closed."""

    @property
    def reasons(self) -> bool:
        """Whether the reply is inside reasoning."""
        return self._state == "reasoning"

    @property
    def refused(self) -> bool:
        """Whether the reply starts with an unwanted call."""
        return self.over and not self._unknown and not self._text[: self._shown].strip()

    @property
    def held(self) -> str:
        """The grammar of the whole answer; empty if it starts with free text."""
        request = self._request
        if self._is_remote:
            return ""
        if request.grammar:
            return request.grammar
        if request.endings:
            return ending_grammar(request.endings, request.max_tokens)
        if request.want == "call" and request.callable_now:
            return calls_grammar(request.callable_now, self._calls, marked=False, once=True)
        return ""

    def feed(self, piece: str, chooser: "Chooser | None" = None) -> list[Delta]:
        """Add a piece of the reply; returns the text to show."""
        deltas: list[Delta] = []
        if self._state == "reasoning":
            self._reasoning += piece
            return self._reason(chooser)
        self._text += piece
        if self._state == "begins" and self._tags:
            start = self._text.lstrip()
            if start.startswith(self._tags[0]):
                self._text, self._state = "", "reasoning"
                self._reasoning = start[len(self._tags[0]) :]
                return self._reason(chooser)
            if self._tags[0].startswith(start):
                return []
        if self._state == "begins":
            self._state = "held" if self.held else "speaking"
        if self._state == "held":
            if self._request.want != "call":
                deltas.append(Delta(self._text[self._shown :]))
            self._shown = len(self._text)
        elif self._state == "speaking":
            deltas += self._speak(chooser)
        elif self._state == "calling":
            deltas += self._finishing(piece)
        return deltas

    def finish(self) -> list[Delta]:
        """The remaining text to show at the end of the reply."""
        if self._state == "reasoning":
            return [Delta(self._reasoning[self._shown :], reasoning=True)]
        is_text = self._state == "speaking" and self._head(complete=True) is None
        if self._state == "begins" or is_text:
            return [Delta(self._text[self._shown :])]
        return []

    def reply(self, usage: Usage, *, cut: bool) -> Reply:
        reasoning = self._reasoning.strip()
        if self._unknown:
            text, call = self._text[: self._shown].strip(), Call(self._unknown)
            fault = call_fault(call, self._request.callable_now)
            return Reply(text, usage=usage, fault=fault, attempt=call, reasoning=reasoning)
        reply = parse_reply(self._text, self._request, usage, cut, self._calls)
        if self._request.want == "text" and self.over:
            reply = replace(reply, text=self._text[: self._shown].strip())
        return replace(reply, reasoning=reasoning)

    def _reason(self, chooser: "Chooser | None") -> list[Delta]:
        closing = self._tags[1] if self._tags else ""
        text, end_tag, answer = self._reasoning.partition(closing)
        if not end_tag:
            end = len(text) - open_end(text, closing)
            piece = text[self._shown : max(self._shown, end)]
            self._shown += len(piece)
            return [Delta(piece, reasoning=True)]
        deltas = [Delta(text[self._shown :], reasoning=True)]
        self._reasoning, self._text, self._shown = text, "", 0
        self._state, self._tags = "begins", None
        if self.held and chooser is not None:
            chooser.constrain(self.held)
        answer = answer.lstrip()
        return deltas + (self.feed(answer, chooser) if answer else [])

    def _speak(self, chooser: "Chooser | None") -> list[Delta]:
        """Show text that is certainly not part of a call; constrain the chooser where a call starts."""
        head = self._head()
        end = len(self._text) if head is None else max(self._shown, head.start)
        deltas, self._shown = [Delta(self._text[self._shown : end])], end
        if head is not None and head.sure:
            self._state, self._place = "calling", head.end
            self._called = head if head.tool else None
            self._answer = AnswerText() if head.json else self._answer
            if self._request.want == "text":
                self.over = True
                return deltas
            tools = self._request.callable_now
            schema = next((tool for tool in tools if tool.name == head.tool), None)
            if chooser is None:
                pass
            elif not head.tool:
                grammar = calls_grammar(tools, self._calls, marked=True, once=False)
                chooser.constrain(grammar, self._text[head.end :])
            elif schema is not None:
                chooser.constrain(self._calls.rest(schema, head), self._text[head.end :])
            else:
                self._unknown, self.over = head.tool, True
            deltas += self._finishing(self._text[head.end :])
        return deltas

    def _finishing(self, piece: str) -> list[Delta]:
        """What a piece of a call adds to the answer, if the call is `finish`."""
        if FINISH not in self._names:
            return []
        if self._called is None:
            head = self._calls.called(self._text[self._place : self._place + _MAX_HEAD])
            if head is None:
                return []
            self._called, piece = head, self._text[self._place + head.end :]
        answer = self._answer.feed(piece) if self._called.tool == FINISH else ""
        return [Delta(answer, answer=True)] if answer else []

    def _head(self, *, complete: bool = False) -> Head | None:
        if not self._names:
            return None
        place = self._shown  # text that was shown is not part of a call
        head = self._calls.head(self._text[place:], self._names, complete=complete)
        return head and replace(head, start=head.start + place, end=head.end + place)


def load_readers() -> None:
    """Load the libraries for parsing replies (30 ms each) ahead of time."""
    import_module("regex")
    import_module("pydantic_core")


_grammars: dict[tuple[object, ...], str] = {}
_GRAMMARS_KEPT = 64


def calls_grammar(
    schemas: Sequence[ToolSchema], form: CallFormat, *, marked: bool, once: bool
) -> str:
    """The grammar of calls to these tools, cached because every step needs it."""
    key = (form.name, marked, once, *(schema.as_text() for schema in schemas))
    if key not in _grammars:
        if len(_grammars) >= _GRAMMARS_KEPT:
            _grammars.clear()
        _grammars[key] = form.grammar(schemas, marked=marked, once=once)
    return _grammars[key]
