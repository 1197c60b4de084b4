"""`ecoshell mcp`: the servers whose tools the agent may use."""

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
_OTHERS_VARIABLE = re.compile(r"\$\{env:(\w+)\}")
"""How some clients write `${NAME}`."""

Entry = dict[str, Any]
"""What the settings are to say of one server, by key."""


class _BeforeCommand(Parser):
    """Parses what stands before `--`; what stands after it is another program's command line, `words`."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - as its base
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        given = [*(args or ())]
        end = given.index("--") if "--" in given else len(given)
        found, left = super().parse_known_args(given[:end], namespace)
        found.words = given[end + 1 :]
        return found, left


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and what they take."""
    add = add_actions(parser, "list", _BeforeCommand)
    add("list", "every server, and how many tools it is known to have (default)")
    added = add("add", "put a server into the settings, and connect to it")
    added.usage = (
        "ecoshell mcp add NAME [OPTIONS] -- COMMAND ARGUMENTS\n       ecoshell mcp add NAME [OPTIONS] --url ADDRESS"
    )
    added.add_argument("name", help="how its tools are called: NAME.tool")
    added.add_argument("--url", default="", metavar="ADDRESS", help="the address of a server that is there already")
    added.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable it gets")
    added.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header it is sent")
    added.add_argument("--trust", action="store_true", help="believe what its tools say of themselves")
    added.add_argument("--no-test", action="store_true", help="do not connect to it now")
    imported = add("import", "take over the servers of another client's file")
    imported.add_argument("file", help="such as .mcp.json, or - for standard input")
    for action in (added, imported):
        action.add_argument("--replace", action="store_true", help="also where a server of this name is there already")
    add("test", "connect to a server and show its tools").add_argument("name", help="the server")
    add("login", "sign in to a server that asks for it (OAuth); the keyring keeps what it gives").add_argument(
        "name", help="the server"
    )
    add("remove", "take a server out of the settings").add_argument("name", help="the server")


def run(args: argparse.Namespace) -> int:
    """List the servers, or add, import, test or remove some; raises UsageError, SettingsError and StoreError."""
    match args.action:
        case "add":
            return _add(args)
        case "import":
            return _import(args.file, replace=args.replace, as_json=args.json)
        case "test":
            return _test(_one(load_settings(user_paths()), args.name), as_json=args.json)
        case "login":
            provider = _one(load_settings(user_paths()), args.name)
            if not provider.server.may_sign_in:
                which = "Only servers with a url and no Authorization header are."
                raise UsageError(f"{args.name} is not signed in to.", fix=which)
            return _test(provider, sign_in=True, as_json=args.json)
        case "remove":
            provider = _one(load_settings(user_paths()), args.name)
            write_settings(user_paths().settings_file, {(*_SERVERS, args.name): REMOVED})
            provider.forget()
            print_json({"removed": args.name}) if args.json else print(f"{args.name} is removed.")
            return 0
        case _:
            return _list(as_json=args.json)


def _list(*, as_json: bool) -> int:
    settings = load_settings(user_paths())
    rows = [(given, _provider(settings, name)) for name, given in settings.mcp.servers.items()]
    cells: list[Sequence[str]] = []
    for given, provider in rows:
        how = given.url or " ".join((given.command or "", *given.args))
        tools, trusted = f"{len(provider.tools)}" if provider.known else "?", "trusted" if given.trusted else ""
        cells.append((provider.name, how, tools, trusted, "" if given.enabled else "switched off"))
    if as_json:
        records: list[dict[str, Any]] = [
            {
                "name": provider.name,
                "command": [given.command, *given.args] if given.command else None,
                "url": given.url,
                "env": sorted(given.env),
                "headers": sorted(given.headers),
                "trusted": given.trusted,
                "enabled": given.enabled,
                "tools": [tool.listed.name for tool in provider.tools] if provider.known else None,
            }
            for given, provider in rows
        ]
        print_json({"rows": records})
    elif not rows:
        print("There is no server. `ecoshell mcp add NAME -- COMMAND …` adds one; docs/tools.md says more.")
    else:
        print_table(("server", "how", "tools", "", ""), cells)
    return 0


