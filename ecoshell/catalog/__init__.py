"""What is known: all tools by unique name, those of them that are registered, and what a model sees of them."""

import difflib
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ecoshell.errors import ToolError
from ecoshell.messages import FINISH, META_TOOLS, TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, ToolDocument
from ecoshell.tools import Tool, ToolProvider


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


PresentationName = Literal["grow", "stable", "direct", "plain", "text"]

_MOST_WORDS = 8
_MOST_CHARACTERS = 60
_SENTENCE_END = re.compile(r"[.;:!?](?:\s|$)|[。；：！？\n]")


def _meta_tool(name: str, description: str, types: Mapping[str, str], *, required: bool = True) -> ToolDocument:
    """A meta-tool's document; `types` gives each argument's JSON type."""
    parameters: dict[str, Any] = {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}
    if required:
        parameters["required"] = list(types)
    return ToolDocument(name, description, parameters)


REGISTER_DOCUMENT = _meta_tool(
    TOOL_REGISTER, "Register a tool by its name, so that it can be called.", {"tool_name": "string"}
)
CALL_DOCUMENT = _meta_tool(
    TOOL_CALL, "Call a registered tool as its document says.", {"name": "string", "arguments": "object"}
)
SEARCH_DOCUMENT = _meta_tool(TOOL_SEARCH, "Find names of further tools to register.", {"query": "string"})
FINISH_DOCUMENT = _meta_tool(
    FINISH,
    "End with the answer, or give up and say why in it.",
    {"answer": "string", "give_up": "boolean"},
    required=False,
)


@dataclass(frozen=True, slots=True)
class Presentation:
    """One way to put tools before a model."""

    name: PresentationName
    as_text: bool
    """Whether documents are text in the conversation; else the array holds them."""
    carried: bool = False
    """Whether tools are called through `tool_call`."""
    registers: bool = True
    """Whether there are tools known by name alone."""
    whole: bool = False
    """Whether everything is registered from the start: no names, no registering."""
    declared: frozenset[str] = frozenset()
    """Names of the tools whose documents stand in an array that never changes."""

    def array(
        self, registered: Sequence[ToolDocument], *, large: bool = False, finish: bool = True
    ) -> tuple[ToolDocument, ...]:
        """The tool array of a request; `large` and `finish` say that `tool_search` and `finish` are offered."""
        declared = [replace(document, brief=True) for document in registered if document.name in self.declared]
        meta = (
            (REGISTER_DOCUMENT, self.registers),
            (CALL_DOCUMENT, self.carried),
            (FINISH_DOCUMENT, finish),
            (SEARCH_DOCUMENT, large and not self.whole),
        )
        offered = [document for document, wanted in meta if wanted]
        return (*declared, *offered, *(() if self.as_text else registered))

    def registration_result(self, document: ToolDocument) -> str:
        """What the model reads when it has registered this tool."""
        return document.as_text() if self.as_text else "Registered."

    def shown(self, document: ToolDocument) -> str:
        """The document as it stands in the prompt, wherever that is: what it weighs."""
        if document.name in self.declared:
            return replace(document, brief=True).entry
        return document.as_text() if self.as_text else document.entry

    def opening(
        self,
        names: Sequence[str],
        upfront: Sequence[ToolDocument] = (),
        *,
        large: bool = False,
        about: Mapping[str, str] | None = None,
        servers: Mapping[str, str] | None = None,
    ) -> str:
        """The text that goes with the question: names to register, and documents where the array does not hold them.

        `about` has a few words for names that come with what they do, `servers` whose the tools are that servers have.
        """
        upfront = [document for document in upfront if document.name not in self.declared]
        parts: list[str] = []
        if not self.whole:
            known = {*self.declared, *(document.name for document in upfront)}
            parts.append(_listing([name for name in names if name not in known], large, about or {}, servers or {}))
        if self.as_text and upfront:
            documents = "\n".join(document.as_text() for document in upfront)
            parts.append(f"{'Tools' if self.whole else 'Registered already'}:\n{documents}")
        return "\n".join(filter(None, parts))


GROW = Presentation("grow", as_text=False)
STABLE = Presentation("stable", as_text=True, carried=True)
PLAIN = Presentation("plain", as_text=False, registers=False, whole=True)
TEXT = Presentation("text", as_text=True, carried=True, registers=False, whole=True)
PRESENTATIONS: Mapping[str, Presentation] = {one.name: one for one in (GROW, STABLE, PLAIN, TEXT)}


def presentation_of(name: str, declared: Iterable[str], *, registers: bool) -> Presentation | None:
    """The presentation of this name for a session that begins with `declared` tools; `registers` if there are others,
    or may be."""
    if name != "direct":
        return PRESENTATIONS.get(name)
    return Presentation("direct", as_text=True, registers=registers, declared=frozenset(declared))


def few_words(document: ToolDocument) -> str:
    """What the tool does in at most eight words: how its description begins."""
    begun = _SENTENCE_END.split(document.description.strip(), maxsplit=1)[0]
    words = " ".join(begun.split()[:_MOST_WORDS])
    return words[:_MOST_CHARACTERS].rstrip(" ,(-")


def by_server(names: Iterable[str], servers: Mapping[str, str]) -> dict[str, list[str]]:
    """The names under their servers, there without the server's; under "" those that no other of a server is beside."""
    groups: dict[str, list[str]] = {"": []}
    for name in names:
        server = servers.get(name, "")
        groups.setdefault(server if name.startswith(f"{server}.") else "", []).append(name)
    for server in [server for server, own in groups.items() if server and len(own) == 1]:
        groups[""] += groups.pop(server)
    return {server: [name[len(server) + 1 :] if server else name for name in own] for server, own in groups.items()}


def listed_parts(names: Iterable[str], servers: Mapping[str, str]) -> Iterator[str]:
    """What each name, and each server's heading, adds to a listing: what they weigh."""
    for server, own in by_server(names, servers).items():
        if server:
            yield f"\n{server}: "
        yield from (f", {name}" for name in own)


def _listing(names: Sequence[str], large: bool, about: Mapping[str, str], servers: Mapping[str, str]) -> str:
    """The names (EcoAct, "Tool name as informer")."""
    lines: list[str] = []
    for server, own in by_server(names, servers).items():
        full = (f"{server}.{name}" if server else name for name in own)
        told = (f"{name} ({about[one]})" if about.get(one) else name for name, one in zip(own, full, strict=True))
        lines.append(f"{server}: {', '.join(told)}" if server else ", ".join(told))
    if not any(lines):
        return ""
    head = "Tools to register (tool_search finds more)" if large else "Tools to register"
    if len(lines) == 1:
        return f"{head}: {lines[0]}"
    alone = [f"{head}: {lines[0]}", "Of servers, as server.tool:"] if lines[0] else [f"{head}, as server.tool:"]
    return "\n".join([*alone, *lines[1:]])
