"""Untrusted text inside a Markdown document: it may look as it likes, but it cannot end the block it stands in."""

import re

from ecoshell import messages
from ecoshell.messages import visible, visible_line

_BACKTICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)")
_SIGNS = re.compile(r"([\\`*_\[\]<>#|~!&])")
_OBEYED = re.compile(r"[`\\]|(?<!\w)_|\*(?=\S)|(?<=\S)\*|~~|\[|<[A-Za-z/!?]|&#?\w+;|\|")
_BLOCK = re.compile(r"#|>|[-+*=](?:\s|$)|-{2,}|\d+[.)](?:\s|$)")
"""What begins a heading, a quotation, a rule or a list."""
_TAG = re.compile(r"(?<!\\)((?:\\\\)*)<(?=[A-Za-z/!?])")
"""What may begin HTML and is not escaped already."""


def fenced(text: str, language: str = "") -> str:
    """The text, as it can be shown, as a code block."""
    return messages.fenced(visible(text), language)


def as_it_is(text: str) -> str:
    """The text without the line ends around it: a code block, or by itself where Markdown changes nothing of it."""
    text = text.strip("\r\n").rstrip()
    return fenced(text) if "\n" in text or text != text.strip() or _BLOCK.match(text) or obeys(text) else text


def obeys(text: str) -> bool:
    """Whether Markdown would obey signs in this text, and not show them."""
    return _OBEYED.search(text) is not None


def prose(markdown: str) -> str:
    """Markdown that somebody else wrote: HTML in it is shown as text, and a code block it leaves open is closed.

    It is all a code block where it cannot be told where one ends: within a list that does with its item, too.
    """
    lines: list[str] = []
    fence, indent = "", 0
    for line in visible(markdown).strip().split("\n"):
        found = _FENCE.fullmatch(line)
        marks, rest = (found["marks"], found["rest"].strip()) if found else ("", "")
        if not fence and "`" in marks and "`" in rest:  # code within a line
            marks = ""
        lines.append(line if fence or marks else _TAG.sub(r"\1\\<", line))
        if not fence:
            fence, indent = marks, len(line) - len(line.lstrip())
        elif marks[:1] == fence[0] and len(marks) >= len(fence) and not rest and not line[:indent].strip():
            fence = ""
        elif indent and (line[:indent].strip() or line.strip().startswith(fence)):
            return fenced(markdown)
    if fence and indent:
        return fenced(markdown)
    return "\n".join([*lines, fence] if fence else lines)


def quoted(markdown: str) -> str:
    """Somebody else's Markdown as a quotation."""
    written = markdown.expandtabs(4)  # a tab would lead less far behind the mark
    return "\n".join(f"> {line}".rstrip() for line in prose(written).split("\n"))


def literal(text: str) -> str:
    """Plain text on one line, with every sign that Markdown would obey taken literally."""
    return _SIGNS.sub(r"\\\1", visible_line(text))


def code(name: str) -> str:
    """A name as inline code."""
    shown = visible_line(name)
    marks = "`" * (max(map(len, _BACKTICKS.findall(shown)), default=0) + 1)
    return f"{marks} {shown} {marks}" if len(marks) > 1 else f"`{shown}`"