def _add(args: argparse.Namespace) -> int:
    if bool(args.url) == bool(args.words):
        raise UsageError(
            "A server needs either a command or --url.",
            fix="Say ecoshell mcp add NAME -- COMMAND ARGUMENTS, or ecoshell mcp add NAME --url ADDRESS.",
        )
    if args.name in load_settings(user_paths()).mcp.servers and not args.replace:
        raise UsageError(f"There is a server {args.name} already.", fix="--replace puts this one in its place.")
    entry: Entry = {"url": args.url} if args.url else {"command": args.words[0], "args": args.words[1:]}
    entry |= {
        "env": _pairs(args.env, "=", "--env NAME=VALUE"),
        "headers": _pairs(args.header, ":", "--header 'NAME: VALUE'"),
    }
    entry |= {"trusted": True} if args.trust else {}
    _write({args.name: entry})
    print(f"{args.name} is in {user_paths().settings_file}.", file=sys.stderr if args.json else sys.stdout)
    if not args.no_test:
        _test(_one(load_settings(user_paths()), args.name), as_json=args.json)
    elif args.json:
        print_json({"added": args.name})
    return 0


def _pairs(texts: Sequence[str], sign: str, form: str) -> dict[str, str]:
    pairs = [text.partition(sign) for text in texts]
    if odd := next((pair for pair in pairs if not pair[1] or not pair[0].strip()), None):
        raise UsageError(f"{''.join(odd)!r} cannot be read.", fix=f"Say {form}.")
    return {name.strip(): value.strip() if sign == ":" else value for name, _, value in pairs}


def _import(file: str, *, replace: bool, as_json: bool) -> int:
    """Take over the servers that another client's file has; what cannot be taken over is told with its reason."""
    there = frozenset[str]() if replace else load_settings(user_paths()).mcp.servers.keys()
    entries: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    try:
        text = sys.stdin.read() if file == "-" else expanded(file).read_text(encoding="utf-8")
        read: Any = json.loads(text.encode())  # of bytes, it passes over a mark at the beginning
    except (OSError, ValueError, RecursionError) as failure:
        raise UsageError(f"{file} cannot be read: {failure}", fix="Give a JSON file, such as .mcp.json.") from failure
    tables = [cast("Entry", read).get(key) for key in ("mcpServers", "servers")] if isinstance(read, dict) else []
    servers = next((cast("Entry", table) for table in tables if isinstance(table, dict)), None)
    if servers is None:
        form = "Give a file as other clients keep it, such as .mcp.json."
        raise UsageError(f"{file} has no table mcpServers.", fix=form)
    for called, found in servers.items():
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", called).strip("-")[:40] or "server"
        if name in entries:
            left_out[called] = f"another one of the file is called {name}, too"
            continue
        if name in there:
            left_out[called] = f"there is a server {name} already (--replace puts this one in its place)"
            continue
        try:
            entries[name] = _taken_over(found)
        except ValueError as why:
            left_out[called] = str(why)
    if entries:
        _write(entries)
    if as_json:
        print_json({"imported": [*entries], "left_out": left_out})
        return 0
    for name in entries:
        print(f"{name} is imported; `ecoshell mcp test {name}` connects to it.")
    for name, why in left_out.items():
        print(f"{visible_line(name)} is left out: {visible_line(why)}.", file=sys.stderr)
    return 0


