"""`ecoshell mcp`: list, add, import, test and remove MCP servers."""

import argparse
import asyncio
import json
import re
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ecoshell.assembly import load_settings, server_of
from ecoshell.budget import counted
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import Parser, add_actions
from ecoshell.errors import ToolError, UsageError
from ecoshell.messages import visible_line
from ecoshell.paths import expanded, user_paths
from ecoshell.secrecy import mask_secrets, protect_secrets
from ecoshell.settings import problem
from ecoshell.settings.edit import REMOVED, write_settings
from ecoshell.tools import Caller, ResultSize, caller
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.workspace import workspace_folder

if TYPE_CHECKING:
    from ecoshell.settings.schema import Settings

_SERVERS = ("mcp", "servers")
_CLIENT_VARIABLE = re.compile(r"\$\{env:(\w+)\}")
"""How some other clients write `${NAME}`."""
_MAX_NAME_LENGTH = 40

Entry = dict[str, Any]
"""The settings of one server, by key."""


class _CommandAfterDashes(Parser):
    """Parses the arguments before `--`; those after it are another program's command line, `words`."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - as in the base class
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        arguments = [*(args or ())]
        end = arguments.index("--") if "--" in arguments else len(arguments)
        parsed, unknown = super().parse_known_args(arguments[:end], namespace)
        parsed.words = arguments[end + 1 :]
        return parsed, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    add = add_actions(parser, "list", _CommandAfterDashes)
    add("list", "list the servers and the number of their tools (default)")
    new = add("add", "add a server to the settings, and test it")
    new.usage = (
        "ecoshell mcp add NAME [OPTIONS] -- COMMAND ARGUMENTS\n"
        "       ecoshell mcp add NAME [OPTIONS] --url ADDRESS"
    )
    new.add_argument("name", help="prefix of its tools: NAME.tool")
    new.add_argument("--url", default="", metavar="ADDRESS", help="address of a running server")
    for option, form, noun in (
        ("--env", "NAME=VALUE", "variable"),
        ("--header", "'NAME: VALUE'", "header"),
    ):
        text = f"a {noun}; repeatable"
        new.add_argument(option, action="append", default=[], metavar=form, help=text)
    new.add_argument("--trust", action="store_true", help="believe its tools' annotations")
    new.add_argument("--no-test", action="store_true", help="do not connect to it now")
    imported = add("import", "import the servers from another client's file")
    imported.add_argument("file", help="such as .mcp.json, or - for standard input")
    for action in (new, imported):
        replace = "replace servers of the same name"
        action.add_argument("--replace", action="store_true", help=replace)
    for name, text in (
        ("test", "connect to a server and show its tools"),
        ("login", "sign in to a server (OAuth); the keyring stores the tokens"),
        ("remove", "remove a server from the settings"),
    ):
        add(name, text).add_argument("name", help="the server")


def run(args: argparse.Namespace) -> int:
    """Run one action; raises UsageError, SettingsError and StoreError."""
    match args.action:
        case "add":
            return _add(args)
        case "import":
            return _import(args.file, replace=args.replace, as_json=args.json)
        case "test":
            return _test(_find(load_settings(user_paths()), args.name), as_json=args.json)
        case "login":
            provider = _find(load_settings(user_paths()), args.name)
            if not provider.server.may_sign_in:
                fix = "Only servers with a url and without an Authorization header do."
                raise UsageError(f"{args.name} does not use a login.", fix=fix)
            return _test(provider, sign_in=True, as_json=args.json)
        case "remove":
            provider = _find(load_settings(user_paths()), args.name)
            write_settings(user_paths().settings_file, {(*_SERVERS, args.name): REMOVED})
            provider.forget()
            print_json({"removed": args.name}) if args.json else print(f"{args.name} was removed.")
            return 0
        case _:
            return _list(as_json=args.json)


def _list(*, as_json: bool) -> int:
    settings = load_settings(user_paths())
    servers = [(server, _provider(settings, name)) for name, server in settings.mcp.servers.items()]
    if as_json:
        records: list[dict[str, Any]] = [
            {
                "name": provider.name,
                "command": [server.command, *server.args] if server.command else None,
                "url": server.url,
                "env": sorted(server.env),
                "headers": sorted(server.headers),
                "trusted": server.trusted,
                "enabled": server.enabled,
                "tools": [tool.listed.name for tool in provider.tools] if provider.known else None,
            }
            for server, provider in servers
        ]
        print_json({"rows": records})
        return 0
    if not servers:
        print("No servers. `ecoshell mcp add NAME -- COMMAND …` adds one; see docs/tools.md.")
        return 0
    cells: list[Sequence[str]] = []
    for server, provider in servers:
        connection = server.url or " ".join((server.command or "", *server.args))
        count = f"{len(provider.tools)}" if provider.known else "?"
        state = ("trusted" if server.trusted else "", "" if server.enabled else "disabled")
        cells.append((provider.name, connection, count, *state))
    print_table(("server", "connection", "tools", "", ""), cells)
    return 0


def _add(args: argparse.Namespace) -> int:
    if bool(args.url) == bool(args.words):
        fix = "Use ecoshell mcp add NAME -- COMMAND ARGUMENTS, or ecoshell mcp add NAME --url ADDRESS."
        raise UsageError("A server needs either a command or --url.", fix=fix)
    if args.name in load_settings(user_paths()).mcp.servers and not args.replace:
        raise UsageError(f"The server {args.name} already exists.", fix="--replace replaces it.")
    entry: Entry = {"url": args.url}
    if args.words:
        entry = {"command": args.words[0], "args": args.words[1:]}
    entry["env"] = _pairs(args.env, "=", "--env NAME=VALUE")
    entry["headers"] = _pairs(args.header, ":", "--header 'NAME: VALUE'")
    if args.trust:
        entry["trusted"] = True
    _write({args.name: entry})
    file = user_paths().settings_file
    print(f"{args.name} was added to {file}.", file=sys.stderr if args.json else sys.stdout)
    if not args.no_test:
        _test(_find(load_settings(user_paths()), args.name), as_json=args.json)
    elif args.json:
        print_json({"added": args.name})
    return 0


def _pairs(texts: Sequence[str], separator: str, form: str) -> dict[str, str]:
    pairs = [text.partition(separator) for text in texts]
    invalid = next((pair for pair in pairs if not pair[1] or not pair[0].strip()), None)
    if invalid is not None:
        raise UsageError(f"{''.join(invalid)!r} cannot be read.", fix=f"Use {form}.")
    return {name.strip(): value.strip() if separator == ":" else value for name, _, value in pairs}


def _import(file: str, *, replace: bool, as_json: bool) -> int:
    """Import the servers of another client's file; report those that cannot be imported."""
    existing = frozenset[str]() if replace else load_settings(user_paths()).mcp.servers.keys()
    entries: dict[str, Entry] = {}
    skipped: dict[str, str] = {}
    for original_name, server in _read_servers(file).items():
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", original_name).strip("-")[:_MAX_NAME_LENGTH]
        name = name or "server"
        if name in entries:
            skipped[original_name] = f"another server of the file is also named {name}"
        elif name in existing:
            skipped[original_name] = f"the server {name} already exists (--replace replaces it)"
        else:
            try:
                entries[name] = _converted(server)
            except ValueError as error:
                skipped[original_name] = str(error)
    if entries:
        _write(entries)
    if as_json:
        print_json({"imported": [*entries], "left_out": skipped})
        return 0
    for name in entries:
        print(f"{name} was imported; `ecoshell mcp test {name}` connects to it.")
    for name, reason in skipped.items():
        print(f"{visible_line(name)} was skipped: {visible_line(reason)}.", file=sys.stderr)
    return 0


