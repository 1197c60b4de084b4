"""What stands in the lines of a Markdown text, in pieces: stress, code and links in prose, and highlighted code.

Every other character stays as it is. Code is read line by line, each line once and the next in the state in which it
ended, so that what is still arriving is not read again with every piece, as whole-text highlighters would.
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
    from pygments.lexer import Lexer


Pieces = tuple[Piece, ...]
_SAFE = re.compile(r"(?:https?://|mailto:)[!-~]+", re.IGNORECASE)
_STRESS = {"em": "i", "strong": "b", "s": "s"}
_MARKED = re.compile(r"[\\`*_~\[\]!<&\n]")
"""What a text without Markdown has none of."""
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


@lru_cache(maxsize=512)
def inline(text: str, tone: Tone = "text") -> tuple[Pieces, ...]:
    """The pieces of a paragraph, one tuple for each line that the writer wanted to begin anew."""
    if not _MARKED.search(text):
        return ((Piece(visible(text), tone),),)
    lines: list[list[Piece]] = [[]]
    stress: list[str] = []
    links: list[tuple[str, str]] = []
    """Where the open links lead, and the text shown for them so far."""
    for token in _parser().parseInline(text)[0].children or ():
        said, look = token.content, tone
        match token.type:
            case "hardbreak":
                lines.append([])
                continue
            case "link_open":
                links.append((str(token.attrs.get("href", "")), ""))
                continue
            case "link_close":
                address, shown = links.pop()
                if address.removeprefix("mailto:") != shown:  # else that is what it says
                    lines[-1].append(Piece(f" ({visible(address)})", "muted", link=safe_link(address)))
                continue
            case "softbreak":
                said = " "
            case "code_inline":
                look = "tool"
            case "image":
                said, look = f"[image: {said}] ({token.attrs.get('src', '')})", "link"
            case _ if token.tag in _STRESS:
                change = stress.append if token.nesting == 1 else stress.remove
                change(_STRESS[token.tag])
                continue
            case _:
                pass
        if said:
            link = ""
            if links:
                address, shown = links[-1]
                links[-1] = (address, shown + said)
                link, look = safe_link(address), "link" if look == tone else look
            lines[-1].append(Piece(visible(said), look, "".join(stress), link))
    return tuple(map(tuple, lines))


def safe_link(address: str) -> str:
    """The address if it may be opened (http, https, mailto; printable ASCII alone), else nothing."""
    return address if _SAFE.fullmatch(address) else ""


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # not needed for the first frame

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough")


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
    """The pieces of one line, and the state in which the next one begins."""
    lexer = _lexer(language)
    if lexer is None:
        return (Piece(visible(line), "code"),), state
    if (state[0] == _COMMENT or line.lstrip().startswith("/*")) and "*/" not in line and _has_comments(language):
        return (Piece(visible(line), "comment"),), (_COMMENT, *state) if state[0] != _COMMENT else state
    if state[0] == _COMMENT:
        inside, _, rest = line.partition("*/")
        behind, after = _line(language, state[1:], rest)
        return (Piece(visible(f"{inside}*/"), "comment"), *behind), after
    from pygments.lexer import ExtendedRegexLexer, LexerContext, RegexLexer

    own, after = type(lexer).get_tokens_unprocessed, state
    most = 8 * len(line) + 64  # some go round in circles for ever: ```mcschema at `<!--`
    tokens: list[tuple[TokenType, str]] | None = None
    if own in (RegexLexer.get_tokens_unprocessed, ExtendedRegexLexer.get_tokens_unprocessed):
        context = LexerContext(f"{line}\n", 0, list(state))
        with suppress(Exception):  # a rule takes no context, or one that knows of the lines before, as in ```bibtex
            given = ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context)  # pyright: ignore
            found: list[Any] = list(islice(given, most))
            tokens, after = [(kind, text) for _, kind, text in found], tuple(context.stack)
    if tokens is None:  # it reads in a way of its own, and keeps no state
        with suppress(Exception):
            tokens = list(islice(lexer.get_tokens(f"{line}\n"), most))
    if tokens is None or "".join(text for _, text in tokens).rstrip("\n") != line:
        return (Piece(visible(line), "code"),), state
    pieces: list[Piece] = []
    for kind, text in tokens:
        shown, tone = visible(text.rstrip("\n")), _tone(kind)
        if pieces and pieces[-1].tone == tone:
            pieces[-1] = Piece(pieces[-1].text + shown, tone)
        elif shown:
            pieces.append(Piece(shown, tone))
    return tuple(pieces), after


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
