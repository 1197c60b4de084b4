"""MCP servers: configuration, cached lists, stored sign-in, and the parsing of untrusted lists and schemas."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ecoshell.errors import ToolError
from ecoshell.messages import ToolSchema
from ecoshell.paths import is_special, make_private, replacement
from ecoshell.secrecy import SECRET_NAME, add_secret, environ

_TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")  # tool names that the protocol allows
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_MAX_DESCRIPTION = 4_000  # maximum characters of a description; longer ones are truncated
_MAX_SCHEMA = 20_000  # maximum characters of a schema; tools with longer ones are rejected
_MAX_UNFILTERED = 40_000  # the same for the schema as the server sends it
_MAX_URI = 2_000
_KEYRING = "ecoshell"  # service name in the system keyring
_MAX_NODES, _MAX_DEPTH = 500, 12  # deeper or further parts accept any value
_MAX_FILE_BYTES = 16_000_000
_NUMBER, _TEXT, _ANY = (int, float), (str,), (object,)
_VALUE_KEYWORDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("description", "title", "format"), _TEXT),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER
    ),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), (int,)),
    **dict.fromkeys(("default", "const"), _ANY),
    **dict.fromkeys(("enum", "examples"), (list,)),
}
"""Allowed keywords without subschemas, and the types of their values."""
_SUBSCHEMA_BY_NAME = {"properties"}
_SUBSCHEMA = {"items", "additionalProperties"}
_SUBSCHEMA_LIST = {"anyOf", "oneOf", "allOf", "prefixItems"}
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


@dataclass(frozen=True, slots=True)
class Server:
    """A configured server: a command to start, or a URL to connect to."""

    name: str
    command: tuple[str, ...] = ()  # the program and its arguments; empty with a URL
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # added to the usual few
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    trusted: bool = False  # whether tools that claim to be read-only run without approval
    seconds: float = 60.0  # time limit of a call
    sampling: bool = False  # whether it may use the session's model without approval
    workspace: str = ""  # the folder sent as its root; empty for none
    oauth: Mapping[str, str] = field(default_factory=dict[str, str])  # client registration

    @property
    def identity(self) -> str:
        """A hash that distinguishes servers with the same name; excludes values that may be keys."""
        parts = (self.command, self.cwd, self.url, sorted(self.env), sorted(self.headers))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def may_sign_in(self) -> bool:
        """Whether the user may sign in: it has a URL and no Authorization header."""
        return bool(self.url) and "authorization" not in {name.lower() for name in self.headers}

    def oauth_client(self) -> Mapping[str, str]:
        """Return `oauth` with expanded variables, and register its secret for masking. Raises ToolError."""
        client = _expand_all(self.oauth)
        add_secret(client.get("client_secret", ""))
        return client

    def helper_input(self) -> dict[str, Any]:
        """Return the first line for its helper, with variables expanded, and register keys in it for masking.

        Expands `${NAME}` and `${NAME:-default}`. Raises ToolError for a variable that is not set.
        """
        pairs = [*self.env.items(), *self.headers.items(), *pairwise(self.command)]
        assignments = [*self.command]
        with suppress(ValueError):  # not a valid URL
            url = urlsplit(self.url)
            pairs.append(("PASSWORD", url.password or ""))
            assignments += url.query.split("&")
        pairs += ((text.partition("=")[0], text.partition("=")[2]) for text in assignments)
        for name, value in pairs:
            is_secret = SECRET_NAME.search(name.lstrip("-").replace("-", "_"))
            if is_secret or name.lower().endswith("authorization"):
                text = _expand(value)
                for key in (text, text.rpartition(" ")[2]):  # also without `Bearer`
                    if not key.startswith("--"):  # the next option
                        add_secret(key)
        if self.url:
            # A path reveals the user's name.
            roots = [self.workspace] if self.workspace and self.trusted else []
            return {"url": _expand(self.url), "headers": _expand_all(self.headers), "roots": roots}
        return {
            "command": [*map(_expand, self.command)],
            "env": _expand_all(self.env),
            "cwd": self.cwd or None,
            "roots": [self.workspace] if self.workspace else [],
        }


def _expand_all(table: Mapping[str, str]) -> dict[str, str]:
    return {name: _expand(value) for name, value in table.items()}


def _expand(text: str) -> str:
    """Expand variables in the syntax that other clients use."""

    def value(match: re.Match[str]) -> str:
        name: str = match[1]
        text = environ.get(name, cast("str | None", match[2]))
        if text is None:
            raise ToolError(f"its settings use the variable {name}, which is not set")
        return text

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool in a server's list, under the server's own name for it."""

    name: str
    schema: ToolSchema
    read_only: bool  # whether the server claims that the tool only reads


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that a server offers."""

    name: str
    description: str
    arguments: Mapping[str, bool]  # names of arguments, and whether they are required


def parse_prompts(records: Any) -> tuple[Prompt, ...]:
    """Return the valid prompts of a list."""
    prompts: list[Prompt] = []
    for record in cast("list[Any]", records) if isinstance(records, list) else ():
        with suppress(ValueError, TypeError, KeyError):
            name, pairs = record["name"], record["arguments"]
            arguments = {str(key): required is True for key, required in pairs}
            if isinstance(name, str) and _TOOL_NAME.fullmatch(name):
                prompts.append(Prompt(name, _description(record), arguments))
    return tuple(prompts)


def _description(record: Any) -> str:
    return " ".join(str(record["description"]).split())[:_MAX_DESCRIPTION]


def typable(records: Any) -> tuple[str, ...]:
    """Return the strings of a list that a user can type, such as resource URIs and argument values."""
    texts = cast("list[Any]", records) if isinstance(records, list) else []
    return tuple(text for text in texts if isinstance(text, str) and _is_typable(text))


def _is_typable(text: str) -> bool:
    return text.isprintable() and '"' not in text and len(text) < _MAX_URI


def parse_tools(
    server: str, records: Iterable[Any]
) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """Return the valid tools of a list of a server or the cache, and a message for each rejected entry."""
    tools: dict[str, ListedTool] = {}
    rejected: list[str] = []
    for record in records:
        try:
            tool = _parse_tool(server, record)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            is_record = isinstance(record, dict)
            name = cast("dict[str, Any]", record).get("name") if is_record else record
            rejected.append(f"{str(name)[:60]!r}: {error}")
            continue
        if tool.name in tools:
            rejected.append(f"{tool.name!r}: it is listed twice")
        tools.setdefault(tool.name, tool)
    return tuple(tools.values()), tuple(rejected)


def _parse_tool(server: str, record: Any) -> ListedTool:
    name, description = record["name"], _description(record)
    if fault := record.get("fault"):
        raise ValueError(fault)
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise ValueError("the name is not valid for a tool")
    if record.get("task") is True:
        raise ValueError("it requires the protocol's tasks, which are not supported")
    parameters = safe_schema(record["parameters"])
    if len(json.dumps(parameters)) > _MAX_SCHEMA:
        raise ValueError(_LONG_SCHEMA)
    schema = ToolSchema(f"{server}.{name}", description, parameters, server=server)
    return ListedTool(name, schema, record.get("read_only") is True)


_LONG_SCHEMA = "its schema is too long"


def safe_schema(schema: Any) -> dict[str, Any]:
    """Return the part of an argument schema that calls can be checked against safely.

    Resolves internal references; recursion ends at a maximum depth, where any value is accepted. Removes patterns,
    which could match without end, and remote references, which would be fetched; the server still checks its arguments.
    Raises ValueError if it is not an object schema.
    """
    if not isinstance(schema, dict):
        raise ValueError("its schema is not a JSON object")
    root = cast("dict[str, Any]", schema)
    if len(json.dumps(root, allow_nan=False)) > _MAX_UNFILTERED:
        raise ValueError(_LONG_SCHEMA)
    if root.get("type", "object") != "object":
        raise ValueError("its schema does not describe an object")
    return {"type": "object", "properties": {}, **_SchemaFilter(root).filter(root, 0)}


@dataclass(eq=False)
class _SchemaFilter:
    """Filters one schema within a limit of nodes, because references can expand exponentially."""

    _root: Mapping[str, Any]
    _nodes: int = 0

    def filter(self, schema: Any, depth: int) -> Any:
        self._nodes += 1
        if schema is False:
            return schema
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            return {}
        keywords = cast("dict[str, Any]", schema)
        if "$ref" in keywords:
            siblings = {key: value for key, value in keywords.items() if key != "$ref"}
            keywords = {**self._target(keywords["$ref"]), **siblings}
            if "$ref" in keywords:  # a chain of references, which may be circular
                return self.filter(keywords, depth + 1)
        values = ((key, self._value(key, value, depth + 1)) for key, value in keywords.items())
        return {key: value for key, value in values if value is not None}

    def _target(self, reference: Any) -> dict[str, Any]:
        """Return the target of a reference; empty if it does not exist in this schema."""
        target: Any = None
        if isinstance(reference, str) and reference.startswith("#"):
            target = self._root
            for part in reference[1:].split("/")[1:]:
                inner = cast("dict[str, Any]", target) if isinstance(target, dict) else {}
                target = inner.get(part)
        return cast("dict[str, Any]", target) if isinstance(target, dict) else {}

    def _value(self, key: str, value: Any, depth: int) -> object:
        """Return the filtered value of a keyword; None removes the keyword."""
        if key in _SUBSCHEMA:
            return self.filter(value, depth)
        if key in _SUBSCHEMA_BY_NAME and isinstance(value, dict):
            schemas = cast("dict[str, Any]", value)
            return {name: self.filter(inner, depth) for name, inner in schemas.items()}
        if key in _SUBSCHEMA_LIST and isinstance(value, list) and value:
            return [self.filter(inner, depth) for inner in cast("list[Any]", value)]
        if key == "type":
            names = cast("list[Any]", value) if isinstance(value, list) else [value]
            is_known = all(isinstance(name, str) and name in _TYPES for name in names)
            return cast("object", value) if names and is_known else None
        if key == "required" and isinstance(value, list):
            return [name for name in cast("list[Any]", value) if isinstance(name, str)]
        types = _VALUE_KEYWORDS.get(key, ())
        is_valid = isinstance(value, types) and value != []
        return cast("object", value) if is_valid else None


class CachedLists:
    """The lists of a server's last connection, in a file; may block."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._file = folder / f"{server.name}.json"
        self._identity = server.identity

    def read(self) -> Mapping[str, Any] | None:
        """Return the lists; None without a file, or if they belong to another server of the same name."""
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            if not is_special(self._file) and self._file.stat().st_size <= _MAX_FILE_BYTES:
                lists = json.loads(self._file.read_bytes())
                if lists["server"] == self._identity and isinstance(lists["tools"], list):
                    return cast("dict[str, Any]", lists)
        return None

    def write(self, lists: Mapping[str, Any]) -> None:
        """Save the lists; does nothing if the disk is not writable."""
        with suppress(OSError):
            make_private(self._file.parent)
            with replacement(self._file) as file:
                file.write(json.dumps({**lists, "server": self._identity}).encode())

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


