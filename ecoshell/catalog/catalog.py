"""All tools known to a session by unique name, and the skill library: those of them that are registered."""

import difflib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ecoshell.errors import ToolError
from ecoshell.messages import META_TOOLS, ToolDocument
from ecoshell.tools.base import Tool, ToolProvider


@dataclass(frozen=True, slots=True)
class CatalogNews:
    """What has changed in a catalog, by name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.gone)


class Catalog:
    """Tools by name, in the order given; a name that two servers share is qualified with the server's.

    Those of providers come after the others, and change only by `follow`, so that they stand still during a turn.
    """

    def __init__(self, tools: Iterable[Tool], providers: Sequence[ToolProvider] = ()) -> None:
        self.providers = providers
        self._tools: dict[str, Tool] = {}
        self._documents: dict[str, ToolDocument] = {}
        own = [(tool, tool.document) for tool in tools]
        shared = {name for name, count in Counter([document.name for _, document in own]).items() if count > 1}
        for tool, document in own:
            name = document.name
            if name in shared and document.server:
                name = f"{document.server}.{name}"
            if name in self._tools or name in META_TOOLS:
                raise ToolError(f"two tools are called {name}", fix="give one of them another name")
            self._tools[name] = tool
            self._documents[name] = replace(document, name=name)
        self._own = frozenset(self._tools)
        self.follow(())

    @property
    def grows(self) -> bool:
        """Whether tools may come and go."""
        return bool(self.providers)

    def is_all(self, names: Iterable[str]) -> bool:
        """Whether there is no tool but these, and none can come."""
        return not self.grows and set(names).issuperset(self._tools)

    def follow(self, kept: Container[str]) -> CatalogNews:
        """Have the tools that providers have by now; those in `kept`, which a model was shown, stay as they are.

        A new tool whose name is taken is left out.
        """
        now = {
            tool.document.name: tool
            for provider in reversed(self.providers)  # of two with the same name, the first has it
            for tool in provider.tools
            if tool.document.name not in self._own | META_TOOLS
        }
        gone = [name for name in self._tools if name not in self._own and name not in now and name not in kept]
        for name in gone:
            del self._tools[name], self._documents[name]
        changed: list[str] = []
        added = [tool.document.name for provider in self.providers for tool in provider.tools]
        added = [name for name in dict.fromkeys(added) if name in now and name not in self._tools]
        for name, tool in now.items():
            if name in self._tools and name not in kept and self._tools[name] is not tool:
                self._tools[name], self._documents[name] = tool, tool.document
                changed.append(name)
        for name in added:
            self._tools[name], self._documents[name] = now[name], now[name].document
        return CatalogNews(tuple(added), tuple(changed), tuple(gone))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def documents(self) -> tuple[ToolDocument, ...]:
        return tuple(self._documents.values())

    @property
    def prices(self) -> dict[str, int]:
        """What one use of each tool costs by itself, in nano-dollars."""
        return {name: tool.price_nano for name, tool in self._tools.items()}

    @property
    def servers(self) -> dict[str, str]:
        """The server of each tool that a server has."""
        return {name: document.server for name, document in self._documents.items() if document.server}

    def tool(self, name: str) -> Tool:
        """The tool of this name; KeyError when unknown."""
        return self._tools[name]

    def document(self, name: str) -> ToolDocument:
        """The document of the tool of this name; KeyError when unknown."""
        return self._documents[name]

    def documents_of(self, names: Iterable[str]) -> tuple[ToolDocument, ...]:
        """The documents of those of the names that are known, in their order."""
        documents = self._documents
        return tuple([documents[name] for name in names if name in documents])

    def closest(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """Known names that look most like this one, best first."""
        lowered = {known.lower(): known for known in self._tools}
        inside = [known for low, known in lowered.items() if name and (name.lower() in low or low in name.lower())]
        alike = [lowered[low] for low in difflib.get_close_matches(name.lower(), lowered, n=limit, cutoff=0.5)]
        return tuple(dict.fromkeys([*alike, *inside]))[:limit]


By = Literal["agent", "user", "upfront"]


@dataclass(frozen=True, slots=True)
class Skill:
    """A registered tool; `tokens` is what its document takes in the context."""

    name: str
    tokens: int
    by: By


@dataclass(frozen=True, slots=True)
class SkillLibrary:
    """Registered tools in the order of their registration; each name at most once."""

    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    """By their names."""

    def __contains__(self, name: object) -> bool:
        return name in self.skills

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.skills)

    @property
    def tokens(self) -> int:
        return sum(skill.tokens for skill in self.skills.values())

    def including(self, skills: Iterable[Skill]) -> "SkillLibrary":
        """The library with these added; those already in it stay as they are."""
        found = dict(self.skills)
        for skill in skills:
            found.setdefault(skill.name, skill)
        return SkillLibrary(found)

    def without(self, names: Container[str]) -> "SkillLibrary":
        """The library without these names."""
        return SkillLibrary({name: skill for name, skill in self.skills.items() if name not in names})
