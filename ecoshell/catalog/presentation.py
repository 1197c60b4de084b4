"""How tools are presented to a model: the tool array, and the listing of names before a question."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ecoshell.messages import FINISH, TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, ToolSchema

PresentationName = Literal["grow", "deferred", "stable", "direct", "plain", "text"]
CORE = ("list_files", "read_file", "search_text", "edit_file", "write_file", "run_command")
"""The core set: tools that are always loaded, in the order of the tool array (SPEC §1)."""
LOCAL_ARRAY = (
    *(
        "list_files",
        "read_file",
        "search_text",
        "count_text",
        "write_file",
        "edit_file",
        "run_command",
        "run_python",
    ),
    *("calculate", "current_time", "convert_units", "fetch_url", "json_query"),
)
"""Tools whose short schemas a local model reads in every session, so that its prompt begins with the same tokens."""
_LOCAL_PLACES = {name: place for place, name in enumerate(LOCAL_ARRAY)}

_MAX_WORDS = 8
_MAX_CHARACTERS = 60
_DANGLING = re.compile(
    r"(?:[^\w)]+(?:a|an|the|of|to|in|on|at|by|for|from|with|about|and|or|that|those|which|returns|show|since|has))+"
    r"\W*$"
)
"""Words that need a further one, at the end of a cut sentence."""
_UNCLOSED = re.compile(r"\s*\([^)]*$")
_SENTENCE_END = re.compile(r"[.;:!?](?:\s|$)|[。；：！？\n]")


def _meta_tool(
    name: str, description: str, types: Mapping[str, str], *, required: bool = True
) -> ToolSchema:
    """Return a meta-tool's schema; `types` maps arguments to JSON types."""
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(types)
    return ToolSchema(name, description, parameters)


REGISTER_SCHEMA = _meta_tool(
    TOOL_REGISTER, "Register a tool by its name, so that it can be called.", {"tool_name": "string"}
)
CALL_SCHEMA = _meta_tool(
    TOOL_CALL,
    "Call a registered tool as its document says.",
    {"name": "string", "arguments": "object"},
)
SEARCH_SCHEMA = _meta_tool(
    TOOL_SEARCH, "Find names of further tools and skills to register.", {"query": "string"}
)
FINISH_SCHEMA = _meta_tool(
    FINISH,
    "End with the answer, or give up and say why in it.",
    {"answer": "string", "give_up": "boolean"},
    required=False,
)


@dataclass(frozen=True, slots=True)
class Presentation:
    """A way to present tools to a model.

    - `as_text`: schemas are text in the conversation, not in the tool array.
    - `uses_tool_call`: tools are called through `tool_call`.
    - `registers`: some tools are known by name only.
    - `shows_all`: every tool is registered from the start.
    - `deferred`: the provider's own search loads tools that are known by name.
    - `declared`: tools whose short schemas form an array that never changes, loaded or not.
    """

    name: PresentationName
    as_text: bool
    uses_tool_call: bool = False
    registers: bool = True
    shows_all: bool = False
    deferred: bool = False
    declared: frozenset[str] = frozenset()

    @property
    def by_call(self) -> bool:
        """Whether a grammar lets the model call every tool it knows by name, so that none is registered first."""
        return self.name == "direct" and not self.registers

    def array(
        self,
        registered: Sequence[ToolSchema],
        *,
        deferrable: Sequence[ToolSchema] = (),
        large: bool = False,
        finish: bool = True,
        skills: bool = False,
    ) -> tuple[ToolSchema, ...]:
        """Return the tool array of a request.

        `large`, `finish` and `skills` add the tools `tool_search`, `finish` and `tool_register`.
        `deferrable` are all tools of a deferring presentation, where loading one does not change
        its position, and of one that declares tools.
        """
        declared = [
            replace(tool, brief=True)
            for tool in deferrable or registered
            if tool.name in self.declared
        ]
        declared.sort(key=lambda tool: _LOCAL_PLACES.get(tool.name, len(_LOCAL_PLACES)))
        meta = (
            (REGISTER_SCHEMA, self.registers or skills),
            (CALL_SCHEMA, self.uses_tool_call),
            (FINISH_SCHEMA, finish),
            (SEARCH_SCHEMA, large and not self.shows_all and not self.deferred),
        )
        offered = [schema for schema, is_offered in meta if is_offered]
        if self.as_text:
            return (*declared, *offered)
        if self.shows_all:
            return (*declared, *offered, *registered)
        if self.deferred and deferrable:
            loaded = {schema.name for schema in registered}
            registered = [
                schema if schema.name in loaded else replace(schema, deferred=True)
                for schema in deferrable
            ]
        # Schemas common to all sessions come first, so that sessions share the prompt cache.
        core = [schema for schema in registered if schema.name in CORE]
        core.sort(key=lambda schema: CORE.index(schema.name))
        appended = (schema for schema in registered if schema.name not in CORE)
        return (*declared, *core, *offered, *appended)

    def registration_result(self, schema: ToolSchema) -> str:
        """Return the result of registering this tool."""
        return schema.as_text() if self.as_text else "Registered."

    def prompt_texts(self, schemas: Iterable[ToolSchema]) -> list[str]:
        """Return schemas as they appear in the prompt, for counting their tokens."""
        return [
            replace(schema, brief=True).entry
            if schema.name in self.declared
            else schema.as_text()
            if self.as_text
            else schema.entry
            for schema in schemas
        ]

    def opening(
        self,
        names: Sequence[str],
        loaded: Sequence[ToolSchema] = (),
        *,
        large: bool = False,
        descriptions: Mapping[str, str] | None = None,
        servers: Mapping[str, str] | None = None,
    ) -> str:
        """Return the text before a question: names to register, and schemas outside the tool array.

        `descriptions` are short, and `servers` are the servers of MCP tools, both by tool name.
        """
        loaded = [schema for schema in loaded if schema.name not in self.declared]
        parts: list[str] = []
        if not self.shows_all:  # the names (EcoAct, "Tool name as informer")
            hidden = {*self.declared, *(schema.name for schema in loaded)}
            listed = [name for name in names if name not in hidden]
            parts += self._listing(listed, descriptions or {}, servers or {}, large=large)
        if self.as_text and loaded:
            head = "Tools" if self.shows_all else "Registered already"
            parts.append("\n".join([f"{head}:", *(schema.as_text() for schema in loaded)]))
        return "\n".join(filter(None, parts))

    def _listing(
        self,
        names: Sequence[str],
        descriptions: Mapping[str, str],
        servers: Mapping[str, str],
        *,
        large: bool,
    ) -> list[str]:
        """Return the lines that list the names; tools of a server share a line."""
        lines: list[str] = []
        for server, short_names in by_server(names, servers).items():
            entries: list[str] = []
            for short_name in short_names:
                description = descriptions.get(f"{server}.{short_name}" if server else short_name)
                entries.append(f"{short_name} ({description})" if description else short_name)
            lines.append(f"{server}: {', '.join(entries)}" if server else ", ".join(entries))
        head = "Tools to register (tool_search finds more)" if large else "Tools to register"
        if self.by_call:
            head = "More tools"
        if self.deferred:
            head = "More tools, to be loaded with the tool search"
        without_server, *of_servers = lines
        parts = [f"{head}: {without_server}"] if without_server else []
        if of_servers:
            parts.append("Of servers, as server.tool:" if parts else f"{head}, as server.tool:")
        return parts + of_servers


