"""Code, line by line: each line is read once, and the next goes on in the state in which it ended."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ecoshell.tui.transcript.blocks import Piece, Tone
from ecoshell.untrusted import visible

if TYPE_CHECKING:
    from pygments.lexer import Lexer

TokenType = tuple[str, ...]
State = tuple[str, ...]
_START: State = ("root",)
_COMMENT = "/*"
"""The state inside a comment of several lines, which many lexers can only read in one piece."""
_TONES: dict[str, Tone] = {
    "Keyword": "keyword",
    "Operator.Word": "keyword",
    "Name.Tag": "keyword",
    "Name.Function": "name",
    "Name.Class": "name",
    "Name.Decorator": "name",
    "Name.Attribute": "name",
    "String": "string",
    "Number": "number",
    "Comment": "comment",
    "Generic.Inserted": "added",
    "Generic.Deleted": "removed",
    "Generic.Subheading": "hunk",
    "Generic.Heading": "hunk",
}


def highlighted(lines: Sequence[str], language: str, before: Sequence[str] = ()) -> Iterator[tuple[Piece, ...]]:
    """The pieces of each line, read on from the lines before; an unknown language has one piece for each."""
    state = _START
    for line in before:
        _, state = _line(language, state, line)
    for line in lines:
        pieces, state = _line(language, state, line)
        yield pieces


@lru_cache(maxsize=2_048)
def _line(language: str, state: State, line: str) -> tuple[tuple[Piece, ...], State]:
    lexer = _lexer(language)
    if lexer is None:
        return (Piece(visible(line), "code"),), state
    if (state[0] == _COMMENT or line.lstrip().startswith("/*")) and "*/" not in line and _has_comments(language):
        return (Piece(visible(line), "comment"),), (_COMMENT, *state) if state[0] != _COMMENT else state
    if state[0] == _COMMENT:
        inside, _, rest = line.partition("*/")
        pieces, after = _line(language, state[1:], rest)
        return (Piece(visible(f"{inside}*/"), "comment"), *pieces), after
    return _pieces(lexer, state, line)


def _pieces(lexer: "Lexer", state: State, line: str) -> tuple[tuple[Piece, ...], State]:
    tokens, after = _read(lexer, state, f"{line}\n")
    pieces: list[Piece] = []
    for kind, text in tokens:
        shown, tone = visible(text.rstrip("\n")), _tone(kind)
        if pieces and pieces[-1].tone == tone:
            pieces[-1] = Piece(pieces[-1].text + shown, tone)
        elif shown:
            pieces.append(Piece(shown, tone))
    return tuple(pieces), after


def _read(lexer: "Lexer", state: State, line: str) -> tuple[list[tuple[TokenType, str]], State]:
    """The tokens of one line, and the state in which the next one begins."""
    from pygments.lexer import ExtendedRegexLexer, LexerContext, RegexLexer

    own = type(lexer).get_tokens_unprocessed
    if own not in (RegexLexer.get_tokens_unprocessed, ExtendedRegexLexer.get_tokens_unprocessed):
        return list(lexer.get_tokens(line)), state  # it reads in a way of its own, and keeps no state
    context = LexerContext(line, 0, list(state))
    try:
        found: list[Any] = list(ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context))  # pyright: ignore
    except TypeError:  # one of its rules is a function that takes no context
        return list(lexer.get_tokens(line)), state
    return [(kind, text) for _, kind, text in found], tuple(context.stack)


@lru_cache(maxsize=64)
def _lexer(language: str) -> "Lexer | None":
    """The lexer of a language, by any name that is used for it."""
    if not language:
        return None
    # it takes a while, and most sessions need it late; its options have no types
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=64)
def _has_comments(language: str) -> bool:
    """Whether it has comments that begin with `/*`."""
    lexer = _lexer(language)
    return lexer is not None and any(_tone(kind) == "comment" for kind, _ in lexer.get_tokens("/* a */"))


@lru_cache(maxsize=256)
def _tone(kind: TokenType) -> Tone:
    name = ".".join(kind)
    for start, tone in _TONES.items():
        if name.removeprefix("Literal.").startswith(start):
            return tone
    return "code"
