"""Inline Markdown (emphasis, code, links) and highlighted code, as pieces."""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

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
                    shown_address = f" ({visible(address)})"
                    lines[-1].append(Piece(shown_address, "muted", link=safe_link(address)))
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
        types = (token.type, text.type, end.type)
        is_strong_text = types == ("strong_open", "text", "strong_close")
        if is_strong_text and token.markup == "__" and _NAME.fullmatch(text.content):
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
) -> Sequence[Pieces]:
    """The pieces of each line; `context` holds the preceding lines. Unknown languages are not highlighted."""
    highlighted_lines = _highlighted("\n".join((*context, *lines)), language)
    return highlighted_lines[len(context) : len(context) + len(lines)]


@lru_cache(maxsize=256)
def _highlighted(code: str, language: str) -> Sequence[Pieces]:
    """The pieces of each line of code."""
    tokens: list[tuple[TokenType, str]] = []
    if (lexer := _lexer(language)) is not None:
        # some lexers recognize only complete comments
        end = "*/" if code.rfind("/*") > code.rfind("*/") else ""
        token_limit = 8 * len(code) + 64  # some lexers loop forever: ```mcschema at `<!--`
        with suppress(Exception):  # a lexer may have defects
            tokens = list(islice(lexer.get_tokens(f"{code}{end}\n"), token_limit))
    if not "".join(text for _, text in tokens).startswith(code):
        tokens = [((), code)]
    lines: list[list[Piece]] = [[]]
    remaining = len(code)
    for kind, text in tokens:
        tone = _tone(kind)
        for nth, part in enumerate(text[:remaining].split("\n")):
            if nth:
                lines.append([])
            line = lines[-1]
            if line and line[-1].tone == tone:
                line[-1] = Piece(line[-1].text + visible(part), tone)
            elif part:
                line.append(Piece(visible(part), tone))
        remaining -= len(text[:remaining])
    return tuple(map(tuple, lines))


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


@lru_cache(maxsize=256)
def _tone(kind: TokenType) -> Tone:
    name = ".".join(kind)
    for start, tone in _TONES.items():
        if name.removeprefix("Literal.").startswith(start):
            return tone
    return "code"
