"""Providers that stream without end, over real sockets: every call ends and its possible cost stays reserved."""

import asyncio
import gzip
import json
import os
import re
import signal
import socketserver
import threading
import zlib
from pathlib import Path

import pytest
import pytest_asyncio
from waits import Waits

from ecoshell.budget import NANO, Account, Amount, PriceBook
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import ModelError, ModelUnavailable
from ecoshell.messages import Message, Usage
from ecoshell.models import Reply, Request
from ecoshell.models.keys import Keys
from ecoshell.models.metered import MeteredModel
from ecoshell.models.remote import RemoteModel, RemoteOptions
from ecoshell.models.remote_process import RemoteProcess
from ecoshell.models.retrying import RetryPolicy

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE = 1.5
PARALLEL_CALLS = 12
MEMORY_LIMIT = 1 << 30
ERRORS_IN_STREAM = (
    ("LLM Provider NOT provided", 400),
    ("Incorrect API key provided", 401),
    ("The model does not exist", 404),
    ("This model's maximum context length is 10 tokens", 400),
    ("Rate limit reached", 429),
    ("Connection refused", None),
)
"""Errors in the middle of an answer, which never count as refusals."""
REFUSALS = (400, 401, 403, 404, 413, 422, 429, 529)
OTHER_STATUSES = (
    301,
    402,
    405,
    408,
    409,
    418,
    425,
    451,
    499,
    500,
    501,
    502,
    503,
    504,
    520,
    522,
    524,
    599,
)
ASK = Request((Message("user", "Hello?"),), want="text", max_tokens=50)
PRICES = {
    "litellm_provider": "openai",
    "mode": "chat",
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 4e-6,
}


def head(status=200, kind="text/event-stream", **headers):
    fields = {"Content-Type": kind, "Connection": "close"} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def event(**record):
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", **record}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def choice(finish=None, **delta):
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def call(arguments, name=None, index=0, call_id="c"):
    function = {"name": name, "arguments": arguments}
    return choice(
        tool_calls=[{"index": index, "id": call_id, "type": "function", "function": function}]
    )


