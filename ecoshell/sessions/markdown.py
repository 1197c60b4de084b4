"""Untrusted text in Markdown: it cannot end the block that contains it."""

import re

from ecoshell import messages
from ecoshell.messages import visible, visible_line

_BACKTICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)")
_SPECIAL_CHARACTERS = re.compile(r"([\\`*\[\]<>#|~!&]|(?<![^\W_])_|_(?![^\W_]))")
_INLINE_MARKUP = re.compile(r"[`\\]|(?<!\w)_|\*(?=\S)|(?<=\S)\*|~~|\[|<[A-Za-z/!?]|&#?\w+;|\|")
_BLOCK_START = re.compile(r"#|>|[-+*=](?:\s|$)|-{2,}|\d+[.)](?:\s|$)")
"""The beginning of a heading, a quotation, a rule or a list."""
_UNESCAPED_TAG = re.compile(r"(?<!\\)((?:\\\\)*)<(?=[A-Za-z/!?])")


def fenced(text: str, language: str = "") -> str:
    """Return the text, with control characters made visible, as a code block."""
    return messages.fenced(visible(text), language)


def unchanged(text: str) -> str:
    """Return Markdown that displays the text unchanged: as a code block, or as is if possible."""
    text = text.strip("\r\n").rstrip()
    is_plain = "\n" not in text and text == text.strip()
    is_plain = is_plain and not _BLOCK_START.match(text) and not has_markup(text)
    return text if is_plain else fenced(text)


def has_markup(text: str) -> bool:
    """Whether the text contains characters with a meaning in Markdown."""
    return _INLINE_MARKUP.search(text) is not None


def prose(markdown: str) -> str:
    """Return untrusted Markdown with HTML as text and all code blocks closed.

    All of it becomes a code block if the end of a code block is ambiguous. Within a list, that is
    also the end of its item.
    """
    lines: list[str] = []
    fence, indent = "", 0
    for line in visible(markdown).strip().split("\n"):
        match = _FENCE.fullmatch(line)
        marks, suffix = (match["marks"], match["rest"].strip()) if match else ("", "")
        if not fence and "`" in marks and "`" in suffix:  # inline code
            marks = ""
        lines.append(line if fence or marks else _UNESCAPED_TAG.sub(r"\1\\<", line))
        if not fence:
            fence, indent = marks, len(line) - len(line.lstrip())
        elif (
            marks[:1] == fence[0]
            and len(marks) >= len(fence)
            and not suffix
            and not line[:indent].strip()
        ):
            fence = ""
        elif indent and (line[:indent].strip() or line.strip().startswith(fence)):
            return fenced(markdown)
    if fence and indent:
        return fenced(markdown)
    return "\n".join([*lines, fence] if fence else lines)


def quoted(markdown: str) -> str:
    """Return untrusted Markdown as a quotation."""
    expanded = markdown.expandtabs(4)  # A tab after the quotation mark would be narrower.
    return "\n".join(f"> {line}".rstrip() for line in prose(expanded).split("\n"))


def literal(text: str) -> str:
    """Return plain text on one line, with all special characters escaped."""
    return _SPECIAL_CHARACTERS.sub(r"\\\1", visible_line(text))


def code(name: str) -> str:
    """Return a name as inline code."""
    text = visible_line(name)
    marks = "`" * (max(map(len, _BACKTICKS.findall(text)), default=0) + 1)
    return f"{marks} {text} {marks}" if len(marks) > 1 else f"`{text}`"