def _read_servers(file: str) -> Entry:
    """Read the table of servers; raises UsageError."""
    try:
        text = sys.stdin.read() if file == "-" else expanded(file).read_text(encoding="utf-8")
        content: Any = json.loads(text.encode())  # of bytes, json skips a byte order mark
    except (OSError, ValueError, RecursionError) as error:
        fix = "Give a JSON file, such as .mcp.json."
        raise UsageError(f"{file} cannot be read: {error}", fix=fix) from error
    tables = cast("Entry", content) if isinstance(content, dict) else {}
    for key in ("mcpServers", "servers"):
        if isinstance(tables.get(key), dict):
            return tables[key]
    fix = "Give another client's file, such as .mcp.json."
    raise UsageError(f"{file} has no table mcpServers.", fix=fix)


def _converted(server: Any) -> Entry:
    """Convert another client's server; raises ValueError if that is impossible."""
    from ecoshell.settings.convert import InvalidTable, to_settings
    from ecoshell.settings.schema import McpServerSettings

    if not isinstance(server, dict):
        raise ValueError("it is not a table")
    fields = cast("Entry", server)
    address = fields.get("url") or fields.get("serverUrl") or fields.get("httpUrl")
    if fields.get("type") == "sse" or fields.get("transport") == "sse":
        raise ValueError("it uses SSE, which the protocol has dropped; it may have a newer address")
    if bool(address) == bool(fields.get("command")):
        raise ValueError("it needs a command or an address, not both")
    entry: Entry = {"url": address}
    if not address:
        entry = {"command": fields["command"], "args": fields.get("args") or []}
    entry |= {key: fields[key] for key in ("env", "headers", "cwd") if fields.get(key)}
    if fields.get("disabled") is True:
        entry["enabled"] = False
    for key, value in entry.items():  # other clients accept numbers and booleans for texts
        if key in ("env", "headers") and isinstance(value, dict):
            entry[key] = {name: _as_text(item) for name, item in cast("Entry", value).items()}
        elif isinstance(value, list):
            entry[key] = [*map(_as_text, cast("list[Any]", value))]
    text = _CLIENT_VARIABLE.sub(r"${\1}", json.dumps(entry))
    if "${input:" in text:
        raise ValueError("it asks the user for ${input:…}; use a variable ${NAME} instead")
    converted: Entry = json.loads(text)
    try:
        to_settings(McpServerSettings, converted)
    except InvalidTable as error:
        raise ValueError(problem(error.problems[0], "its settings").message) from error
    return converted