class StoredSignIn:
    """The user's sign-in to a server, in the system keyring; blocks."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self._name = f"mcp {server.name}"

    def read(self) -> Mapping[str, Any] | None:
        """Return the stored state and register its tokens for masking; None without one or without a keyring."""
        # Backends are third-party code; a broken one counts as no keyring.
        with suppress(Exception):
            import keyring  # slow, because it searches for backends

            entry = json.loads(keyring.get_password(_KEYRING, self._name) or "null")
            if isinstance(entry, dict) and cast("dict[str, Any]", entry)["url"] == self._url:
                return self._mask(cast("dict[str, Any]", entry)["state"])
        return None

    def write(self, state: Mapping[str, Any]) -> str:
        """Store the state; returns the reason if that fails, so that it is lost when the server is closed."""
        self._mask(state)
        try:
            import keyring

            entry = json.dumps({"url": self._url, "state": state})
            keyring.set_password(_KEYRING, self._name, entry)
        except Exception as error:  # noqa: BLE001 - as above
            return " ".join(str(error).split()) or type(error).__name__
        return ""

    def forget(self) -> None:
        with suppress(Exception):
            import keyring

            keyring.delete_password(_KEYRING, self._name)

    @staticmethod
    def _mask(state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Register the secrets of a state for masking, and return the state."""
        secrets = [state.get("client", {}).get("client_secret")]
        secrets += [state.get("tokens", {}).get(name) for name in ("access_token", "refresh_token")]
        for secret in filter(None, secrets):
            add_secret(secret)
        return state
