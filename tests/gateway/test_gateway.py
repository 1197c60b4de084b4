"""The gateway between real clients and emulated providers: forwarding, reservations, settlements, refusals."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_play import CHAT, CLAUDE, TOKEN, Play, message_of, playing
from odd_provider import Answer, OddProvider
from providers import AnthropicMessages, Emulator, OpenAIChat, OpenAIResponses, Prompt, Reply, Text

from ecoshell.budget import PriceBook

USER = [{"role": "user", "content": "What is 17 * 23?"}]
FORMATS: list[tuple[type[Emulator], str, str, dict[str, Any]]] = [
    (
        OpenAIChat,
        "/v1/chat/completions",
        f"openai/{CHAT}",
        {"model": CHAT, "max_tokens": 200, "messages": USER},
    ),
    (
        OpenAIResponses,
        "/v1/responses",
        f"openai/{CHAT}",
        {"model": CHAT, "max_output_tokens": 200, "input": "17?"},
    ),
    (
        AnthropicMessages,
        "/v1/messages",
        f"anthropic/{CLAUDE}",
        {"model": CLAUDE, "max_tokens": 200, "messages": USER},
    ),
]


def answered(_: Prompt) -> Reply:
    return Reply((Text("The product is 391, which is what you asked for."),))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("emulator", "path", "name", "body"), FORMATS)
async def test_a_request_is_forwarded_and_settled_as_reported(
    emulator: type[Emulator],
    path: str,
    name: str,
    body: dict[str, Any],
    streams: bool,
    tmp_path: Path,
):
    with emulator() as provider:
        provider.script(answered)
        async with playing(tmp_path, provider.address) as play:
            body = {**body, **({"stream": True} if streams else {})}
            if streams and emulator is OpenAIChat:
                body["stream_options"] = {"include_usage": True}
            response = await play.client.post(path, content=json.dumps(body, indent=3))
            assert response.status_code == 200, response.text
            async with httpx.AsyncClient(trust_env=False) as direct:
                place = provider.address + path
                headers = {"authorization": "Bearer k", "x-api-key": "k"}
                plain = await direct.post(
                    place, content=json.dumps(body, indent=3), headers=headers
                )
            assert _without_ids(response.text) == _without_ids(plain.text)
            assert provider.requests[0] == provider.requests[1] == body
            entry = play.entries()[-1]
            assert (entry.model, entry.state) == (name, "settled")
            price = PriceBook().price(name)
            assert entry.usage is not None
            assert price is not None
            usage = provider.usages[0]
            assert entry.usage.output == usage.get("output_tokens", usage.get("completion_tokens"))
            assert entry.usage.input == usage.get("input_tokens", usage.get("prompt_tokens"))
            assert entry.spent_nano == price.cost(entry.usage)
            assert await play.health() == {
                "spent_usd": pytest.approx(entry.spent_nano / 1e9),
                "reserved_usd": 0,
                "left_usd": pytest.approx(1 - entry.spent_nano / 1e9),
                "requests": 1,
                "refused": 0,
            }


def _without_ids(text: str) -> str:
    """A reply without the IDs that the emulator numbers and the usage of its prompt cache."""
    import re

    return re.sub(r"(chatcmpl-|resp_|msg_|rs_|fc_)[0-9a-f]+", r"\1", text)


async def test_usage_is_requested_for_a_stream_and_kept_from_a_client_that_did_not(tmp_path: Path):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        response = await play.chat(stream=True)
        assert '"usage"' not in response.text
        assert response.text.endswith("data: [DONE]\n\n")
        assert response.text.count("word") == 3
        assert provider.requests[0]["stream_options"] == {"include_usage": True}
        response = await play.chat(stream=True, stream_options={"include_usage": True})
        assert '"usage"' in response.text
        assert [entry.state for entry in play.entries()] == ["settled", "settled"]


async def test_the_output_is_lowered_to_what_the_cap_leaves(tmp_path: Path):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="0.02") as play,
    ):
        assert (await play.chat(max_completion_tokens=30_000)).status_code == 200
        sent = provider.requests[0]["max_completion_tokens"]
        entry = play.entries()[0]
        assert 0 < sent < 30_000
        assert entry.held_output == sent
        assert entry.held_nano is not None
        assert entry.held_nano <= 20_000_000
        await play.chat(max_completion_tokens=...)
        assert provider.requests[1]["max_completion_tokens"] < 32_768
        await play.chat(max_completion_tokens=..., max_tokens=20)
        assert provider.requests[2]["max_tokens"] == 20


async def test_a_request_without_a_limit_reserves_the_longest_output_of_its_model(tmp_path: Path):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        await play.chat(max_completion_tokens=...)
        assert "max_completion_tokens" not in provider.requests[0]
        assert play.entries()[0].held_output == 32_768


@pytest.mark.parametrize("n", [1, 8])
async def test_each_choice_is_reserved(n: int, tmp_path: Path):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        await play.chat(n=n, max_completion_tokens=50)
        assert play.entries()[0].held_output == 50 * n


async def test_at_the_cap_the_error_explains_itself_and_stops_retries(tmp_path: Path):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="0.0001") as play,
    ):
        response = await play.chat()
        assert response.status_code == 402
        assert response.headers["x-should-retry"] == "false"
        assert "cap of $0.0001 reached, $0 spent, $0 reserved" in message_of(response)
        assert "ecoshell budget raise" in message_of(response)
        claude = await play.client.post(
            "/v1/messages", json={"model": CLAUDE, "max_tokens": 100, "messages": USER}
        )
        assert claude.status_code == 402
        assert claude.json()["type"] == "error"
        assert "cap" in message_of(claude)
        assert [head[0].split()[1] for head in provider.heads] == ["/v1/messages/count_tokens"]
        assert (await play.health())["refused"] == 2


ABSURD: list[Any] = [
    None,
    {},
    {"prompt_tokens": -5, "completion_tokens": 3},
    {"prompt_tokens": "5", "completion_tokens": 3},
    {"prompt_tokens": 5.5, "completion_tokens": 3},
    {"prompt_tokens": True, "completion_tokens": 3},
    {"prompt_tokens": 5, "completion_tokens": 10**15},
    {"prompt_tokens": 5, "completion_tokens": 1_000_000},
    {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 6}},
    {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "completion_tokens_details": {"reasoning_tokens": 9},
    },
    "many",
]


@pytest.mark.parametrize(
    ("usage", "streams"),
    [
        *((usage, False) for usage in ABSURD),
        (ABSURD[0], True),
        *(pytest.param(usage, True, marks=pytest.mark.slow) for usage in ABSURD[1:]),
    ],
)
async def test_without_a_credible_usage_the_whole_reservation_counts(
    usage: Any, streams: bool, tmp_path: Path
):
    async with (
        OddProvider(lambda _: Answer(usage=usage)) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        response = await play.chat(stream=streams)
        assert response.status_code == 200
        entry = play.entries()[0]
        assert (entry.state, entry.spent_nano) == ("unreported", entry.held_nano)


@pytest.mark.parametrize(
    ("answer", "state", "status"),
    [
        (Answer(status=400), "released", 400),
        (Answer(status=401), "released", 401),
        (Answer(status=429, headers=("retry-after: 7",)), "released", 429),
        (Answer(status=529), "released", 529),
        (Answer(status=500), "unreported", 500),
        (Answer(status=502), "unreported", 502),
        (Answer(status=302, headers=("location: http://127.0.0.1:9/",)), "released", 502),
        (Answer(cut_after=0), "unreported", 502),
        (Answer(cut_after=1), "unreported", 502),
    ],
)
async def test_a_failure_releases_the_reservation_only_if_it_certainly_caused_no_work(
    answer: Answer, state: str, status: int, tmp_path: Path
):
    async with (
        OddProvider(lambda _: answer) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        response = await play.chat()
        assert response.status_code == status
        assert [entry.state for entry in play.entries()] == [state]
        assert response.headers.get("retry-after") == ("7" if status == 429 else None)


async def test_a_provider_that_cannot_be_reached_costs_nothing(tmp_path: Path):
    async with playing(tmp_path, "http://127.0.0.1:9") as play:
        response = await play.chat()
        assert response.status_code == 502
        assert play.entries()[0].state == "released"


async def test_a_stream_that_is_cut_off_looks_cut_off(tmp_path: Path):
    async with (
        OddProvider(lambda _: Answer(cut_after=2)) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await play.chat(stream=True)
        assert play.entries()[0].state == "unreported"


async def test_a_client_that_goes_away_ends_the_request_and_its_reservation_counts(tmp_path: Path):
    async with (
        OddProvider(lambda _: Answer(hangs=True)) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        body = {"model": CHAT, "max_completion_tokens": 10, "messages": USER, "stream": True}
        async with play.client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for _ in response.aiter_raw():
                break
        await asyncio.wait_for(provider.closed_early.wait(), 20)
        async with asyncio.timeout(20):
            while play.entries()[0].state == "held":  # noqa: ASYNC110 - another thread writes it
                await asyncio.sleep(0.01)
        assert play.entries()[0].state == "unreported"


async def test_a_running_request_is_reserved(tmp_path: Path):
    async with (
        OddProvider(lambda _: Answer(hangs=True)) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        task = asyncio.create_task(play.chat(stream=True))
        async with asyncio.timeout(20):
            while not provider.requests:  # noqa: ASYNC110 - the provider fills a list
                await asyncio.sleep(0.01)
        assert (await play.health())["reserved_usd"] > 0
        provider.release.set()
        assert (await task).status_code == 200
        assert (await play.health())["reserved_usd"] == 0


def _without(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, ...)


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"model": "nope"}, 402, "price of openai/nope is unknown"),
    ({"model": "nope", "max_completion_tokens": ...}, 402, "no max_completion_tokens"),
    ({"model": 5}, 400, "model"),
    ({"model": "a\nb"}, 400, "model"),
    ({"max_completion_tokens": "many"}, 400, "max_completion_tokens"),
    ({"max_completion_tokens": 1e3}, 400, "max_completion_tokens"),
    ({"max_completion_tokens": 0}, 400, "max_completion_tokens"),
    ({"n": 100_000}, 400, "n must be"),
    ({"n": True}, 400, "n must be"),
    ({"stream": "yes"}, 400, "stream"),
    ({"messages": 7}, 400, "messages"),
    ({"tools": [{"type": "web_search"}]}, 402, "web_search"),
    ({"tools": "all"}, 400, "tools"),
    ({"web_search_options": {}, "n": 2}, 200, ""),
    ({"web_search_options": {"search_context_size": "high"}}, 402, "Web search"),
    ({"service_tier": "priority"}, 402, "service tier"),
    ({"audio": {"voice": "x"}}, 402, "Audio"),
    ({"modalities": ["text", "audio"]}, 402, "Output other than text"),
    ({"prediction": {"type": "content", "content": "x"}}, 402, "Predicted output"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        402,
        "Audio",
    ),
]


@pytest.mark.parametrize(("fields", "status", "text"), BAD)
async def test_what_cannot_be_priced_is_refused(
    fields: dict[str, Any], status: int, text: str, tmp_path: Path
):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        response = await play.chat(**fields)
        assert response.status_code == status, response.text
        if status != 200:
            assert text in message_of(response)
            assert provider.requests == []
        if status == 402:
            assert "cap" in message_of(response)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/batches", {}, 402),
        ("/v1/messages/batches", {}, 402),
        ("/v1/embeddings", {}, 404),
        ("/v1/responses", {"model": CHAT, "input": "x", "background": True}, 402),
        (
            "/v1/responses",
            {"model": CHAT, "input": "x", "tools": [{"type": "code_interpreter"}]},
            402,
        ),
        (
            "/v1/messages",
            {"model": CLAUDE, "max_tokens": 9, "messages": USER, "speed": "fast"},
            402,
        ),
        (
            "/v1/messages",
            {"model": CLAUDE, "max_tokens": 9, "messages": USER, "mcp_servers": [{}]},
            402,
        ),
        (
            "/v1/messages",
            {
                "model": CLAUDE,
                "max_tokens": 9,
                "messages": USER,
                "tools": [{"type": "web_search_20250305"}],
            },
            402,
        ),
    ],
)
async def test_other_requests_are_refused(
    path: str, body: dict[str, Any], status: int, tmp_path: Path
):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        response = await play.client.post(path, json=body)
        assert response.status_code == status
        assert provider.requests == []
        if status == 402:
            assert "cap" in message_of(response)


async def test_content_that_the_provider_stores_is_bounded_by_the_context(tmp_path: Path):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        body = {
            "model": CHAT,
            "input": "x",
            "max_output_tokens": 16,
            "previous_response_id": "resp_1",
        }
        await play.client.post("/v1/responses", json=body)
        assert play.entries()[0].held_input == 1_047_576


async def test_a_model_without_a_price_counts_in_tokens_if_allowed(tmp_path: Path):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="20000tok", allow_unpriced=True) as play,
    ):
        assert (await play.chat(model="nope")).status_code == 200
        entry = play.entries()[0]
        assert (entry.spent_nano, entry.usage and entry.usage.total) == (0, 8)
        refusal = await play.chat("x" * 30_000, model="nope")
        assert refusal.status_code == 402
        assert "20,000 tokens" in message_of(refusal)


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.headers.pop("authorization"),
        lambda client: client.headers.update({"authorization": "Bearer wrong"}),
        lambda client: client.headers.update({"authorization": TOKEN}),
        lambda client: client.headers.update({"authorization": "", "x-api-key": TOKEN[:-1]}),
        lambda client: client.headers.update({"host": "evil.example"}),
    ],
)
async def test_a_wrong_token_or_host_is_refused(
    change: Callable[[httpx.AsyncClient], object], tmp_path: Path
):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        change(play.client)
        response = await play.chat()
        assert response.status_code == 401
        assert TOKEN not in response.text
        assert provider.requests == []


async def test_keys_stay_in_the_gateway_and_headers_pass_on_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    async with (
        OddProvider(
            lambda _: Answer(headers=("x-request-id: r1", "set-cookie: a=b", "x-other: 1"))
        ) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        play.client.headers.update({"x-secret": "1", "user-agent": "agent/1", "cookie": "c=d"})
        for _ in range(2):
            response = await play.chat()
        assert "x-request-id" in response.headers
        assert not {"set-cookie", "x-other"} & set(response.headers)
        head = "\n".join(provider.heads[-1]).lower()
        assert "bearer sk-real-key-of-the-user" in head
        assert "agent/1" in head
        assert not any(text in head for text in (TOKEN, "x-secret", "cookie"))


async def test_a_subscription_passes_the_clients_own_credentials(tmp_path: Path):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="5000tok", is_subscription=True) as play,
    ):
        play.client.headers.update({"authorization": "Bearer oauth-of-the-client"})
        body = {"model": CHAT, "max_completion_tokens": 100, "messages": USER}
        assert (await play.client.post("/v1/chat/completions", json=body)).status_code == 401
        assert (
            await play.client.post(f"/t/{TOKEN}/v1/chat/completions", json=body)
        ).status_code == 200
        assert "Bearer oauth-of-the-client" in "\n".join(provider.heads[0])
        assert play.entries()[0].spent_nano == 0


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("content-length: 5000", "", 413),
        ("transfer-encoding: chunked", "100\r\n" + " " * 256 + "\r\n", 408),
        ("transfer-encoding: chunked", ("100\r\n" + " " * 256 + "\r\n") * 8, 413),
        ("content-length: 10", "{", 408),
        ("content-encoding: gzip\r\ncontent-length: 1", "x", 400),
    ],
)
async def test_bodies_are_bounded_in_size_and_time(
    head: str, body: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import ecoshell_gateway.server

    monkeypatch.setattr(ecoshell_gateway.server, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(ecoshell_gateway.server, "BODY_SECONDS", 0.5)
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        port = int(play.serving.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        start = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{start}{head}\r\n\r\n{body}".encode())
        async with asyncio.timeout(20):
            reply = await reader.read()  # until the gateway closes the connection
        writer.close()
        assert int(reply.split()[1]) == status
        assert provider.requests == []


@pytest.mark.parametrize("requests", [0, 1], ids=["first", "second"])
async def test_a_request_that_does_not_begin_is_disconnected(
    requests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import ecoshell_gateway.connections

    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        port = int(play.serving.url.rpartition(":")[2])
        monkeypatch.setattr(ecoshell_gateway.connections, "HEAD_SECONDS", 1.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(20):
            for _ in range(requests):
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(
                    int(head.lower().partition(b"content-length: ")[2].split()[0])
                )
            writer.write(b"GET /healthz HTTP/1.1\r\nhost:")
            assert await reader.read() == b""
        writer.close()


async def test_a_provider_that_ignores_the_limit_is_cut_off_and_its_model_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with (
        OddProvider(lambda _: Answer(pieces=20_000)) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await play.chat(stream=True, max_completion_tokens=16)
        assert play.entries()[0].state == "unreported"
        assert "no longer allowed under a cap" in message_of(await play.chat())


async def test_models_and_token_counts_are_free(tmp_path: Path):
    async with OddProvider() as provider, playing(tmp_path, provider.address) as play:
        assert (await play.client.get("/v1/models")).status_code == 200
        assert (await play.client.get("/models/gpt-4.1-mini")).status_code == 200
        body = {"model": CLAUDE, "messages": USER}
        assert (await play.client.post("/v1/messages/count_tokens", json=body)).status_code == 200
        assert [head[0].split()[1] for head in provider.heads] == [
            "/v1/models",
            "/v1/models/gpt-4.1-mini",
            "/v1/messages/count_tokens",
        ]
        assert play.entries() == []


async def test_a_counted_prompt_bounds_the_next_one(tmp_path: Path):
    counted = {"prompt_tokens": 1500, "completion_tokens": 3, "total_tokens": 1503}
    async with (
        OddProvider(lambda _: Answer(usage=counted)) as provider,
        playing(tmp_path, provider.address) as play,
    ):
        first: list[dict[str, Any]] = [{"role": "user", "content": "long " * 1200}]
        await play.chat(messages=first)
        await play.chat(
            messages=[
                *first,
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": "on"},
            ]
        )
        held = [entry.held_input for entry in play.entries()]
        assert held[0] > 6000
        assert 1500 < held[1] < 2100


async def test_anthropics_count_bounds_a_prompt_that_seems_too_long(tmp_path: Path):
    class Counting(OddProvider):
        async def _reply_whole(
            self, body: dict[str, Any], answer: Answer, writer: asyncio.StreamWriter
        ) -> bool:
            if "max_tokens" in body:
                return await super()._reply_whole(body, answer, writer)
            data = b'{"input_tokens": 900}'
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data))
            await writer.drain()
            return True

    body = {
        "model": CLAUDE,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "word " * 1000}],
    }
    async with Counting() as provider, playing(tmp_path, provider.address, budget="0.02") as play:
        assert (await play.client.post("/v1/messages", json=body)).status_code == 200
        assert [head[0].split()[1] for head in provider.heads] == [
            "/v1/messages/count_tokens",
            "/v1/messages",
        ]
        assert provider.requests[1] == body
        assert 900 < play.entries()[-1].held_input < 1300
    async with (
        OddProvider() as provider,
        playing(tmp_path / "uncounted", provider.address, budget="0.002") as play,
    ):
        assert (await play.client.post("/v1/messages", json=body)).status_code == 402


async def test_the_same_token_continues_its_cap(tmp_path: Path):
    async with OddProvider() as provider:
        async with playing(tmp_path, provider.address) as play:
            await play.chat()
            spent = (await play.health())["spent_usd"]
        async with playing(tmp_path, provider.address) as play:
            assert (await play.health())["spent_usd"] == spent > 0


async def test_a_second_gateway_on_the_port_is_refused(tmp_path: Path):
    from ecoshell.errors import UsageError

    async with playing(tmp_path / "a", "http://127.0.0.1:9") as play:
        port = int(play.serving.url.rpartition(":")[2])
        with pytest.raises(UsageError, match=f"Port {port} cannot be used"):
            async with playing(tmp_path / "b", "http://127.0.0.1:9", port=port):
                pass


async def test_a_cap_in_time_stops_a_running_request(tmp_path: Path):
    async with (
        OddProvider(lambda _: Answer(hangs=True)) as provider,
        playing(tmp_path, provider.address, budget="1.1s") as play,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await play.chat(stream=True)
        response = await play.chat()
        assert response.status_code == 402
        assert "cap" in message_of(response)


async def test_one_cap_holds_for_concurrent_clients(tmp_path: Path):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="0.003") as play,
    ):

        async def client(count: int) -> list[int]:
            return [(await play.chat(max_completion_tokens=200)).status_code for _ in range(count)]

        results = await asyncio.gather(*(client(20) for _ in range(8)))
        assert {status for statuses in results for status in statuses} <= {200, 402}
        _check_cap(play, 3_000_000)


def _check_cap(play: Play, cap: int) -> None:
    assert sum(entry.spent_nano or 0 for entry in play.entries()) <= cap
