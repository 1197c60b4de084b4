"""Markdown of any length, always the same: what streams of a measured number of tokens are made of."""

from collections.abc import Iterator
from itertools import count, islice

LAST_WORD = "Finis."
"""How every text ends."""
_SECTION = """## Part {number}: how a stream is shown

A *token* here is one word with the blank after it, and arrives in one piece. Some words are **strong**, some are
`code`, a few are [links](https://example.org/{number}) and most are plain words of a plain paragraph, which is long
enough to be wrapped once or twice on any terminal that people sit in front of.

- the first point of part {number}
- a second one, with a little more to say about it than the first
  1. and a numbered one below it
  2. and another

```python
def part_{number}(words: list[str]) -> int:
    total = sum(len(word) for word in words if word)
    return total + {number}
```

| figure | value | unit |
| ------ | ----- | ---- |
| part | {number} | none |
| words | about a hundred | words |

> Whoever reads this far has read a quotation, too.

"""


def markdown(tokens: int) -> str:
    """Markdown that a script model streams in so many pieces."""
    return " ".join([*islice(_pieces(), max(0, tokens - 1)), LAST_WORD])


def _pieces() -> Iterator[str]:
    for number in count(1):
        yield from _SECTION.format(number=number).split(" ")
