"""Large pastes: kept aside and named in the prompt, so that ten megabytes neither hang nor hide what is typed."""

ATTACHED_FROM = 100_000
"""Characters from which a paste is kept aside."""


class Pastes:
    """What was pasted and kept aside, by the marker that stands for it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def keep(self, text: str) -> str:
        """Keep a paste aside; gives its marker, `[pasted 10,000,000 characters #1]`."""
        marker = f"[pasted {len(text):,} characters #{len(self._texts) + 1}]"
        self._texts[marker] = text
        return marker

    def expand(self, text: str) -> str:
        """The text with every paste in the place of its marker."""
        for marker, pasted in self._texts.items():
            before, found, after = text.partition(marker)
            text = f"{before}{pasted}{after}" if found else text
        return text

    def clear(self) -> None:
        """Forget all of them."""
        self._texts.clear()
