"""Documents by name, kept in a cache weighted by their size."""

from pathlib import Path

from shelf.cache import Cache, Full


class Loader:
    """Reads documents of a folder."""

    def __init__(self, folder, capacity=10_000, **options):
        self._folder = Path(folder)
        self._cache = Cache(capacity, **options)

    def text(self, name):
        """The text of a document."""
        found = self._cache.get(name)
        if found is None:
            found = (self._folder / name).read_text(encoding="utf-8")
            try:
                self._cache.put(name, found, weight=max(1, len(found)))
            except Full:
                pass
        return found

    def hold(self, name):
        """Keep a document until it is let go."""
        self.text(name)
        self._cache.pin(name)

    def let_go(self, name):
        self._cache.unpin(name)

    @property
    def hit_rate(self):
        stats = self._cache.stats()
        asked = stats["hits"] + stats["misses"]
        return stats["hits"] / asked if asked else None
