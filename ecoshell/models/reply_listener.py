"""Collects the pieces of one reply, emits them as events, and judges its usage and its length."""

from collections.abc import Callable
from dataclasses import astuple, replace

from ecoshell.events import CallArriving, Emit, Reasoned, TextArrived
from ecoshell.messages import Usage
from ecoshell.models import Delta, Purpose, Reply, Request, Traits
from ecoshell.secrecy import MaskedStream, mask_secrets

CONVERSATION: frozenset[Purpose] = frozenset({"step", "answer", "repair"})
"""Purposes whose text is part of the conversation, unlike rankings, judgments and summaries."""
_MAX_TOKENS = 100_000_000  # usage reports above this are discarded
# Limits after which a stream is cut off. Providers usually send one token per piece, sometimes half of one; pieces
# without text are keep-alives, or parts of a call's arguments.
_PIECES_PER_TOKEN, _EMPTY_PIECES_PER_TOKEN, _BYTES_PER_TOKEN, _SPARE = 2, 16, 64, 512
_BYTES_A_TOKEN = 4  # for estimating tokens of calls


class ReplyListener:
    """Collects the pieces of one reply and emits them as events."""

    def __init__(self, request: Request, role: str, traits: Traits, emit: Emit) -> None:
        self.usage: Usage | None = None  # the last plausible usage report
        self.texts: list[str] = []  # texts received so far, without reasoning and answers in calls
        self.answers: list[str] = []  # answers in calls received so far
        # Texts as they were received, and answers in calls (True).
        self._received: dict[bool, list[str]] = {False: [], True: []}
        self._unseen = 0
        self._reply: Reply | None = None
        self._masks: dict[tuple[bool, bool], MaskedStream] = {}  # key masks of the streamed texts
        self._pieces = self._empty_pieces = self._bytes = 0
        self._request = request
        self._role = role
        self._local = traits.local
        self._emit = emit

    def tokens(self, count: Callable[[str], int]) -> int:
        """Tokens received so far, by `count`; an incomplete call counts a quarter of its bytes."""
        if (reply := self._reply) is not None:
            texts = (reply.reasoning, reply.text, *(call.signature() for call in reply.calls))
            return sum(count(text) for text in texts if text)
        text_tokens, answer_tokens = (
            count("".join(texts)) if texts else 0 for texts in self._received.values()
        )
        return text_tokens + max(answer_tokens, -(-self._unseen // _BYTES_A_TOKEN))

    @property
    def began(self) -> bool:
        return self._bytes > 0 or self._reply is not None

    @property
    def endless(self) -> bool:
        """Whether the stream is longer than `max_tokens` allows."""
        max_tokens = self._request.max_tokens
        return (
            self._pieces > _PIECES_PER_TOKEN * max_tokens + _SPARE
            or self._empty_pieces > _EMPTY_PIECES_PER_TOKEN * (max_tokens + _SPARE)
            or self._bytes > _BYTES_PER_TOKEN * (max_tokens + _SPARE)
        )

    def take(self, piece: Delta | Reply) -> Reply | None:
        """Take the next piece; returns the reply at the end, without its usage if that is implausible."""
        if isinstance(piece, Reply):
            self._reply = piece
            for (reasoning, answer), mask in self._masks.items():
                self._emit_text(mask.end(), reasoning=reasoning, answer=answer)
            state, piece = piece.state, mask_secrets(piece)
            if piece.state is not state:  # a masked message no longer matches its signature
                piece = replace(piece, state=None)
            usage = piece.usage
            self.usage = usage if usage is not None and self._credible(usage, piece) else self.usage
            if piece.reasoning and self._request.purpose in CONVERSATION:
                tokens = self.usage.reasoning if self.usage else 0
                self._emit(Reasoned(piece.reasoning, self._role, tokens or None))
            return replace(piece, usage=self.usage)
        if piece.usage is not None:
            self.usage = piece.usage
        text = piece.text
        if (call := piece.call) is not None and self._request.purpose in CONVERSATION:
            self._emit(CallArriving(call.name, call.path, call.lines, self._role))
        self._bytes += piece.unseen
        self._unseen += piece.unseen
        if not text:
            self._empty_pieces += 1
            return None
        self._pieces += 1
        self._received[piece.answer].append(text)
        self._bytes += len(text.encode("utf-8", "surrogatepass"))
        mask = self._masks.setdefault((piece.reasoning, piece.answer), MaskedStream())
        self._emit_text(mask.feed(text), reasoning=piece.reasoning, answer=piece.answer)
        return None

    def _emit_text(self, text: str, *, reasoning: bool, answer: bool) -> None:
        if not text:
            return
        if not reasoning:
            (self.answers if answer else self.texts).append(text)
        if self._request.purpose in CONVERSATION:
            answers = answer or self._request.purpose == "answer"
            channel = "reasoning" if reasoning else "answer" if answers else "thought"
            self._emit(TextArrived(text=text, channel=channel, role=self._role))

    def _credible(self, usage: Usage, reply: Reply) -> bool:
        """Whether a usage report is plausible: integers, no part above its total, and not 0 for a non-empty reply."""
        counts: tuple[object, ...] = astuple(usage)
        if not all(type(count) is int and 0 <= count <= _MAX_TOKENS for count in counts):
            return False
        if usage.cached + usage.cache_write > usage.input or usage.reasoning > usage.output:
            return False
        is_nonempty = bool(reply.text or reply.reasoning or reply.calls)
        return (usage.input > 0 and usage.output > 0) or not is_nonempty or self._local
