"""What a server is, what is known of its tools without asking it, and how much of what it says of them is believed."""

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

_TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""What the protocol lets a tool be called."""
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_MOST_DESCRIPTION = 4_000
_MOST_SCHEMA = 20_000
"""Characters of a description, which is cut there, and of a schema's JSON; a tool with a longer one is left out."""
_LONGEST_URI = 2_000
_KEYRING = "ecoshell"
"""The service under which things stand in the keyring."""
_MOST_NODES, _DEEPEST = 500, 12
"""Parts of a schema; what lies beyond may be anything."""
_MOST_FILE = 16_000_000
"""Bytes of a cached list that is read."""
_NUMBER, _TEXT, _ANY = (int, float), (str,), (object,)
_PLAIN: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("description", "title", "format"), _TEXT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), (int,)),
    **dict.fromkeys(("default", "const"), _ANY),
    **dict.fromkeys(("enum", "examples"), (list,)),
}
"""Keywords of a schema that hold no schema and are kept as they are, and what they hold."""
_NAMED, _ONE, _SEVERAL = {"properties"}, {"items", "additionalProperties"}, {"anyOf", "oneOf", "allOf", "prefixItems"}
"""Keywords that hold schemas: by name, one, and a list of them."""
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


@dataclass(frozen=True, slots=True)
class Server:
    """A server as the settings have it: a command to start, or an address to connect to."""

    name: str
    command: tuple[str, ...] = ()
    """The program and its arguments; empty for one that is reached by its address."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """What its environment has besides the few variables that every server gets."""
    cwd: str = ""
    """The folder it runs in."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    trusted: bool = False
    """Whether what its tools say of themselves is believed: one that says that it only reads runs unasked."""
    seconds: float = 60.0
    """What one call may take."""
    sampling: bool = False
    """Whether it may have the session's model write for it unasked, within the caps."""
    workspace: str = ""
    """The folder it is told to keep to, as its root; empty for none."""
    oauth: Mapping[str, str] = field(default_factory=dict[str, str])
    """How it knows this client, where it has to be told: client_id, client_secret, method, scope, metadata_url."""

    @property
    def identity(self) -> str:
        """What tells it from another one of its name; without values that may be keys."""
        parts = (self.command, self.cwd, self.url, sorted(self.env), sorted(self.headers))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def may_sign_in(self) -> bool:
        """Whether a person may sign in to it: it has an address, and nothing that is sent along for that."""
        return bool(self.url) and "authorization" not in {name.lower() for name in self.headers}

    def client(self) -> Mapping[str, str]:
        """How it knows this client, with variables replaced; its secret is masked from now on. Raises ToolError."""
        known = _filled_table(self.oauth)
        add_secret(known.get("client_secret", ""))
        return known

    def told(self) -> dict[str, Any]:
        """What its helper is told, with `${NAME}` and `${NAME:-default}` replaced; keys in it are masked from now on.

        Raises ToolError for a variable that is not set.
        """
        named = [*self.env.items(), *self.headers.items(), *pairwise(self.command)]
        parted = [*self.command]
        with suppress(ValueError):  # it is no address
            address = urlsplit(self.url)
            named.append(("PASSWORD", address.password or ""))
            parted += address.query.split("&")
        named += ((text.partition("=")[0], text.partition("=")[2]) for text in parted)
        for name, value in named:
            if SECRET_NAME.search(name.lstrip("-").replace("-", "_")) or name.lower().endswith("authorization"):
                for key in (_filled(value), _filled(value).rpartition(" ")[2]):  # without `Bearer` and the like
                    if not key.startswith("--"):  # the next option
                        add_secret(key)
        if self.url:
            roots = [self.workspace] if self.workspace and self.trusted else []  # a path tells of this machine
            return {"url": _filled(self.url), "headers": _filled_table(self.headers), "roots": roots}
        started = {"command": [*map(_filled, self.command)], "env": _filled_table(self.env), "cwd": self.cwd or None}
        return {**started, "roots": [self.workspace] if self.workspace else []}


def _filled_table(table: Mapping[str, str]) -> dict[str, str]:
    return {name: _filled(value) for name, value in table.items()}


