"""Numbers sections and lists them."""

from quill.model import Section


def numbered(blocks):
    """Pairs of number and section, in order."""
    counts, found = [], []
    for block in blocks:
        if not isinstance(block, Section):
            continue
        del counts[block.level :]
        if len(counts) == block.level:
            counts[-1] += 1
        while len(counts) < block.level:
            counts.append(1)
        found.append((".".join(map(str, counts)), block))
    return found


def contents(blocks):
    """A line for each section, indented by two blanks for each level below the first."""
    return [f"{'  ' * (section.level - 1)}{number} {section.text}" for number, section in numbered(blocks)]