def usage(**counts):
    return event(
        choices=[],
        usage={"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, **counts},
    )


def stream_error(message, code):
    record = {"error": {"message": message, "code": code, "type": "invalid_request_error"}}
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def chunked(data, extension=b""):
    return f"{len(data):x}".encode() + extension + b"\r\n" + data + b"\r\n"


LONG = b"a" * 60_000
HELLO = choice(content="Hello")
OPEN_TEXT = b'data: {"choices": [{"index": 0, "delta": {"content": "'
PACKED = {"Content_Encoding": "gzip"}
CHUNKED = {"Transfer_Encoding": "chunked"}
NOTHING_PACKED = zlib.compressobj(wbits=31).compress(b"")

# The first bytes, and the bytes that are repeated after them.
ENDLESS = {
    "comments": (head(), b": keep-alive\n\n"),
    "comments after text": (head() + HELLO, b": ping\n\n"),
    "one comment": (head() + b": ", LONG),
    "line ends": (head(), b"\n"),
    "other line ends": (head() + HELLO, b"\r\n"),
    "events without data": (head(), b"event: ping\n\n"),
    "ids": (head(), b"id: 1\n"),
    "empty data": (head(), b"data:\n\n"),
    "blank data": (head(), b"data: \n\n"),
    "no choices": (head(), event(choices=[])),
    "null choices": (head(), event(choices=None)),
    "empty deltas": (head(), choice()),
    "roles": (head(), choice(role="assistant", content="")),
    "null texts": (head(), choice(content=None)),
    "short texts": (head(), choice(content="a ")),
    "long texts": (head(), choice(content="a " * 30_000)),
    "reasoning": (head(), choice(reasoning_content="hm " * 1000)),
    "empty reasoning": (head(), choice(reasoning_content="")),
    "arguments": (head() + call("", "read"), call("a" * 60_000)),
    "short arguments": (head() + call("", "read"), call("a")),
    "empty arguments": (head() + call("", "read"), call("")),
    "calls": (head(), call("{}", "read", call_id="")),
    "names": (head(), call("", "read" * 1000, call_id="")),
    "answer": (head() + call('{"answer": "', "finish"), call("la " * 1000)),
    "usage": (head(), usage()),
    "text after its end": (head() + HELLO + choice("stop"), HELLO),
    "comments after the end": (head() + HELLO + choice("stop") + usage(), b": ping\n\n"),
    "usage after the end": (head() + HELLO + choice("stop"), usage()),
    "text after done": (head() + HELLO + choice("stop") + b"data: [DONE]\n\n", HELLO),
    "one line": (head(), LONG),
    "one line of data": (head() + b"data: ", LONG),
    "one text": (head() + OPEN_TEXT, LONG),
    "lines of one event": (head(), b"data: a\n"),
    "brackets": (head() + b"data: ", b"[" * 60_000),
    "digits": (head() + b'data: {"created": ', b"7" * 60_000),
    "zeros": (head(), bytes(60_000)),
    "half characters": (head() + b"data: ", b"\xe2\x82" * 30_000),
    "web page": (head(kind="text/html"), b"<p>Please wait</p>"),
    "JSON": (head(kind="application/json") + b'{"choices": [', b"{},"),
    "packed zeros": (head(**PACKED), gzip.compress(bytes(50_000_000), 1)),
    "packed comments": (head(**PACKED) + gzip.compress(b"")[:0], gzip.compress(b": ping\n\n" * 5_000_000, 1)),
    "packed text": (head(**PACKED), gzip.compress(HELLO * 300_000, 1)),
    "packed nothing": (head(**PACKED) + NOTHING_PACKED, b"\x00\x00\x00\xff\xff" * 10_000),
    "packed twice": (head(Content_Encoding="gzip, gzip"), gzip.compress(gzip.compress(bytes(50_000_000), 1))),
    "packed unknown": (head(Content_Encoding="br"), LONG),
    "zstd": (head(Content_Encoding="zstd"), LONG),
    "deflate": (head(Content_Encoding="deflate"), zlib.compress(bytes(50_000_000), 1)),
    "packed garbage": (head(**PACKED), LONG),
    "chunks of a byte": (head(**CHUNKED), chunked(b"\n")),
    "chunk extensions": (head(**CHUNKED), chunked(b"\n", b";" + b"a" * 10_000)),
    "chunk size": (head(**CHUNKED), b"0" * 1000),
    "trailers": (head(**CHUNKED) + b"0\r\n", b"X-More: 1\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\nX-More: ", LONG),
    "status line": (b"HTTP/1.1 200 ", b"OK " * 1000),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "redirects": (head(307, Location="/v1/chat/completions", Content_Length="0"), b""),
    "body of a redirect": (head(302, Location="/v1/chat/completions"), LONG),
    **{f"error {status}": (head(status, "application/json") + b'{"error": {"message": "', LONG) for status in
       (400, 401, 404, 418, 429, 500, 502, 503)},
    **{f"packed error {status}": (head(status, **PACKED), gzip.compress(bytes(50_000_000), 1)) for status in
       (400, 502)},
}  # fmt: skip
MODES = {
    **{f"{name}, at once": (*mode, 0.0) for name, mode in ENDLESS.items()},
    **{
        f"status {status}": (
            head(status, "application/json")
            + b'{"error": {"message": "upstream prematurely closed"}}',
            None,
            0.0,
        )
        for status in (*REFUSALS, *OTHER_STATUSES)
    },
    **{f"{name}, slowly": (*mode, 0.05) for name, mode in ENDLESS.items()},
    "silence": (b"", b"", 30.0),
    "silence after the head": (head(), b"", 30.0),
    "silence after text": (head() + HELLO, b"", 30.0),
    **{
        f"error in stream {number}": (head() + HELLO + stream_error(message, code), None, 0.0)
        for number, (message, code) in enumerate(ERRORS_IN_STREAM)
    },
    "shut": (b"", None, 0.0),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", None, 0.0),
    "half an answer": (head() + HELLO, None, 0.0),
    "much announced": (head(Content_Length=str(10**12)) + HELLO, b"", 30.0),
}


class Server(socketserver.ThreadingTCPServer):
    """Answers with the mode named by the requested model."""

    daemon_threads = True

    def __init__(self, modes):
        self.modes = dict(modes)
        self.asked = []
        self.closed = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        length = 0
        while line := self.rfile.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        try:
            name = (
                json.loads(self.rfile.read(length))["model"] if length else ""
            )  # a redirect may have become a GET
            self.server.asked.append(name)
            first, again, pause = self.server.modes.get(name, (b"", b"", 0))
            self.request.sendall(first)
            if again is None:
                return
            while not self.server.closed.wait(pause):
                self.request.sendall(again or b"")
                if not again:
                    return
        except (OSError, ValueError):  # the client closed the connection
            return


@pytest.fixture(scope="module")
def server():
    with Server(MODES) as running:
        yield running
        running.closed.set()
        running.shutdown()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process():
    running = RemoteProcess()
    yield running
    await running.aclose()


@pytest.fixture
def model(server, process, tmp_path):
    file = tmp_path / "prices.json"

    def build(name, **options):
        file.write_text(json.dumps({f"openai/{name}": PRICES}))
        return RemoteModel(
            f"openai/{name}",
            book=PriceBook(file=file),
            keys=Keys({"OPENAI_API_KEY": "k"}),
            process=process,
            options=RemoteOptions(server.base_url, **options),
        )

    return build


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_cap("s", "session", Amount(NANO, "usd"))
    yield ledger
    ledger.close()


async def outcome(model, request=ASK):
    """The reply or the error of one call."""
    try:
        return [piece async for piece in model.stream(request)][-1]
    except ModelError as error:
        return error


def memory(pid):
    """Peak resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


async def test_every_call_ends_and_the_helper_survives_endless_streams(model, process):
    await process.warm()
    assert isinstance(
        await outcome(model("silence", deadline=0.1)), ModelUnavailable
    )  # litellm is loaded now
    pid, gate, ends = process.pid, asyncio.Semaphore(PARALLEL_CALLS), {}

    async def play(name):
        async with gate:
            ends[name] = await asyncio.wait_for(
                outcome(model(name, deadline=DEADLINE)), DEADLINE + 600
            )

    await asyncio.gather(*map(play, MODES))
    assert process.pid == pid
    assert memory(pid) < MEMORY_LIMIT
    replies = {name for name, end in ends.items() if isinstance(end, Reply)}
    assert all("after" in name for name in replies)  # an answer that was complete
    unbilled = {
        name for name, end in ends.items() if isinstance(end, ModelError) and not end.billed
    }
    assert {int(re.findall(r"(?:error|status) (\d+)", name)[0]) for name in unbilled} <= set(
        REFUSALS
    )
    assert not [
        name
        for name, end in ends.items()
        if isinstance(end, ModelError) and len(end.message) > 1000
    ]


async def failed_call_cost(model, ledger, server):
    """The amounts spent and reserved after one failed call with retries, and the number of requests."""
    server.asked.clear()
    account = Account(session="s", turn=1, role="", model="", purpose="")
    metered = MeteredModel(model, Gate(ledger), lambda: account, retry=Waits().policy(10))
    with pytest.raises(ModelError):
        await metered.ask(ASK, lambda _: None)
    (cap,) = ledger.caps("s", 1)
    return cap.spent, cap.held, len(server.asked)


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_refusal_costs_nothing_and_only_a_busy_provider_is_retried(
    model, ledger, server, status
):
    spent, reserved, requests = await failed_call_cost(model(f"status {status}"), ledger, server)
    assert (spent, reserved, requests > 1) == (0, 0, status in (429, 529))


INTERRUPTED = ("shut", "half a head", "half an answer")
INTERRUPTED += tuple(f"error in stream {number}" for number in range(len(ERRORS_IN_STREAM)))


@pytest.mark.parametrize("name", [*INTERRUPTED, *(f"status {status}" for status in OTHER_STATUSES)])
async def test_every_attempt_of_other_failures_counts_in_full(model, ledger, server, name):
    remote = model(name)
    worst = remote.traits.price.worst(remote.size(ASK).bound, ASK.max_tokens)
    spent, reserved, requests = await failed_call_cost(remote, ledger, server)
    assert (spent, reserved, len(ledger.unreconciled())) == (worst * requests, 0, requests)
    transient = name in (
        "shut",
        "half a head",
        "status 408",
        "status 409",
        "status 425",
        "status 500",
        "status 502",
    )
    assert requests > 1 or not transient
    assert requests == 1 or name not in ("half an answer", "status 402", "status 501")


async def test_an_unreachable_server_costs_nothing(process, ledger, server, tmp_path):
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"openai/nobody": PRICES}))
    options = RemoteOptions("http://127.0.0.1:1/v1")
    keys = Keys({"OPENAI_API_KEY": "k"})
    model = RemoteModel(
        "openai/nobody", book=PriceBook(file=file), keys=keys, process=process, options=options
    )
    assert await failed_call_cost(model, ledger, server) == (0, 0, 0)


async def test_a_connection_refused_after_a_redirect_may_have_been_billed(model, server):
    server.modes["moved"] = (
        head(307, Location="http://127.0.0.1:1/v1/chat/completions"),
        None,
        0.0,
    )
    end = await outcome(model("moved"))
    assert isinstance(end, ModelUnavailable)
    assert end.billed


COUNTS = [
    "true",
    "false",
    "NaN",
    "Infinity",
    "-Infinity",
    "-1",
    "1.5",
    "7.0",
    "1e3",
    '"7"',
    '"many"',
    "[7]",
    "9" * 30,
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
async def test_usage_of_the_wrong_type_is_unknown(model, server, name, count):
    counts = {"prompt_tokens": "10", "completion_tokens": "2", "total_tokens": "12", name: count}
    fields = ", ".join(f'"{key}": {value}' for key, value in counts.items()).encode()
    last = (
        b'data: {"id": "1", "created": 1, "model": "m", "choices": [], "usage": {'
        + fields
        + b"}}\n\n"
    )
    server.modes["odd"] = (head() + HELLO + choice("stop") + last + b"data: [DONE]\n\n", None, 0.0)
    end = await outcome(model("odd"))
    assert isinstance(end, Reply)
    assert (end.text, end.usage) == ("Hello", None)


@pytest.mark.parametrize("pause", [0.0, 0.001])
async def test_invalid_usage_is_detected_at_any_packet_boundary(model, server, pause):
    """Splits the response once, at each byte of the counts; single bytes would take thousands of packets."""
    for cut in range(1, 30):
        text = b'"prompt_tokens": true, "completion_tokens": 2'
        lead, tail = (
            b'data: {"id": "1", "created": 1, "model": "m", "choices": [], "usage": {',
            b"}}\n\ndata: [DONE]\n\n",
        )
        first = head(**CHUNKED) + chunked(HELLO) + chunked(choice("stop") + lead + text[:cut])
        server.modes["cut"] = (first + chunked(text[cut:] + tail) + b"0\r\n\r\n", None, pause)
        end = await outcome(model("cut"))
        assert isinstance(end, Reply)
        assert end.usage is None


async def test_token_counts_in_an_answer_are_not_usage(model, server):
    text = json.dumps({"prompt_tokens": True, "usage": {"completion_tokens": -1}})
    server.modes["quoted"] = (
        head() + choice(content=text) + choice("stop") + usage() + b"data: [DONE]\n\n",
        None,
        0.0,
    )
    end = await outcome(model("quoted"))
    assert isinstance(end, Reply)
    assert end.usage == Usage(10, 2)


async def test_endless_arguments_are_cut_and_disable_the_model(model, ledger, server):
    account = Account(session="s", turn=1, role="", model="", purpose="")
    for mode in ("arguments, at once", "empty arguments, at once", "no choices, at once"):
        metered = MeteredModel(
            model(mode), Gate(ledger), lambda: account, retry=RetryPolicy(seconds=0)
        )
        reply = await asyncio.wait_for(metered.ask(ASK, lambda _: None), 600)
        assert reply.cut
        assert metered.traits.name in ledger.barred()


@pytest.mark.slow
async def test_a_helper_over_its_memory_limit_ends_with_a_clear_error_and_is_replaced(server):
    process = RemoteProcess(memory=1 << 30)
    try:
        remote = {
            name: RemoteModel(
                f"openai/{name}",
                book=PriceBook(),
                keys=Keys({"OPENAI_API_KEY": "k"}),
                process=process,
                options=RemoteOptions(server.base_url, silence=600, deadline=600),
            )
            for name in ("much", "silence")
        }
        concurrent = asyncio.create_task(outcome(remote["silence"]))
        while "silence" not in server.asked:  # noqa: ASYNC110 - the server runs in a thread
            await asyncio.sleep(0.05)
        first = process.pid
        huge = Request((Message("user", "x" * 250_000_000),), want="text", max_tokens=50)
        ends = [await outcome(remote["much"], huge), await concurrent]
        assert all(isinstance(end, ModelUnavailable) for end in ends)
        assert ["memory" in str(end).lower() for end in ends] == [True, True], [
            str(end)[:200] for end in ends
        ]
        assert ends[1].billed
        server.modes["much"] = (head() + HELLO + choice("stop") + b"data: [DONE]\n\n", None, 0.0)
        assert isinstance(await outcome(remote["much"]), Reply)
        assert process.pid != first
    finally:
        await process.aclose()


async def test_a_stuck_helper_is_stopped_after_the_deadline(server):
    process = RemoteProcess(grace=0.5)
    options = RemoteOptions(server.base_url, deadline=0.5)
    keys = Keys({"OPENAI_API_KEY": "k"})
    stuck = RemoteModel(
        "openai/silence", book=PriceBook(), keys=keys, process=process, options=options
    )
    try:
        await process.warm()
        os.kill(process.pid, signal.SIGSTOP)
        end = await asyncio.wait_for(outcome(stuck), 600)
        assert isinstance(end, ModelUnavailable)
        assert "no longer answered" in end.message
        assert process.pid is None
    finally:
        await process.aclose()


@pytest.mark.parametrize("provider", ["anthropic", "ollama_chat", "hosted_vllm", "openrouter"])
async def test_the_limits_apply_to_other_providers(process, server, provider):
    server.modes |= {
        "flood": (
            head(),
            b": " + b"ping " * 10_000 + b"\n\n",
            0.0,
        ),  # short ones take a minute to reach the limit
        "bomb": (head(**PACKED), gzip.compress(bytes(50_000_000), 1), 0.0),
        "gateway": (
            head(502, "application/json") + b'{"error": {"message": "upstream closed"}}',
            None,
            0.0,
        ),
        "busy": (head(429, "application/json") + b'{"error": {"message": "slow down"}}', None, 0.0),
    }
    keys = Keys({f"{provider.upper()}_API_KEY": "k"})
    address = (
        server.base_url
        if provider not in ("anthropic", "ollama_chat")
        else server.base_url.removesuffix("/v1")
    )
    options = RemoteOptions(address, deadline=60)
    for name, billed in (("flood", True), ("bomb", True), ("gateway", True), ("busy", False)):
        server.asked.clear()
        model = RemoteModel(
            f"{provider}/{name}", book=PriceBook(), keys=keys, process=process, options=options
        )
        end = await asyncio.wait_for(outcome(model), 600)
        assert isinstance(end, ModelError)
        assert (end.billed, server.asked) == (billed, [name])
