"""What a model knows of the plan: which tools it can name at all, and which of them it was told are barred."""

from collections.abc import Collection, Iterable, Mapping


class Told:
    """Follows what one model was told in one turn, also when a search goes back behind it."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._first: frozenset[str] = frozenset()
        self._after: dict[str, frozenset[str]] = {}
        """What it knew to be barred after each call, by the call's id and in order."""

    @property
    def known(self) -> Collection[str]:
        """The tools it can name."""
        return self._known

    def begin(self, known: Iterable[str], barred: Collection[str]) -> None:
        """These are the tools it can name, and of those it was told that these are barred."""
        self._known = set(known)
        self._first = frozenset(name for name in barred if name in self._known)

    def learn(self, tool: str) -> None:
        """It has come to know a tool, as by registering it."""
        self._known.add(tool)

    def go_back(self, path: Collection[str]) -> None:
        """A search goes on behind the calls of this path."""
        self._after = {call: barred for call, barred in self._after.items() if call in path}

    def news(self, call: str, barred: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """What is barred and was not, and what is not any more; told after this call."""
        before = next(reversed(self._after.values()), self._first)
        now = frozenset(name for name in barred if name in self._known)
        self._after[call] = now
        return [name for name in barred if name in now - before], sorted(before - now)
