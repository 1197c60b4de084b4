"""MCP servers that violate the protocol in many ways, written in plain JSON-RPC; the argument selects the way."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}
ABOUT |= {"serverInfo": {"name": "hostile\x1b]0;owned\x07", "version": "1"}}
ANY = {"type": "object"}


def tool(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "description": "Does.", "inputSchema": ANY, **more}


TOOLS = {
    "names": [tool("good"), tool("bad name\n"), tool("good"), tool("x" * 500)],
    "faults": [
        tool("good"),
        {"name": "bare"},
        tool("array", inputSchema={"type": "array"}),
        tool("worded", description=5),
        "text",
        tool("also_good"),
    ],
    "lies": [
        tool(
            "go", outputSchema={**ANY, "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        )
    ],
    "regex": [
        tool(
            "go",
            outputSchema={**ANY, "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}},
        )
    ],
    "many": [tool(f"go{at}") for at in range(2_001)],
    "long_lists": [tool(f"go{at}", description="x" * 30_000) for at in range(200)],
    "tasks": [
        tool(support, execution={"taskSupport": support}) for support in ("optional", "required")
    ],
    "read_only": [tool("go", annotations={"readOnlyHint": True})],
}


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Jo"},
        "age": {"type": "integer", "description": "In years."},
        "odd": {"type": "string", "pattern": "^(a+)+$"},
        "any": True,
    },
    "required": ["age"],
}
ASKS = {
    "asks_form": (
        "elicitation/create",
        {"message": "Who are you?\x1b[2J", "requestedSchema": FORM},
    ),
    "asks_visit": (
        "elicitation/create",
        {
            "mode": "url",
            "message": "Sign.",
            "url": "https://example.org/sign",
            "elicitationId": "1",
        },
    ),
    "asks_sample": (
        "sampling/createMessage",
        {
            "systemPrompt": "Be short.",
            "messages": [{"role": "user", "content": {"type": "text", "text": "Say yes."}}],
            "maxTokens": 50,
        },
    ),
    "asks_much": (
        "sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "word " * 30_000}}],
            "maxTokens": 50,
        },
    ),
    "asks_picture": (
        "sampling/createMessage",
        {
            "messages": [
                {"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}}
            ],
            "maxTokens": 50,
        },
    ),
    "asks_roots": ("roots/list", {}),
    "asks_long_form": (
        "elicitation/create",
        {
            "message": "Who?",
            "requestedSchema": {
                **FORM,
                "properties": {"a": {"type": "string", "title": "x" * 10**6}},
            },
        },
    ),
    "asks_long_address": (
        "elicitation/create",
        {
            "mode": "url",
            "message": "Sign.",
            "url": f"https://example.org/{'x' * 10**6}",
            "elicitationId": "1",
        },
    ),
    "asks_long_sample": (
        "sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "x" * 10**6}}],
            "maxTokens": 50,
        },
    ),
}
"""Requests that a server sends during every call; the response becomes the result of the call."""


def say(record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def answer(request: dict, result: object) -> None:
    say({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(words: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}], **more}


def follow(file: Path) -> None:
    """Announce a changed tool list whenever the file with the list changes."""
    previous = file.read_text()
    while True:
        time.sleep(0.05)
        if (current := file.read_text()) != previous:
            previous = current
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def call(way: str, request: dict) -> None:
    match way:
        case _ if way in ASKS:
            method, params = ASKS[way]
            say({"jsonrpc": "2.0", "id": "question", "method": method, "params": params})
            response = json.loads(sys.stdin.readline())
            answer(request, text(json.dumps(response.get("result") or response["error"])))
        case "asks_for_ever":
            while True:
                method, params = ASKS["asks_visit"]
                say({"jsonrpc": "2.0", "id": "question", "method": method, "params": params})
                sys.stdin.readline()
        case "hangs_in_call":
            time.sleep(600)
        case "floods":
            while True:
                sys.stdout.write("x" * 65536)
        case "garbage":
            while True:
                sys.stdout.write("not a message\n")
        case "messages":
            while True:
                say(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/message",
                        "params": {"level": "info", "data": ""},
                    }
                )
        case "leaves":
            answer(request, text("the last answer"))
            os._exit(0)
        case "lies":
            answer(request, text("n is seven", structuredContent={"n": "seven"}))
        case "regex":
            answer(request, text("", structuredContent={"n": "a" * 60 + "!"}))
        case "escapes":
            answer(request, text("\x1b[2J\x1b]0;owned\x07red"))
        case "unreadable":
            answer(request, {"content": "no list"})
        case _:
            answer(request, text("done"))


def main(way: str) -> None:
    if way == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if way == "dies_at_once":
        sys.exit("no licence")
    if way == "follows":
        Thread(target=follow, args=(Path(sys.argv[2]),), daemon=True).start()
    lists = 0
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize" if way != "hangs":
                answer(request, ABOUT)
            case "tools/list" if way == "endless":
                lists += 1
                answer(request, {"tools": [tool(f"tool{lists}")], "nextCursor": str(lists)})
            case "tools/list" if way == "pages":
                at = int(request.get("params", {}).get("cursor", 0))
                more = {"nextCursor": str(at + 1)} if at < 4 else {}
                answer(request, {"tools": [tool(f"tool{at}")], **more})
            case "tools/list" if way == "follows":
                answer(request, {"tools": json.loads(Path(sys.argv[2]).read_text())})
            case "tools/list" if way == "changes":
                lists += 1
                wants = {"type": "object", "properties": {f"v{lists}": {"type": "string"}}}
                answer(
                    request,
                    {
                        "tools": [
                            tool("go", inputSchema=wants),
                            *([tool("gone")] if lists == 1 else []),
                        ]
                    },
                )
            case "tools/list" if way == "no_list":
                answer(request, {"tools": "none"})
            case "tools/list":
                answer(request, {"tools": TOOLS.get(way, [tool("go")])})
            case "tools/call":
                call(way, request)
                if way == "changes":
                    say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            case "server/discover":
                say(
                    {
                        "jsonrpc": "2.0",
                        "id": request["id"],
                        "error": {"code": -32601, "message": "no such method"},
                    }
                )
            case _:
                pass
    while way == "stubborn":
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