GROW = Presentation("grow", as_text=False)
DEFERRED = Presentation("deferred", as_text=False, registers=False, deferred=True)
STABLE = Presentation("stable", as_text=True, uses_tool_call=True)
PLAIN = Presentation("plain", as_text=False, registers=False, shows_all=True)
TEXT = Presentation("text", as_text=True, uses_tool_call=True, registers=False, shows_all=True)
_PRESENTATIONS: Mapping[str, Presentation] = {
    presentation.name: presentation for presentation in (GROW, DEFERRED, STABLE, PLAIN, TEXT)
}


def presentation_of(name: str, declared: Iterable[str], *, registers: bool) -> Presentation | None:
    """Return the presentation with this name, None if it is unknown.

    `declared` and `registers` apply to the presentation "direct", which belongs to one session.
    """
    if name != "direct":
        return _PRESENTATIONS.get(name)
    return Presentation("direct", as_text=True, registers=registers, declared=frozenset(declared))


def few_words(schema: ToolSchema) -> str:
    """Return the beginning of a tool's description, at most eight words, without a dangling or unclosed end."""
    sentence = _SENTENCE_END.split(schema.description.strip(), maxsplit=1)[0]
    words = sentence.split()
    beginning = " ".join(words[:_MAX_WORDS])
    if len(words) > _MAX_WORDS or len(beginning) > _MAX_CHARACTERS:
        beginning = _DANGLING.sub("", _UNCLOSED.sub("", beginning[:_MAX_CHARACTERS]))
    return beginning.rstrip(" ,(-")


def by_server(names: Iterable[str], servers: Mapping[str, str]) -> dict[str, list[str]]:
    """Group names by server, without the prefix.

    Names without a server, or alone on theirs, are in the group "".
    """
    groups: dict[str, list[str]] = {"": []}
    for name in names:
        server = servers.get(name, "")
        groups.setdefault(server if name.startswith(f"{server}.") else "", []).append(name)
    for server in [server for server, group in groups.items() if server and len(group) == 1]:
        groups[""] += groups.pop(server)
    return {
        server: [name[len(server) + 1 :] if server else name for name in group]
        for server, group in groups.items()
    }


def listing_text(names: Iterable[str], servers: Mapping[str, str]) -> str:
    """Return a listing of names without its headings, for counting its tokens."""
    lines = [
        f"\n{server}: {', '.join(short_names)}" if server else ", ".join(short_names)
        for server, short_names in by_server(names, servers).items()
    ]
    return "".join(lines)
