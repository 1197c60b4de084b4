"""Listening to one stream: its text as events, its usage if that can be believed, and whether it goes on for ever."""

from collections.abc import Callable
from dataclasses import replace

from ecoshell.events import Emit, Reasoned, TextArrived
from ecoshell.messages import Usage
from ecoshell.models.base import Delta, Purpose, Reply, Request, Traits
from ecoshell.secrecy import MaskedStream, masked

_SHOWN: frozenset[Purpose] = frozenset({"step", "answer", "repair"})
"""Purposes whose text belongs to the conversation; titles, rankings, judgments and summaries do not."""

_MOST_TOKENS = 100_000_000
"""No call has more, so a report of more is no report."""

# How far past `max_tokens` a stream may seem to run before it is cut off. A provider sends a token in one piece as a
# rule, now and then in two; pieces without text come as signs of life and while a call's arguments are written.
_PIECES_PER_TOKEN, _EMPTY_PIECES_PER_TOKEN, _BYTES_PER_TOKEN, _SPARE = 2, 16, 64, 512


_BYTES_A_TOKEN = 4
"""What a token of a call is taken to be that nobody can count."""


class Listener:
    """Hears the pieces of one reply."""

    def __init__(self, request: Request, role: str, traits: Traits, emit: Emit) -> None:
        self.usage: Usage | None = None
        """What the call has used as far as anybody credible has said."""
        self._said: list[str] = []
        self._received: dict[bool, list[str]] = {False: [], True: []}
        """All text that came; apart from it, by True, the answers in calls."""
        self._unseen = 0
        self._reply: Reply | None = None
        self._masks: dict[tuple[bool, bool], MaskedStream] = {}
        """What hides keys in each of the texts that arrive."""
        self._pieces = self._empty_pieces = self._bytes = 0
        self._request = request
        self._role = role
        self._local = traits.local
        self._emit = emit

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._said)

    def tokens(self, count: Callable[[str], int]) -> int:
        """Tokens of what came, by `count`; of a call that had not come whole, a quarter of its bytes."""
        reply = self._reply
        if reply is not None:
            texts = (reply.reasoning, reply.text, *(call.signature() for call in reply.calls))
            return sum(count(text) for text in texts if text)
        said, answered = (count("".join(texts)) if texts else 0 for texts in self._received.values())
        return said + max(answered, -(-self._unseen // _BYTES_A_TOKEN))

    @property
    def endless(self) -> bool:
        """Whether more came than `max_tokens` can explain."""
        most = self._request.max_tokens
        return (
            self._pieces > _PIECES_PER_TOKEN * most + _SPARE
            or self._empty_pieces > _EMPTY_PIECES_PER_TOKEN * (most + _SPARE)
            or self._bytes > _BYTES_PER_TOKEN * (most + _SPARE)
        )

    def hear(self, piece: Delta | Reply) -> Reply | None:
        """Take in a piece; the reply when this was it, its usage blanked when it cannot be believed."""
        if isinstance(piece, Reply):
            self._reply = piece
            for (reasoning, answer), mask in self._masks.items():
                self._tell(mask.end(), reasoning=reasoning, answer=answer)
            piece = masked(piece)
            usage = piece.usage
            self.usage = usage if usage is not None and self._credible(usage, piece) else self.usage
            if piece.reasoning and self._request.purpose in _SHOWN:
                tokens = self.usage.reasoning if self.usage else 0
                self._emit(Reasoned(piece.reasoning, self._role, tokens or None))
            return replace(piece, usage=self.usage)
        if piece.usage is not None:
            self.usage = piece.usage
        self._take(piece)
        return None

    def _take(self, piece: Delta) -> None:
        text = piece.text
        self._bytes += piece.unseen
        self._unseen += piece.unseen
        if not text:
            self._empty_pieces += 1
            return
        self._pieces += 1
        self._received[piece.answer].append(text)
        self._bytes += len(text.encode("utf-8", "surrogatepass"))
        mask = self._masks.setdefault((piece.reasoning, piece.answer), MaskedStream())
        self._tell(mask.feed(text), reasoning=piece.reasoning, answer=piece.answer)

    def _tell(self, text: str, *, reasoning: bool, answer: bool) -> None:
        """Tell a piece of text in which keys are masked."""
        if not text:
            return
        if not reasoning and not answer:
            self._said.append(text)
        if self._request.purpose in _SHOWN:
            answers = answer or self._request.purpose == "answer"
            channel = "reasoning" if reasoning else "answer" if answers else "thought"
            self._emit(TextArrived(text=text, channel=channel, role=self._role))

    def _credible(self, usage: Usage, reply: Reply) -> bool:
        """Whether a report can be true: whole numbers, no part above its whole, and not nothing for something."""
        counts: tuple[object, ...] = (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning)
        if not all(type(count) is int and 0 <= count <= _MOST_TOKENS for count in counts):
            return False
        if usage.cached + usage.cache_write > usage.input or usage.reasoning > usage.output:
            return False
        said_something = bool(reply.text or reply.reasoning or reply.calls)
        return usage.total > 0 or not said_something or self._local
