"""Inline Markdown (emphasis, code, links) and highlighted code, as pieces.

Code is highlighted line by line, each line once and in the lexer state left by the previous one, so that streamed code
is not read again with every piece.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from ecoshell.messages import visible
from ecoshell.tui.transcript.blocks import Piece, Tone

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer


Pieces = tuple[Piece, ...]
MAX_HIGHLIGHTED_LENGTH = 600
"""Characters of a line of code that is still highlighted."""
_SAFE = re.compile(r"(?:https?://|mailto:)[!-~]+", re.IGNORECASE)
_NAME = re.compile(r"\w+")
_STRESS = {"em": "i", "strong": "b", "s": "s"}
_MARKED = re.compile(r"[\\`*_~\[\]!<&\n]")
"""A character that any inline Markdown contains."""
TokenType = tuple[str, ...]
State = tuple[str, ...]
_START: State = ("root",)
_COMMENT = "/*"
"""The state inside a multi-line comment, which many lexers can only read as a whole."""
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


@lru_cache(maxsize=512)
def inline(text: str, tone: Tone = "text") -> tuple[Pieces, ...]:
    """The pieces of a paragraph, a tuple for each hard line break."""
    if not _MARKED.search(text):
        return ((Piece(visible(text), tone),),)
    lines: list[list[Piece]] = [[]]
    stress: list[str] = []
    links: list[tuple[str, str]] = []
    """Addresses of the open links, and their text so far."""
    children = _parser().parseInline(text)[0].children or []
    names = _double_underscores(children)
    for number, token in enumerate(children):
        content, look = token.content, tone
        match token.type:
            case "hardbreak" | "softbreak":  # models put each entry of a listing on a line
                lines.append([])
                continue
            case "link_open":
                links.append((str(token.attrs.get("href", "")), ""))
                continue
            case "link_close":
                address, label = links.pop()
                if address.removeprefix("mailto:") != label:
                    lines[-1].append(
                        Piece(f" ({visible(address)})", "muted", link=safe_link(address))
                    )
                continue
            case "code_inline":
                look = "tool"
            case "image":
                content, look = f"[image: {content}] ({token.attrs.get('src', '')})", "link"
            case _ if number in names:
                content = token.markup
            case _ if token.tag in _STRESS:
                change = stress.append if token.nesting == 1 else stress.remove
                change(_STRESS[token.tag])
                continue
            case _:
                pass
        if content:
            link = ""
            if links:
                address, label = links[-1]
                links[-1] = (address, label + content)
                link, look = safe_link(address), "link" if look == tone else look
            lines[-1].append(Piece(visible(content), look, "".join(stress), link))
    return tuple(map(tuple, lines))


def _double_underscores(tokens: "Sequence[Token]") -> set[int]:
    """Return the places of tokens that are part of a name such as `__init__`, not emphasis."""
    places: set[int] = set()
    for number, token in enumerate(tokens[:-2]):
        text, end = tokens[number + 1 : number + 3]
        is_emphasis = (
            token.type == "strong_open" and token.markup == "__" and end.type == "strong_close"
        )
        if is_emphasis and text.type == "text" and _NAME.fullmatch(text.content):
            places |= {number, number + 2}
    return places


def safe_link(address: str) -> str:
    """The address if it is safe to open (http, https, mailto; printable ASCII), else nothing."""
    return address if _SAFE.fullmatch(address) else ""


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # not needed for the first frame

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough")


def highlighted(
    lines: Sequence[str], language: str, context: Sequence[str] = ()
) -> Iterator[tuple[Piece, ...]]:
    """The pieces of each line; `context` holds the preceding lines. Unknown languages are not highlighted."""
    state = _START
    for line in context:
        _, state = _line(language, state, line)
    for line in lines:
        pieces, state = _line(language, state, line)
        yield pieces


@lru_cache(maxsize=2_048)
def _line(language: str, state: State, line: str) -> tuple[tuple[Piece, ...], State]:
    """The pieces of one line, and the lexer state after it."""
    lexer = _lexer(language)
    if lexer is None:
        return (Piece(visible(line), "code"),), state
    if (
        (state[0] == _COMMENT or line.lstrip().startswith("/*"))
        and "*/" not in line
        and _has_comments(language)
    ):
        return (Piece(visible(line), "comment"),), (_COMMENT, *state) if state[
            0
        ] != _COMMENT else state
    if state[0] == _COMMENT:
        comment, _, code = line.partition("*/")
        pieces_after, after = _line(language, state[1:], code)
        return (Piece(visible(f"{comment}*/"), "comment"), *pieces_after), after
    from pygments.lexer import ExtendedRegexLexer, LexerContext, RegexLexer

    own, after = type(lexer).get_tokens_unprocessed, state
    token_limit = 8 * len(line) + 64  # some lexers loop forever: ```mcschema at `<!--`
    tokens: list[tuple[TokenType, str]] | None = None
    if own in (RegexLexer.get_tokens_unprocessed, ExtendedRegexLexer.get_tokens_unprocessed):
        context = LexerContext(f"{line}\n", 0, list(state))
        with suppress(Exception):  # some rules accept no context, as in ```bibtex
            stream = ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context)  # pyright: ignore
            triples: list[Any] = list(islice(stream, token_limit))
            tokens, after = [(kind, text) for _, kind, text in triples], tuple(context.stack)
    if tokens is None:  # a lexer with its own method and no state
        with suppress(Exception):
            tokens = list(islice(lexer.get_tokens(f"{line}\n"), token_limit))
    if tokens is None or "".join(text for _, text in tokens).rstrip("\n") != line:
        return (Piece(visible(line), "code"),), state
    pieces: list[Piece] = []
    for kind, text in tokens:
        piece_text, tone = visible(text.rstrip("\n")), _tone(kind)
        if pieces and pieces[-1].tone == tone:
            pieces[-1] = Piece(pieces[-1].text + piece_text, tone)
        elif piece_text:
            pieces.append(Piece(piece_text, tone))
    return tuple(pieces), after


@lru_cache(maxsize=64)
def _lexer(language: str) -> "Lexer | None":
    """The lexer for any of a language's names."""
    if not language:
        return None
    # slow to import and rarely needed; the lexer options have no types
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=64)
def _has_comments(language: str) -> bool:
    """Whether the language has `/*` comments."""
    lexer = _lexer(language)
    return lexer is not None and any(
        _tone(kind) == "comment" for kind, _ in lexer.get_tokens("/* a */")
    )


@lru_cache(maxsize=256)
def _tone(kind: TokenType) -> Tone:
    name = ".".join(kind)
    for start, tone in _TONES.items():
        if name.removeprefix("Literal.").startswith(start):
            return tone
    return "code"
