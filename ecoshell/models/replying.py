"""One reply as it comes, piece by piece: reasoning, then free text, then calls, of a local model under a grammar.

Text is given out as it is spoken, except what is, or may yet turn out to be, a call; of a call of `finish` the answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ecoshell.messages import FINISH, Call, ToolDocument, Usage, fenced
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.elements import Elements
from ecoshell.models.formats import CallFormat, Head
from ecoshell.models.grammar import ending_grammar
from ecoshell.models.protocol import call_fault, parse_reply

if TYPE_CHECKING:
    from ecoshell.models.choosing import Chooser

_LONGEST_HEAD = 400
"""Characters of a call among which its name and the beginning of its values are looked for."""
LEAST_AFTER_REASONING = 64
"""Tokens that reasoning must leave for the answer, or a quarter of `max_tokens` if that is more."""
QUOTE = "[result]"
"""What a model that was trained for the shell says in the place of the last result, which it need not spell again."""


class Quoting:
    """A text as it comes, the last result of a request in the place of the first `QUOTE`, of several lines as code.

    An answer is shown as Markdown, which would make a paragraph of a table or a program.
    """

    def __init__(self, request: Request) -> None:
        results = (message.text.strip() for message in reversed(request.messages) if message.speaker == "tool")
        self._result = next(results, "")
        self._block = fenced(self._result) if "\n" in self._result else ""
        self._waiting, self._told = "", ""
        self._open = bool(self._result)

    def feed(self, piece: str) -> str:
        """What can be told by now: what may become the mark waits for what follows."""
        told = self._fed(piece) if self._open else self._after(piece)
        self._told = told or self._told
        return told

    def _fed(self, piece: str) -> str:
        text, self._waiting = self._waiting + piece, ""
        before, found, after = text.partition(QUOTE)
        if found:
            self._open = False
            told = before + self._block_after(before or self._told)
            self._told = told
            return told + self._after(after)
        begun = next((size for size in range(len(QUOTE) - 1, 0, -1) if text.endswith(QUOTE[:size])), 0)
        told, self._waiting = text[: len(text) - begun], text[len(text) - begun :]
        return told

    def end(self) -> str:
        """What still waited, once nothing follows."""
        text, self._waiting = self._waiting, ""
        return text

    def _block_after(self, before: str) -> str:
        if not self._block:
            return self._result
        return f"\n{self._block}" if before and not before.endswith("\n") else self._block

    def _after(self, piece: str) -> str:
        """What follows; after a code block on a line of its own."""
        below = self._block and self._told.endswith(self._block) and piece and not piece.startswith("\n")
        return f"\n{piece}" if below else piece

    def shortened(self, text: str) -> str:
        """What is to be said so that this text is told: the mark in the place where it has the last result."""
        before, found, after = text.rpartition(self._result) if self._result else ("", "", text)
        return f"{before}{QUOTE}{after}" if found else text


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What a model's replies are made of."""

    calls: CallFormat
    tags: tuple[str, str] | None = None
    """What stands around reasoning; None where the family does not reason."""
    inside: bool = False
    """Whether the prompt ends inside reasoning already."""
    elsewhere: bool = False
    """Whether the model runs elsewhere, where nothing can hold it."""


