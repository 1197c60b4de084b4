"""Servers that keep to no agreement, each a way of speaking JSON-RPC by hand; the argument says which."""

import json
import os
import signal
import sys
import time

ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}
ABOUT |= {"serverInfo": {"name": "hostile\x1b]0;owned\x07", "version": "1"}}
ANY = {"type": "object"}


def tool(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "description": "Does.", "inputSchema": ANY, **more}


TOOLS = {
    "names": [tool("good"), tool("bad name\n"), tool("good"), tool("x" * 500)],
    "lies": [tool("go", outputSchema={**ANY, "properties": {"n": {"type": "integer"}}, "required": ["n"]})],
    "regex": [tool("go", outputSchema={**ANY, "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}})],
    "read_only": [tool("go", annotations={"readOnlyHint": True})],
}


def say(record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def answer(asked: dict, result: object) -> None:
    say({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def text(words: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}], **more}


def call(way: str, asked: dict) -> None:
    match way:
        case "hangs_in_call":
            time.sleep(600)
        case "floods":
            while True:
                sys.stdout.write("x" * 65536)
        case "garbage":
            while True:
                sys.stdout.write("this is no message\n")
        case "lies":
            answer(asked, text("n is seven", structuredContent={"n": "seven"}))
        case "regex":
            answer(asked, text("", structuredContent={"n": "a" * 60 + "!"}))
        case "escapes":
            answer(asked, text("\x1b[2J\x1b]0;owned\x07red"))
        case "unreadable":
            answer(asked, {"content": "no list"})
        case _:
            answer(asked, text("done"))


def main(way: str) -> None:  # noqa: PLR0912 - a row of ways
    if way == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if way == "dies_at_once":
        sys.exit("no licence")
    lists = 0
    for line in sys.stdin:
        asked = json.loads(line)
        match asked.get("method"):
            case "initialize" if way != "hangs":
                answer(asked, ABOUT)
            case "tools/list" if way == "endless":
                lists += 1
                answer(asked, {"tools": [tool(f"tool{lists}")], "nextCursor": str(lists)})
            case "tools/list" if way == "pages":
                at = int(asked.get("params", {}).get("cursor", 0))
                more = {"nextCursor": str(at + 1)} if at < 4 else {}
                answer(asked, {"tools": [tool(f"tool{at}")], **more})
            case "tools/list" if way == "changes":
                lists += 1
                wants = {"type": "object", "properties": {f"v{lists}": {"type": "string"}}}
                answer(asked, {"tools": [tool("go", inputSchema=wants), *([tool("gone")] if lists == 1 else [])]})
            case "tools/list":
                answer(asked, {"tools": TOOLS.get(way, [tool("go")])})
            case "tools/call":
                call(way, asked)
                if way == "changes":
                    say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            case "server/discover":
                say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no such method"}})
            case _:
                pass
    while way == "stubborn":
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