def _as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (int, float)) else value


class SignInCaller(Caller):
    """Shows the sign-in address and opens it in the browser; declines every other request of the server."""

    async def visit(self, server: str, message: str, address: str) -> bool:
        if not address.startswith(("https://", "http://")):  # other schemes start programs
            return False
        text = f"To sign in to {server}, open this address:\n{visible_line(address)}"
        print(text, file=sys.stderr)
        await asyncio.to_thread(webbrowser.open, address)
        return True


def _test(provider: McpServer, *, sign_in: bool = False, as_json: bool) -> int:
    """Connect, or sign in, and print the server's tools."""
    protect_secrets()
    started = time.monotonic()
    error = asyncio.run(_connect(provider, sign_in=sign_in))
    seconds = time.monotonic() - started
    tools = () if error else provider.tools
    if as_json:
        record = {"name": provider.name, "tools": [tool.listed.name for tool in tools]}
        print_json({**record, "seconds": round(seconds, 3), "error": error or None})
    elif error:
        print(error, file=sys.stderr)
    else:
        rows = [
            (tool.schema.name, ", ".join(sorted(tool.effects)), tool.schema.summary)
            for tool in tools
        ]
        print_table(("tool", "effects", "description"), rows)
        print(f"\n{counted(len(tools), 'tool')} in {seconds:.1f} s.")
    for reason in provider.lists.rejected:
        print(f"Skipped: {visible_line(reason)}", file=sys.stderr)
    return 1 if error else 0


async def _connect(provider: McpServer, *, sign_in: bool) -> str:
    """Connect, or sign in, and return the error, or an empty text."""
    try:
        if sign_in:
            caller.set(SignInCaller())
            await provider.sign_in()
        else:
            await provider.connect()
    except ToolError as error:
        return mask_secrets(error.message)
    finally:
        await provider.aclose()
    return ""


def _write(entries: Mapping[str, Entry]) -> None:
    """Replace the settings of these servers, all or none."""
    changes: dict[tuple[str, ...], str | None] = {}
    for name, entry in entries.items():
        server = (*_SERVERS, name)
        changes[server] = REMOVED
        for key, value in entry.items():
            if not isinstance(value, dict):
                changes[(*server, key)] = _typed(value)
                continue
            for item, text in cast("Entry", value).items():
                changes[(*server, key, item)] = _typed(text)
    write_settings(user_paths().settings_file, changes)


def _typed(value: Any) -> str:
    """Write a value as a user would type it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")


def _find(settings: "Settings", name: str) -> McpServer:
    """Return the server of this name; raises UsageError."""
    if name not in settings.mcp.servers:
        names = ", ".join(settings.mcp.servers)
        fix = f"Available: {names}." if names else "`ecoshell mcp add` adds one."
        raise UsageError(f"Unknown server {name!r}.", fix=fix)
    return _provider(settings, name)


def _provider(settings: "Settings", name: str) -> McpServer:
    server = server_of(name, settings.mcp.servers[name], workspace_folder())
    return McpServer(server, folder=user_paths().mcp_folder, result=ResultSize())
