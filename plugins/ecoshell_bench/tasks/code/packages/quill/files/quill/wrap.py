"""Fills lines with words."""

import re

from quill.words import BY_WORD


def wrap(text, width):
    """The lines of a text, none longer than the width unless a word that cannot be divided is."""
    lines, line = [], ""
    for word in text.split():
        while True:
            room = width - len(line) - 1 if line else width
            if len(word) <= room:
                line = f"{line} {word}" if line else word
                break
            head, tail = divide(word, room)
            if head:
                lines.append(f"{line} {head}" if line else head)
                line, word = "", tail
            elif line:
                lines.append(line)
                line = ""
            else:
                lines.append(word)
                break
    return [*lines, line] if line else lines


def divide(word, room):
    """A word in two, the first part as long as the room allows; an empty first part if it cannot be."""
    before, core, after = re.fullmatch(r"(\W*)(.*?)(\W*)", word).groups()
    parts = BY_WORD.get(core.lower(), ())
    best = 0
    at = 0
    for part in parts[:-1]:
        at += len(part)
        if len(before) + at + 1 <= room and at >= 2 and len(core) - at >= 2:
            best = at
    if not best:
        return "", word
    return f"{before}{core[:best]}-", core[best:] + after