def _taken_over(found: Any) -> Entry:
    """A server of another client as the settings have it; raises ValueError for what is not known here."""
    from pydantic import ValidationError

    from ecoshell.settings.schema import McpServerSettings

    if not isinstance(found, dict):
        raise ValueError("it is no table")
    given = cast("Entry", found)
    address = given.get("url") or given.get("serverUrl") or given.get("httpUrl")
    if given.get("type") == "sse" or given.get("transport") == "sse":
        raise ValueError("it is reached by SSE, which the protocol has given up; it may have a newer address")
    if bool(address) == bool(given.get("command")):
        raise ValueError("it needs a command or an address, and not both")
    entry: Entry = {"url": address} if address else {"command": given["command"], "args": given.get("args") or []}
    entry |= {key: given[key] for key in ("env", "headers", "cwd") if given.get(key)}
    entry |= {"enabled": False} if given.get("disabled") is True else {}
    for key, value in entry.items():  # others take numbers and switches for the texts that they are
        if key in ("env", "headers") and isinstance(value, dict):
            entry[key] = {name: _as_text(one) for name, one in cast("Entry", value).items()}
        elif isinstance(value, list):
            entry[key] = [*map(_as_text, cast("list[Any]", value))]
    text = _OTHERS_VARIABLE.sub(r"${\1}", json.dumps(entry))
    if "${input:" in text:
        raise ValueError("it has its client ask for ${input:…}; put a variable's ${NAME} in the place of that")
    taken: Entry = json.loads(text)
    try:
        McpServerSettings.model_validate(taken)
    except ValidationError as wrong:
        raise ValueError(problem(wrong.errors()[0], "its settings").message) from wrong
    return taken


def _as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (int, float)) else value


class Signs(Caller):
    """The person who signs in: shown where, and their browser is opened there; whatever else is asked is declined."""

    async def visit(self, server: str, message: str, address: str) -> bool:
        if not address.startswith(("https://", "http://")):  # others start programs
            return False
        print(f"To sign in to {server}, open this address:\n{visible_line(address)}", file=sys.stderr)
        await asyncio.to_thread(webbrowser.open, address)
        return True


def _test(provider: McpServer, *, sign_in: bool = False, as_json: bool) -> int:
    """Connect, or sign in, and show what the server has."""
    protect_secrets()
    started = time.monotonic()
    error = asyncio.run(_connected(provider, sign_in=sign_in))
    seconds = time.monotonic() - started
    tools = () if error else provider.tools
    if as_json:
        names = [tool.listed.name for tool in tools]
        print_json({"name": provider.name, "tools": names, "seconds": round(seconds, 3), "error": error or None})
    elif error:
        print(error, file=sys.stderr)
    else:
        rows = [(tool.schema.name, ", ".join(sorted(tool.effects)), tool.schema.summary) for tool in tools]
        print_table(("tool", "effects", "what it does"), rows)
        print(f"\n{counted(len(tools), 'tool')} in {seconds:.1f} s.")
    for why in provider.lists.rejected:
        print(f"Left out: {visible_line(why)}", file=sys.stderr)
    return 1 if error else 0


async def _connected(provider: McpServer, *, sign_in: bool) -> str:
    """What went wrong; empty where nothing did."""
    try:
        if sign_in:
            caller.set(Signs())  # for this connection alone
            await provider.sign_in()
        else:
            await provider.connect()
    except ToolError as failure:
        return mask_secrets(failure.message)
    finally:
        await provider.aclose()
    return ""


def _write(entries: Mapping[str, Entry]) -> None:
    """Have the settings say this of these servers, and nothing else of them; all or none."""
    changes: dict[tuple[str, ...], str | None] = {}
    for name, entry in entries.items():
        changes[(*_SERVERS, name)] = REMOVED
        for key, value in entry.items():
            table = cast("Entry", value) if isinstance(value, dict) else {(): value}
            for below, one in table.items():
                path = (*_SERVERS, name, key, *((below,) if isinstance(below, str) else ()))
                typed = json.dumps(one, ensure_ascii=False).replace("\x7f", r"\u007f")
                changes[path] = one if isinstance(one, str) else typed
    write_settings(user_paths().settings_file, changes)


def _one(settings: "Settings", name: str) -> McpServer:
    """The server of this name; raises UsageError."""
    if name not in settings.mcp.servers:
        known = ", ".join(settings.mcp.servers)
        fix = f"There are {known}." if known else "`ecoshell mcp add` adds one."
        raise UsageError(f"There is no server {name!r}.", fix=fix)
    return _provider(settings, name)


def _provider(settings: "Settings", name: str) -> McpServer:
    server = server_of(name, settings.mcp.servers[name], workspace_folder())
    return McpServer(server, folder=user_paths().mcp_folder, result=ResultSize())
