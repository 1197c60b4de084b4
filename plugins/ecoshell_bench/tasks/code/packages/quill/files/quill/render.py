"""Makes a text of blocks."""

from quill.contents import contents, numbered
from quill.model import Items, Paragraph, Section, Table, Title
from quill.tables import layout
from quill.wrap import wrap

WIDTH = 72


def render(blocks, width=WIDTH, with_contents=False):
    """The document; with the table of contents below the title, or at the top, if so wanted."""
    numbers = {id(section): number for number, section in numbered(blocks)}
    parts = []
    for block in blocks:
        if isinstance(block, Title):
            parts.append(["*" * min(width, len(block.text)), block.text, "*" * min(width, len(block.text))])
        elif isinstance(block, Section):
            text = f"{numbers[id(block)]} {block.text}" if with_contents else block.text
            parts.append([text, ("=" if block.level == 1 else "-") * len(text)])
        elif isinstance(block, Paragraph):
            parts.append(wrap(block.text, width))
        elif isinstance(block, Items):
            parts.append([line for text in block.texts for line in _item(text, width)])
        elif isinstance(block, Table):
            parts.append(layout(block.rows))
    if with_contents and numbers:
        parts.insert(1 if blocks and isinstance(blocks[0], Title) else 0, contents(blocks))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _item(text, width):
    first, *rest = wrap(text, width - 2) or [""]
    return [f"- {first}".rstrip(), *(f"  {line}" for line in rest)]
