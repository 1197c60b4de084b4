"""Makes blocks of a text."""

import re

from quill.model import Items, Paragraph, QuillError, Section, Table, Title


def read(text):
    """The blocks of a text; raises QuillError."""
    blocks, current = [], None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.rstrip()
        if not line:
            current = None
            continue
        if heading := re.fullmatch(r"(=+) +(.+)", line):
            current = None
            if len(heading[1]) == 1:
                if blocks:
                    raise QuillError(f"line {number}: the title comes first")
                blocks.append(Title(heading[2]))
            else:
                blocks.append(Section(len(heading[1]) - 1, heading[2]))
            continue
        if line.startswith("- "):
            if not isinstance(current, Items):
                current = Items()
                blocks.append(current)
            current.texts.append(line[2:].strip())
            continue
        if line.startswith("|"):
            if not line.endswith("|") or len(line) < 2:
                raise QuillError(f"line {number}: the row has no end")
            if not isinstance(current, Table):
                current = Table()
                blocks.append(current)
            current.rows.append([cell.strip() for cell in line[1:-1].split("|")])
            continue
        if isinstance(current, Items) and line.startswith("  "):
            current.texts[-1] += " " + line.strip()
            continue
        if not isinstance(current, Paragraph):
            current = Paragraph("")
            blocks.append(current)
        current.text = f"{current.text} {line.strip()}".strip()
    return blocks
