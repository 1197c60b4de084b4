"""Known tools and skills by unique name, and those that are registered."""

import difflib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ecoshell.catalog.search import Ranker
from ecoshell.errors import UsageError
from ecoshell.messages import META_TOOLS, ToolSchema
from ecoshell.tools import Tool, ToolProvider

LISTED_SKILLS = 64
"""Skills up to which every question lists all names."""
SHORTLISTED_SKILLS = 40
"""Names that a question lists of more; with `tool_search` they take at most the tokens of `LISTED_SKILLS` names."""
_SKILLS_USE = "tool_register loads one before such a task"


@dataclass(frozen=True, slots=True, eq=False)
class Skill:
    """One skill; it has no schema and is never called."""

    name: str
    description: str
    body: str
    place: str
    """Its folder, as a tool can read it."""
    source: str
    """The file that defines it."""
    files: Callable[[], Sequence[str]]
    """Lists further files of the folder; may block."""

    @property
    def schema(self) -> ToolSchema:
        """Name and description, as for a tool without arguments."""
        return ToolSchema(self.name, self.description, {"type": "object", "properties": {}})

    def text(self) -> str:
        """What a model reads when it loads the skill; may block."""
        return self._text(", ".join(self.files()))

    @property
    def sketch(self) -> str:
        """The text without the names of further files, for an estimate of its size."""
        return self._text("")

    def _text(self, files: str) -> str:
        more = f" with {files}, which read_file reads" if files else ""
        return f"Instructions of the skill {self.name} (folder {self.place}{more}):\n\n{self.body}"


class Skills(Mapping[str, Skill]):
    """All known skills by name."""

    def __init__(self, skills: Iterable[Skill] = ()) -> None:
        self._skills = {skill.name: skill for skill in skills}
        self._ranker = Ranker([skill.schema for skill in self._skills.values()])

    def __getitem__(self, name: str) -> Skill:
        return self._skills[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._skills)

    def __len__(self) -> int:
        return len(self._skills)

    def search(self, query: str) -> list[str]:
        """Return the names of skills that fit a request, best first; may block."""
        return self._ranker.search(query) if self._skills else []

    def shortlist(self, question: str) -> tuple[str, ...]:
        """Return all names, or those that fit the question best if there are more than `LISTED_SKILLS`; may block."""
        return tuple(
            self if len(self) <= LISTED_SKILLS else self.search(question)[:SHORTLISTED_SKILLS]
        )


def listing(names: Sequence[str], descriptions: Mapping[str, str], *, total: int) -> str:
    """Return the line that lists the names, some with a description; empty without names.

    It says that `tool_search` finds others if there are more than `LISTED_SKILLS` in total.
    """
    entries = (
        f"{name} ({descriptions[name]})" if descriptions.get(name) else name for name in names
    )
    more = f"best fits of {total}, tool_search finds others; " if total > LISTED_SKILLS else ""
    return f"Skills (instructions; {more}{_SKILLS_USE}): {', '.join(entries)}" if names else ""