def _filled(text: str) -> str:
    """The text with the variables it names, as other clients write them."""

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        known = environ.get(name)
        if known is None and default is None:
            raise ToolError(f"its settings name the variable {name}, which is not set")
        return known if known is not None else default

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server lists it, by the server's own name for it."""

    name: str
    schema: ToolSchema
    read_only: bool
    """Whether the server says that it only reads: a hint, which is no better than the server."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question that a server has ready."""

    name: str
    description: str
    arguments: Mapping[str, bool]
    """The names of its arguments, and whether they are needed."""


def prompts_of(records: Any) -> tuple[Prompt, ...]:
    """The prompts of a list, those of odd names or arguments left out."""
    found: list[Prompt] = []
    for record in cast("list[Any]", records) if isinstance(records, list) else ():
        with suppress(ValueError, TypeError, KeyError):
            name, arguments = record["name"], {str(one): needed is True for one, needed in record["arguments"]}
            if isinstance(name, str) and _TOOL_NAME.fullmatch(name):
                found.append(Prompt(name, " ".join(str(record["description"]).split())[:_MOST_DESCRIPTION], arguments))
    return tuple(found)


def typable(records: Any) -> tuple[str, ...]:
    """The addresses of a list of resources, or the values of an argument, as far as they can be typed."""
    found = cast("list[Any]", records) if isinstance(records, list) else []
    return tuple(
        one
        for one in found
        if isinstance(one, str) and one.isprintable() and '"' not in one and len(one) < _LONGEST_URI
    )


def listed(server: str, records: Iterable[Any]) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
    """The tools of a list as a server, or a cached file, gives it; and in words what is left out of it."""
    found: dict[str, Listed] = {}
    left_out: list[str] = []
    for record in records:
        try:
            name, description = record["name"], " ".join(str(record["description"]).split())[:_MOST_DESCRIPTION]
            if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
                raise ValueError("this is no name for a tool")
            if record.get("task") is True:
                raise ValueError("it can be called as a task alone, which is not done here")
            parameters = plain_schema(record["parameters"])
            if len(json.dumps(parameters)) > _MOST_SCHEMA:
                raise ValueError("its schema is too long")
            schema = ToolSchema(f"{server}.{name}", description, parameters, server=server)
            tool = Listed(name, schema, record.get("read_only") is True)
        except (ValueError, TypeError, KeyError, RecursionError) as failure:
            name = cast("dict[str, Any]", record).get("name") if isinstance(record, dict) else record
            left_out.append(f"{str(name)[:60]!r}: {failure}")
            continue
        if tool.name in found:
            left_out.append(f"{tool.name!r}: it is listed twice")
        found.setdefault(tool.name, tool)
    return tuple(found.values()), tuple(left_out)


def plain_schema(schema: Any) -> dict[str, Any]:
    """As much of the schema of a tool's arguments as is safe to check calls against, and finite.

    References within it are resolved, what refers to itself is anything at some depth; patterns, which could take for
    ever, and addresses, which would be fetched, are left out. The server checks its arguments itself. Raises ValueError
    where it is no object's schema.
    """
    if not isinstance(schema, dict):
        raise ValueError("its schema is none")
    root = cast("dict[str, Any]", schema)
    if root.get("type", "object") != "object":
        raise ValueError("its schema is not that of an object")
    return {"type": "object", "properties": {}, **_Plain(root).of(root, 0)}


