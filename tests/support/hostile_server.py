"""A small OpenAI- and Anthropic-shaped HTTP server on loopback that behaves as badly as its model's name says.

`openai/<behaviour>` at `http://…/v1`; the behaviours are the methods of `_Handler` that start with `do_as_`. The server
records requests and closed connections.
"""

import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Usage = dict[str, Any]
GOOD_USAGE: Usage = {
    "prompt_tokens": 70,
    "completion_tokens": 12,
    "total_tokens": 82,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


_MOODS = ("greedy", "modest", "too_many", "greedy", "silent", "modest", "cut", "greedy", "garbage")


class HostileServer:
    """The server and its recorded requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        """Request bodies, in order."""
        self.headers: list[dict[str, str]] = []
        self.client_left = threading.Event()
        """Set when a client closes its connection before the reply is complete."""
        self.arrived = threading.Event()
        """Set when a request has been read."""
        handler = type("Handler", (_Handler,), {"record": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def openai(self) -> str:
        """The base URL for models that speak OpenAI's protocol."""
        return f"{self.address}/v1"

    def forget(self) -> None:
        self.asked.clear()
        self.headers.clear()
        self.client_left.clear()
        self.arrived.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def hostile_server() -> Iterator[HostileServer]:
    server = HostileServer()
    try:
        yield server
    finally:
        server.close()


class _Handler(BaseHTTPRequestHandler):
    record: HostileServer

    def log_message(self, *_args: object) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.record.asked.append(body)
        self.record.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.record.arrived.set()
        behaviour = (
            "do_as_claude"
            if self.path.endswith("/messages")
            else f"do_as_{body['model'].replace('-', '_')}"
        )
        try:
            getattr(self, behaviour)(body)
        except OSError:
            self.record.client_left.set()
        self.close_connection = True

    def do_as_good(self, body: dict[str, Any]) -> None:
        self._stream_texts("The ", "answer.")
        self._end(usage=GOOD_USAGE)

    def do_as_gpt_4o(self, body: dict[str, Any]) -> None:
        self.do_as_good(body)

    def do_as_echo(self, body: dict[str, Any]) -> None:
        """Answers with the last message, one character at a time."""
        self._stream_texts(*body["messages"][-1]["content"])
        self._end(usage=GOOD_USAGE)

    def do_as_planner(self, body: dict[str, Any]) -> None:
        """Decides as a planner: first a calculation by the caller, then the conclusion."""
        done = "caller: Action: calculate" in json.dumps(body["messages"])
        thought = "17 * 23 is to be worked out with calculate."
        self._stream_texts(
            "That is enough. Next: conclusion." if done else f"{thought} Next: caller."
        )
        self._end(usage=GOOD_USAGE)

    def do_as_ender(self, body: dict[str, Any]) -> None:
        """Concludes as a planner at the first request, and answers at later ones."""
        first = len(self.record.asked) == 1
        self._stream_texts("That is enough. Next: conclusion." if first else "It is enough.")
        self._end(usage=GOOD_USAGE)

    def do_as_no_usage(self, body: dict[str, Any]) -> None:
        self._stream_texts("The ", "answer.")
        self._end(usage=None)

    def do_as_double_usage(self, body: dict[str, Any]) -> None:
        self._stream_texts("The answer.")
        self._finish("stop")
        self._event(
            _chunk(
                choices=[], usage={"prompt_tokens": 70, "completion_tokens": 12, "total_tokens": 82}
            )
        )
        self._event(
            _chunk(
                choices=[],
                usage={"prompt_tokens": 140, "completion_tokens": 24, "total_tokens": 164},
            )
        )
        self._done()

    def do_as_hidden_reasoner(self, body: dict[str, Any]) -> None:
        """Counts its reasoning in the total alone, as Gemini does in OpenAI's protocol."""
        self._stream_texts("The answer.")
        self._end(usage={"prompt_tokens": 70, "completion_tokens": 12, "total_tokens": 582})

    def do_as_overbilling(self, body: dict[str, Any]) -> None:
        """Bills twice what the prompt and `max_tokens` allow."""
        self._stream_texts("The answer.")
        self._end(usage=_counted(2 * len(json.dumps(body)), 2 * body["max_tokens"]))

    def do_as_greedy(self, body: dict[str, Any]) -> None:
        """Never finishes, and bills almost the maximum for the prompt and `max_tokens`."""
        self._stream_texts(_work(body))
        self._end(usage=_counted(_text_bytes(body), body["max_tokens"]))

    def do_as_moody(self, body: dict[str, Any]) -> None:
        """Never finishes, and alternates between high, low and missing usage, rate limits and broken replies."""
        mood = _MOODS[len(self.record.asked) % len(_MOODS)]
        if mood == "modest":
            self._stream_texts(_work(body))
            self._end(usage=GOOD_USAGE)
        elif mood == "silent":
            self._stream_texts(_work(body))
            self._end(usage=None)
        else:
            getattr(self, f"do_as_{mood}")(body)

    def do_as_garbage_usage(self, body: dict[str, Any]) -> None:
        self._stream_texts("The answer.")
        self._end(usage={"prompt_tokens": "many", "completion_tokens": -3, "total_tokens": None})

    def do_as_negative_usage(self, body: dict[str, Any]) -> None:
        self._stream_texts("The answer.")
        self._end(usage={"prompt_tokens": 70, "completion_tokens": -12, "total_tokens": 58})

    def do_as_zero_usage(self, body: dict[str, Any]) -> None:
        self._stream_texts("The answer.")
        self._end(usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})

    def do_as_length(self, body: dict[str, Any]) -> None:
        self._stream_texts("Half an ans")
        self._end("length", usage=GOOD_USAGE)

    def do_as_cut(self, body: dict[str, Any]) -> None:
        self._stream_texts("Half an ans")

    def do_as_failing(self, body: dict[str, Any]) -> None:
        """Ends its answer with the finish reason `error`."""
        self._stream_texts("Half an ans")
        self._end("error", usage=GOOD_USAGE)

    def do_as_reset(self, body: dict[str, Any]) -> None:
        """Breaks off inside a chunk of the transfer encoding."""
        self._head(200, "text/event-stream", ("transfer-encoding", "chunked"))
        line = b"data: " + json.dumps(_chunk("Half an ans")).encode() + b"\n\n"
        self._write(f"{len(line):x}\r\n".encode() + line + b"\r\nffff\r\ndata: {")

    def do_as_too_many(self, body: dict[str, Any]) -> None:
        self._refuse(429, "slow down", ("retry-after", "1"))

    def do_as_out_of_credit(self, body: dict[str, Any]) -> None:
        self._refuse(429, "You exceeded your current quota.", code="insufficient_quota")

    def do_as_overloaded(self, body: dict[str, Any]) -> None:
        self._refuse(529, "Overloaded", ("retry-after-ms", "2500"))

    def do_as_refuser(self, body: dict[str, Any]) -> None:
        self._stream_texts("")
        self._event(
            _chunk(choices=[{"index": 0, "delta": {"refusal": "I cannot."}, "finish_reason": None}])
        )
        self._end(usage=GOOD_USAGE)

    def do_as_no_funds(self, body: dict[str, Any]) -> None:
        self._refuse(402, "pay first")

    def do_as_broken_down(self, body: dict[str, Any]) -> None:
        self._refuse(500, "oops")

    def do_as_gave_up_waiting(self, body: dict[str, Any]) -> None:
        self._refuse(504, "upstream timed out")

    def do_as_wrong_key(self, body: dict[str, Any]) -> None:
        self._refuse(
            401, f"Incorrect API key provided: {self.headers['authorization']}. Or sk-abcdef123456."
        )

    def do_as_no_such_model(self, body: dict[str, Any]) -> None:
        self._refuse(404, "the model does not exist")

    def do_as_too_long(self, body: dict[str, Any]) -> None:
        self._refuse(
            400,
            "This model's maximum context length is 4097 tokens.",
            code="context_length_exceeded",
        )

    def do_as_picky(self, body: dict[str, Any]) -> None:
        self._refuse(422, "I do not like this")

    def do_as_garbage(self, body: dict[str, Any]) -> None:
        self._head(200, "text/event-stream")
        self._write(b"\xff\xfe\x00 data: \x1b[31m\x80\x81\n\n")

    def do_as_web_page(self, body: dict[str, Any]) -> None:
        self._head(200, "text/html")
        self._write(b"<html><body>Please sign in</body></html>")

    def do_as_half_json(self, body: dict[str, Any]) -> None:
        self._stream_texts("The ")
        self._write(b'data: {"id": "1", "choices": [{"del\n\n')
        self._done()

    def do_as_error_inside(self, body: dict[str, Any]) -> None:
        self._stream_texts("The ")
        self._event({"error": {"message": "overloaded", "code": 500}})

    def do_as_endless(self, body: dict[str, Any]) -> None:
        self._head(200, "text/event-stream")
        for number in range(10**9):
            self._event(_chunk(f"{number} "))

    def do_as_slow(self, body: dict[str, Any]) -> None:
        """Sends nothing until the client disconnects."""
        readable, _, _ = select.select([self.connection], [], [], 20)
        if readable and not self.connection.recv(1):
            self.record.client_left.set()

    def do_as_caller(self, body: dict[str, Any]) -> None:
        self._call_tool('{"path": ', '"notes.txt"}')

    def do_as_two_calls(self, body: dict[str, Any]) -> None:
        self._head(200, "text/event-stream")
        for index, path in enumerate(("first.txt", "second.txt")):
            self._event(_call_chunk(index, _safe_tool(body), json.dumps({"path": path})))
        self._end("tool_calls", usage=GOOD_USAGE)

    def do_as_two_calls_numbered_alike(self, body: dict[str, Any]) -> None:
        self._head(200, "text/event-stream")
        for path in ("first.txt", "second.txt"):
            self._event(_call_chunk(0, _safe_tool(body), '{"path": ', call_id=path))
            self._event(_call_chunk(0, "", json.dumps(path) + "}", call_id=""))
        self._end("tool_calls", usage=GOOD_USAGE)

    def do_as_second_call_broken(self, body: dict[str, Any]) -> None:
        self._head(200, "text/event-stream")
        for index, arguments in enumerate(('{"path": "first.txt"}', '{"path": ')):
            self._event(_call_chunk(index, _safe_tool(body), arguments))
        self._end("tool_calls", usage=GOOD_USAGE)

    def do_as_reasoner(self, body: dict[str, Any]) -> None:
        self._head(200, "text/event-stream")
        for piece in ("Let me ", "think."):
            delta = {"role": "assistant", "content": None, "reasoning_content": piece}
            self._event(_chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]))
        self._event(_chunk("The answer."))
        self._end(usage=GOOD_USAGE)

    def do_as_finisher(self, body: dict[str, Any]) -> None:
        """Writes a text, then its answer as an argument, split in the middle of a surrogate pair."""
        self._head(200, "text/event-stream")
        self._event(_chunk("That is all."))
        for name, arguments in (
            ("finish", ""),
            ("", '{"ans'),
            ("", 'wer": "Milk \\ud8'),
            ("", "3d\\ude00, "),
            ("", 'eggs"}'),
        ):
            self._event(_call_chunk(0, name, arguments))
        self._end("tool_calls", usage=GOOD_USAGE)

    def do_as_early_finisher(self, body: dict[str, Any]) -> None:
        """Calls `finish` together with a tool whose result it has not received."""
        self._head(200, "text/event-stream")
        self._event(_call_chunk(0, _safe_tool(body), '{"path": "notes.txt"}'))
        self._event(_call_chunk(1, "finish", '{"answer": "Milk."}'))
        self._end("tool_calls", usage=GOOD_USAGE)

    def do_as_repeater(self, body: dict[str, Any]) -> None:
        """Repeats the name of its call in every chunk, but sends the ID only in the first one."""
        self._head(200, "text/event-stream")
        for piece in ('{"path": ', '"a.txt"}'):
            chunk = _call_chunk(0, _safe_tool(body), piece)
            if piece.startswith('"'):
                del chunk["choices"][0]["delta"]["tool_calls"][0]["id"]
            self._event(chunk)
        self._end("tool_calls", usage=GOOD_USAGE)

    def do_as_doubler(self, body: dict[str, Any]) -> None:
        """Sends its arguments complete, and then again in pieces."""
        self._call_tool('{"path": "a.txt"}', '{"path": ', '"a.txt"}')

    def do_as_half_a_call(self, body: dict[str, Any]) -> None:
        self._call_tool('{"path": "no')

    def do_as_deep_call(self, body: dict[str, Any]) -> None:
        self._call_tool('{"path": ' + "[" * 100_000)

    def do_as_nan_call(self, body: dict[str, Any]) -> None:
        self._call_tool('{"path": NaN}')

    def do_as_list_call(self, body: dict[str, Any]) -> None:
        self._call_tool("[1, 2]")

    def do_as_wrong_call(self, body: dict[str, Any]) -> None:
        self._call_tool('{"path": 7}')

    def do_as_stranger(self, body: dict[str, Any]) -> None:
        self._call_tool("{}", name="rm_rf")

    def do_as_text_caller(self, body: dict[str, Any]) -> None:
        self._stream_texts('{"call": {"name": "read_file", ', '"arguments": {"path": "a.txt"}}}')
        self._end(usage=GOOD_USAGE)

    def do_as_marked_caller(self, body: dict[str, Any]) -> None:
        call = (
            '<tool_call>\n{"name": "files.read_file", "arguments": {"path": "a.txt"}}\n</tool_call>'
        )
        self._stream_texts("<think>Which one?</think>I look.\n", call)
        self._end(usage=GOOD_USAGE)

    def do_as_claude(self, body: dict[str, Any]) -> None:
        """Anthropic's protocol: input tokens first, output tokens last, cached tokens separate from the input."""
        self._head(200, "text/event-stream")
        counted = {
            "input_tokens": 10,
            "cache_read_input_tokens": 50,
            "cache_creation_input_tokens": 30,
        }
        start = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
        }
        for event in (
            {
                "type": "message_start",
                "message": {**start, "usage": {**counted, "output_tokens": 1}},
            },
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "The answer."},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 9},
            },
            {"type": "message_stop"},
        ):
            self._write(f"event: {event['type']}\n".encode())
            self._event(event)

    def _call_tool(self, *arguments: str, name: str = "") -> None:
        self._head(200, "text/event-stream")
        first, *rest_of_arguments = arguments
        self._event(_call_chunk(0, name or _safe_tool(self.record.asked[-1]), first))
        for part in rest_of_arguments:
            self._event(_call_chunk(0, "", part))
        self._end("tool_calls", usage=GOOD_USAGE)

    def _stream_texts(self, *texts: str) -> None:
        self._head(200, "text/event-stream")
        for text in texts:
            self._event(_chunk(text))

    def _end(self, reason: str = "stop", *, usage: Usage | None) -> None:
        self._finish(reason)
        if usage is not None:
            self._event(_chunk(choices=[], usage=usage))
        self._done()

    def _finish(self, reason: str) -> None:
        self._event(_chunk(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]))

    def _done(self) -> None:
        self._write(b"data: [DONE]\n\n")

    def _refuse(self, status: int, message: str, *headers: tuple[str, str], code: str = "") -> None:
        self._head(status, "application/json", *headers)
        self._write(
            json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()
        )

    def _head(self, status: int, kind: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("content-type", kind), ("connection", "close"), *headers):
            self.send_header(name, value)
        self.end_headers()

    def _event(self, record: dict[str, Any]) -> None:
        self._write(b"data: " + json.dumps(record).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


def _chunk(
    text: str = "", *, choices: list[dict[str, Any]] | None = None, usage: Usage | None = None
) -> dict[str, Any]:
    text_choices = [
        {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    ]
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "hostile"}
    return {
        **chunk,
        "choices": text_choices if choices is None else choices,
        **({"usage": usage} if usage else {}),
    }


def _call_chunk(
    index: int, name: str, arguments: str, call_id: str | None = None
) -> dict[str, Any]:
    function = {"name": name or None, "arguments": arguments}
    call = {
        "index": index,
        "id": f"c{index}" if call_id is None else call_id,
        "type": "function",
        "function": function,
    }
    return _chunk(choices=[{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}])


def _counted(prompt: int, output: int) -> Usage:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def _text_bytes(body: dict[str, Any]) -> int:
    return sum(len((message.get("content") or "").encode()) for message in body["messages"])


def _work(body: dict[str, Any]) -> str:
    """The next call of a model that never finishes: registers a tool, then calls it with a new text each time."""
    replies = [
        json.dumps(message) for message in body["messages"] if message["role"] == "assistant"
    ]
    call = {"name": "tool_register", "arguments": {"tool_name": "count_text"}}
    if any("tool_register" in text for text in replies):
        call = {"name": "count_text", "arguments": {"text": f"text {len(replies)}"}}
    return json.dumps({"call": call})


def _safe_tool(body: dict[str, Any]) -> str:
    """The name of the first tool in the request."""
    return body["tools"][0]["function"]["name"]