RegisteredBy = Literal["agent", "first_call", "user", "upfront"]


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A registered tool or skill; `tokens` is the size of its schema or text in the context."""

    name: str
    tokens: int
    by: RegisteredBy
    text: str = ""
    """The text of a skill; empty for a tool, whose schema the catalog has."""


@dataclass(frozen=True, slots=True)
class RegisteredTools:
    """Registered tools by name, in the order of registration."""

    tools: Mapping[str, RegisteredTool] = field(default_factory=dict[str, RegisteredTool])
    removed: frozenset[str] = frozenset()
    """Tools that the user unregistered and has not registered again; no turn loads them at its start."""

    def __contains__(self, name: object) -> bool:
        return name in self.tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tools)

    def including(self, tools: Iterable[RegisteredTool]) -> "RegisteredTools":
        """Return the tools with these added; existing entries are unchanged."""
        extended, by_user = dict(self.tools), set[str]()
        for tool in tools:
            extended.setdefault(tool.name, tool)
            by_user |= {tool.name} if tool.by == "user" else set()
        return RegisteredTools(extended, self.removed - by_user)

    def without(self, names: Container[str]) -> "RegisteredTools":
        """Return the tools without these names."""
        tools = {name: tool for name, tool in self.tools.items() if name not in names}
        return RegisteredTools(tools, self.removed)

    def removing(self, name: str) -> "RegisteredTools":
        """Return the tools after the user unregistered this one."""
        return replace(self.without((name,)), removed=self.removed | {name})


@dataclass(frozen=True, slots=True)
class CatalogChanges:
    """Changes of a catalog, by tool name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Catalog:
    """Tools by name; a name that several servers share is qualified with the server name.

    Provider tools come last and change only in `update`, so that they are constant during a turn.
    """

    def __init__(self, tools: Iterable[Tool], providers: Sequence[ToolProvider] = ()) -> None:
        self.providers = providers
        self.skills = Skills()
        """Loaded by name like tools, but never called; changes only between turns."""
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, ToolSchema] = {}
        own = [(tool, tool.schema) for tool in tools]
        uses = Counter([schema.name for _, schema in own])
        for tool, schema in own:
            name = schema.name
            if uses[name] > 1 and schema.server:
                name = f"{schema.server}.{name}"
            if name in self._tools or name in META_TOOLS:
                fix = "Give one of them another name."
                raise UsageError(f"Two tools are named {name}.", fix=fix)
            self._tools[name] = tool
            self._schemas[name] = replace(schema, name=name)
        self._own = frozenset(self._tools)
        self.update(())

    def include(self, tool: Tool) -> None:
        """Add a tool of the shell itself; only between turns."""
        name = tool.schema.name
        self._tools[name], self._schemas[name] = tool, tool.schema
        self._own |= {name}

    def exclude(self, name: str) -> None:
        """Remove a tool of the shell itself; only between turns."""
        del self._tools[name], self._schemas[name]
        self._own -= {name}

    @property
    def is_open(self) -> bool:
        """Whether providers may add or remove tools."""
        return bool(self.providers)

    def is_all(self, names: Iterable[str]) -> bool:
        """Return whether these are all tools and no provider can add any."""
        return not self.is_open and set(names).issuperset(self._tools)

    def update(self, frozen: Container[str]) -> CatalogChanges:
        """Update the provider tools, except those in `frozen`, whose schemas a model has seen.

        New tools with a name that is already used are ignored.
        """
        current = {
            tool.schema.name: tool
            for provider in reversed(self.providers)  # The first provider of a name wins.
            for tool in provider.tools
            if tool.schema.name not in self._own | META_TOOLS
        }
        provided = [name for name in self._tools if name not in self._own]
        removed = [name for name in provided if name not in current and name not in frozen]
        for name in removed:
            del self._tools[name], self._schemas[name]
        order = [tool.schema.name for provider in self.providers for tool in provider.tools]
        added = [
            name for name in dict.fromkeys(order) if name in current and name not in self._tools
        ]
        changed = [
            name
            for name, tool in current.items()
            if name in self._tools and name not in frozen and self._tools[name] is not tool
        ]
        for name in (*changed, *added):
            self._tools[name], self._schemas[name] = current[name], current[name].schema
        return CatalogChanges(tuple(added), tuple(changed), tuple(removed))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(self._schemas.values())

    @property
    def prices(self) -> dict[str, int]:
        """Price of one use in nano-dollars, by tool."""
        return {name: tool.price_nano for name, tool in self._tools.items()}

    @property
    def servers(self) -> dict[str, str]:
        """The server of each MCP tool."""
        return {name: schema.server for name, schema in self._schemas.items() if schema.server}

    def tool(self, name: str) -> Tool:
        """Return a tool; raises KeyError if it is unknown."""
        return self._tools[name]

    def schema(self, name: str) -> ToolSchema:
        """Return a tool's schema; raises KeyError if it is unknown."""
        return self._schemas[name]

    def schemas_of(self, names: Iterable[str]) -> tuple[ToolSchema, ...]:
        """Return the schemas of the known names, in this order."""
        schemas = self._schemas
        return tuple([schemas[name] for name in names if name in schemas])

    def closest(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """Return the most similar names, best first."""
        query = name.lower()
        lowered = {known.lower(): known for known in (*self._tools, *self.skills)}
        inside = [lowered[low] for low in lowered if name and (query in low or low in query)]
        similar = difflib.get_close_matches(query, lowered, n=limit, cutoff=0.5)
        return tuple(dict.fromkeys([*(lowered[low] for low in similar), *inside]))[:limit]