@dataclass(eq=False)
class _Plain:
    """Makes one schema plain; counts its nodes, and what it takes to look at them and to keep them."""

    _root: Mapping[str, Any]
    _nodes: int = 0
    _room: int = _MOST_SCHEMA

    def of(self, schema: Any, depth: int) -> Any:
        self._nodes += 1
        self._take(len(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else 1)
        if schema is False:  # true says no more than an empty schema
            return schema
        if not isinstance(schema, dict) or depth > _DEEPEST or self._nodes > _MOST_NODES:
            return {}
        known = cast("dict[str, Any]", schema)
        if "$ref" in known:
            target: Any = None  # nothing for a reference that leads elsewhere
            reference = known["$ref"]
            if isinstance(reference, str) and reference.startswith("#"):
                self._take(len(reference))
                target = self._root
                for part in reference[1:].split("/")[1:]:
                    target = cast("dict[str, Any]", target).get(part) if isinstance(target, dict) else None
            beside = {key: value for key, value in known.items() if key != "$ref"}
            known = {**(cast("dict[str, Any]", target) if isinstance(target, dict) else {}), **beside}
            self._take(len(known))
            if "$ref" in known:  # a reference to a reference, which may go round
                return self.of(known, depth + 1)
        values = ((key, self._value(key, value, depth + 1)) for key, value in known.items())
        return {key: value for key, value in values if value is not None}

    def _value(self, key: str, value: Any, depth: int) -> object:
        """What is kept of a keyword; None for nothing."""
        if key in _ONE:
            return self.of(value, depth)
        if key in _NAMED and isinstance(value, dict):
            self._take(sum(map(len, cast("dict[str, Any]", value))))
            return {str(name): self.of(one, depth) for name, one in cast("dict[str, Any]", value).items()}
        if key in _SEVERAL and isinstance(value, list) and value:
            return [self.of(one, depth) for one in cast("list[Any]", value)]
        if key in _PLAIN or key in ("type", "required"):
            self._take(len(json.dumps(value, allow_nan=False)))
        if key == "type":
            kinds = cast("list[Any]", value) if isinstance(value, list) else [value]
            return (
                cast("object", value)
                if kinds and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)
                else None
            )
        if key == "required" and isinstance(value, list):
            return [name for name in cast("list[Any]", value) if isinstance(name, str)]
        kept = key in _PLAIN and isinstance(value, _PLAIN[key]) and value != []
        return cast("object", value) if kept else None

    def _take(self, characters: int) -> None:
        """Count what is looked at or kept: references make much of little. Raises ValueError where it is too much."""
        self._room -= characters
        if self._room < 0:
            raise ValueError("its schema is too long")


class CachedLists:
    """What a server listed when it was last connected to, in a file of the user's; may block."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._file = folder / f"{server.name}.json"
        self._identity = server.identity

    def read(self) -> Mapping[str, Any] | None:
        """The lists; None where there are none, or those of another server of this name."""
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            if not is_special(self._file) and self._file.stat().st_size <= _MOST_FILE:
                held = json.loads(self._file.read_bytes())
                if held["server"] == self._identity and isinstance(held["tools"], list):
                    return cast("dict[str, Any]", held)
        return None

    def write(self, lists: Mapping[str, Any]) -> None:
        """Keep these; a disk that takes no more costs asking the server again."""
        with suppress(OSError):
            make_private(self._file.parent)
            with replacement(self._file) as fresh:
                fresh.write(json.dumps({**lists, "server": self._identity}).encode())

    def forget(self) -> None:
        """Know nothing of the server any more."""
        self._file.unlink(missing_ok=True)


class KeptSignIn:
    """What is kept of a person's signing in to a server, in the system's keyring; blocks."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self._name = f"mcp {server.name}"

    def read(self) -> Mapping[str, Any] | None:
        """What was kept; None where there is nothing, or no keyring. Its tokens are masked from now on."""
        with suppress(Exception):  # backends are third-party code found by entry points; a broken one is no keyring
            import keyring  # looks for backends, which is slow

            held = json.loads(keyring.get_password(_KEYRING, self._name) or "null")
            if isinstance(held, dict) and cast("dict[str, Any]", held)["url"] == self._url:
                return self._learned(cast("dict[str, Any]", held)["state"])
        return None

    def write(self, state: Mapping[str, Any]) -> str:
        """Keep this, or say why that cannot be: then it holds until the server is closed. Empty where it is kept."""
        self._learned(state)
        try:
            import keyring

            keyring.set_password(_KEYRING, self._name, json.dumps({"url": self._url, "state": state}))
        except Exception as failure:  # noqa: BLE001 - as above
            return " ".join(str(failure).split()) or type(failure).__name__
        return ""

    def forget(self) -> None:
        """Keep nothing."""
        with suppress(Exception):
            import keyring

            keyring.delete_password(_KEYRING, self._name)

    @staticmethod
    def _learned(state: Mapping[str, Any]) -> Mapping[str, Any]:
        secrets = [state.get("client", {}).get("client_secret")]
        secrets += [state.get("tokens", {}).get(name) for name in ("access_token", "refresh_token")]
        for secret in filter(None, secrets):
            add_secret(secret)
        return state