class ReplyReader:
    """Reads one reply, and holds the chooser to what may come."""

    def __init__(self, request: Request, form: ReplyForm) -> None:
        self._request = request
        self._calls = form.calls
        self._tags = form.tags if request.want != "call" or form.inside or form.elsewhere else None
        self._elsewhere = form.elsewhere
        self._names = frozenset(document.name for document in request.callable_now)
        self._text = self._reasoning = ""
        self._shown = 0
        """Characters of the text that were given out."""
        self._state = "reasoning" if form.inside and self._tags else "begins"
        self._unknown = ""
        """The name of a tool that there is none of, once a call of it has begun."""
        self._place = 0
        """Where the first call begins, its marker left out."""
        self._called: Head | None = None
        """What that is of, and where its values begin, once that is known."""
        self._answer = ElementAnswer(form.calls.elements) if form.calls.elements else AnswerText()
        self.over = False
        """Whether nothing that follows is wanted."""
        self.most_reasoning = request.max_tokens - max(LEAST_AFTER_REASONING, request.max_tokens // 4)
        """Tokens after which reasoning is to be closed."""

    @property
    def reasons(self) -> bool:
        """Whether what comes now is reasoning."""
        return self._state == "reasoning"

    @property
    def refused(self) -> bool:
        """Whether nothing was said before what is not wanted."""
        return self.over and not self._unknown and not self._text[: self._shown].strip()

    @property
    def held(self) -> str:
        """The grammar the answer is held to from its beginning; empty where it begins free."""
        request = self._request
        if self._elsewhere:
            return ""
        if request.grammar:
            return request.grammar
        if request.endings:
            return ending_grammar(request.endings, request.max_tokens)
        if request.want == "call" and request.callable_now:
            return calls_grammar(request.callable_now, self._calls, marked=False, once=True)
        return ""

    def feed(self, piece: str, chooser: "Chooser | None" = None) -> list[Delta]:
        """Take in what was said; returns what is to be shown of it."""
        shown: list[Delta] = []
        if self._state == "reasoning":
            self._reasoning += piece
            return self._reason(chooser)
        self._text += piece
        if self._state == "begins" and self._tags:
            begun = self._text.lstrip()
            if begun.startswith(self._tags[0]):
                self._text, self._state = "", "reasoning"
                self._reasoning = begun[len(self._tags[0]) :]
                return self._reason(chooser)
            if self._tags[0].startswith(begun):
                return []
        if self._state == "begins":
            self._state = "held" if self.held else "speaking"
        if self._state == "held":
            if self._request.want != "call":
                shown.append(Delta(self._text[self._shown :]))
            self._shown = len(self._text)
        elif self._state == "speaking":
            shown += self._speak(chooser)
        elif self._state == "calling":
            shown += self._finishing(piece)
        return shown

    def finish(self) -> list[Delta]:
        """What is left to be shown when nothing more comes."""
        if self._state == "reasoning":
            return [Delta(self._reasoning[self._shown :], reasoning=True)]
        if self._state == "begins" or (self._state == "speaking" and self._head(whole=True) is None):
            return [Delta(self._text[self._shown :])]
        return []

    def reply(self, usage: Usage, *, cut: bool) -> Reply:
        """What the reply came to."""
        if self._unknown:
            said, call = self._text[: self._shown].strip(), Call(self._unknown)
            fault = call_fault(call, self._request.callable_now)
            return Reply(said, usage=usage, fault=fault, attempt=call, reasoning=self._reasoning.strip())
        reply = parse_reply(self._text, self._request, usage, cut, self._calls)
        if self._request.want == "text" and self.over:
            reply = replace(reply, text=self._text[: self._shown].strip())
        return replace(reply, reasoning=self._reasoning.strip())

    def _reason(self, chooser: "Chooser | None") -> list[Delta]:
        closing = self._tags[1] if self._tags else ""
        text, closed, rest = self._reasoning.partition(closing)
        if not closed:
            held_back = next((n for n in range(len(closing) - 1, 0, -1) if text.endswith(closing[:n])), 0)
            shown = text[self._shown : max(self._shown, len(text) - held_back)]
            self._shown += len(shown)
            return [Delta(shown, reasoning=True)]
        shown = [Delta(text[self._shown :], reasoning=True)]
        self._reasoning, self._text, self._shown, self._state, self._tags = text, "", 0, "begins", None
        if self.held and chooser is not None:
            chooser.constrain(self.held)
        rest = rest.lstrip()
        return shown + (self.feed(rest, chooser) if rest else [])

    def _speak(self, chooser: "Chooser | None") -> list[Delta]:
        """What is certainly no call is shown; where one begins, the grammar takes over."""
        head = self._head()
        upto = len(self._text) if head is None else max(self._shown, head.start)
        shown, self._shown = [Delta(self._text[self._shown : upto])], upto
        if head is not None and head.sure:
            self._state, self._place = "calling", head.end
            self._called = head if head.tool else None
            self._answer = AnswerText() if head.json else self._answer
            if self._request.want == "text":
                self.over = True
                return shown
            document = next((one for one in self._request.callable_now if one.name == head.tool), None)
            if chooser is None:
                pass
            elif not head.tool:
                documents = self._request.callable_now
                grammar = calls_grammar(documents, self._calls, marked=True, once=False)
                chooser.constrain(grammar, self._text[head.end :])
            elif document is not None:
                chooser.constrain(self._calls.rest(document, head), self._text[head.end :])
            else:  # there is no such tool, and the rest is not waited for
                self._unknown, self.over = head.tool, True
            shown += self._finishing(self._text[head.end :])
        return shown

    def _finishing(self, piece: str) -> list[Delta]:
        """What a piece of a call adds to the answer, if the call is one of `finish`."""
        if FINISH not in self._names:
            return []
        if self._called is None:
            called = self._calls.called(self._text[self._place : self._place + _LONGEST_HEAD])
            if called is None:
                return []
            self._called, piece = called, self._text[self._place + called.end :]
        said = self._answer.feed(piece) if self._called.tool == FINISH else ""
        return [Delta(said, answer=True)] if said else []

    def _head(self, *, whole: bool = False) -> Head | None:
        if not self._names:
            return None
        place = self._shown  # what was shown is no part of a call
        head = self._calls.head(self._text[place:], self._names, whole=whole)
        return head and replace(head, start=head.start + place, end=head.end + place)


def load_readers() -> None:
    """Load the libraries that replies are read with (30 ms each), in a thread, so that no screen waits for them."""
    import_module("regex")
    import_module("pydantic_core")


_grammars: dict[tuple[object, ...], str] = {}
_GRAMMARS_KEPT = 64


def calls_grammar(documents: Sequence[ToolDocument], form: CallFormat, *, marked: bool, once: bool) -> str:
    """The grammar of calls to these documents, kept, as it is asked for at every step."""
    key = (form.name, marked, once, *(document.as_text() for document in documents))
    if key not in _grammars:
        if len(_grammars) >= _GRAMMARS_KEPT:
            _grammars.clear()
        _grammars[key] = form.grammar(documents, marked=marked, once=once)
    return _grammars[key]


_HALF = re.compile("[\\ud800-\\udfff]")
"""Half of a pair of surrogates, which only together are a character."""


@dataclass(eq=False)
class AnswerText:
    """The answer in a call of `finish`, given out while its arguments, an object of JSON, are still being written.

    What is no JSON ends it.
    """

    _written: str = ""
    _said: str = ""

    def feed(self, piece: str) -> str:
        """Take in a piece of the arguments; returns what it adds to the answer."""
        from pydantic_core import from_json  # reads 20 kB in 3 µs, so that all is read again with each piece

        self._written += piece
        if _HALF.search(piece):  # which may have come in two pieces
            self._written = self._written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        try:
            arguments = from_json(self._written, allow_partial="trailing-strings")
        except (ValueError, TypeError):  # no JSON, or half of a pair at its end
            return ""
        answer = cast("dict[str, Any]", arguments).get("answer") if isinstance(arguments, dict) else None
        if not isinstance(answer, str) or not answer.startswith(self._said):
            return ""
        said, self._said = answer[len(self._said) :], answer
        return said


@dataclass(eq=False)
class ElementAnswer:
    """The same for a call written as XML elements."""

    _elements: Elements
    _written: str = ""
    _told: int = 0

    def feed(self, piece: str) -> str:
        """Take in a piece of the elements; returns what it adds to the answer."""
        self._written += piece
        answer = self._elements.text_so_far(self._written, "answer")
        addition, self._told = answer[self._told :], max(self._told, len(answer))
        return addition
