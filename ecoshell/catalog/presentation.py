"""What a model sees of the tools: the array of a request, the text beside the question, and what registering returns.

Five ways (SPEC §1):

- `GROW`, EcoAct as published: the array grows with every registration, which returns a short acknowledgment.
- `STABLE`: the array stays byte for byte the same for a session, so that a cached prefix stays valid; documents are
  text, and calls go through `tool_call`.
- `direct`, for models that may call what their array does not hold, as local ones: the array keeps what was registered
  when the session began, later documents are text, and every tool is called by its own name.
- `PLAIN`, the agent without EcoAct: every document is in the array from the start, and there is nothing to register.
- `TEXT`, the same in the compact form of `STABLE`: every document is text beside the question.

A document stands in the context once: in the array or in the text, never in both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ecoshell.messages import FINISH, TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, ToolDocument

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
