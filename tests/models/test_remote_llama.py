"""The embedded model behind `llama_cpp.server`, used like any OpenAI-compatible server."""

import asyncio
import json
import urllib.request
from decimal import Decimal

import pytest
import pytest_asyncio
from llama_server import free_port, llama_server

from ecoshell.budget import Price, PriceBook, Rates
from ecoshell.messages import Message, ToolSchema
from ecoshell.models import Delta, Reply, Request
from ecoshell.models.chat_body import chat_body
from ecoshell.models.keys import Keys
from ecoshell.models.remote import RemoteModel, RemoteOptions
from ecoshell.models.remote_process import RemoteProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "openai/smollm2"
PRICE = Price(Rates(*[Decimal(1)] * 5), source="test")
TOOL = ToolSchema(
    "read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
QUESTION = (Message("user", "Name one colour."),)


@pytest.fixture(scope="module")
def address():
    with llama_server(free_port()) as base_url:
        yield base_url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(address):
    process = RemoteProcess()
    yield RemoteModel(
        NAME,
        book=PriceBook({NAME: PRICE}),
        keys=Keys({}),
        process=process,
        options=RemoteOptions(address),
    )
    await process.aclose()


async def test_text_streams_from_a_real_server_within_the_limit(model):
    pieces = [piece async for piece in model.stream(Request(QUESTION, want="text", max_tokens=12))]
    reply = pieces[-1]
    assert isinstance(reply, Reply)
    assert reply.text
    assert "".join(piece.text for piece in pieces if isinstance(piece, Delta)).strip() == reply.text
    assert reply.cut or reply.text.endswith((".", "!"))


async def test_the_users_price_applies_to_an_unlisted_model(model):
    assert model.traits.price == PRICE
    assert model.traits.native_tools


async def test_the_servers_prompt_count_stays_within_the_bound(model, address):
    request = Request(QUESTION, tools=(TOOL,), callable_now=(TOOL,))
    count = await asyncio.to_thread(
        count_of_server, address, {**chat_body(request, native=False), "max_tokens": 1}
    )
    size = model.size(request)
    assert 50 < count <= size.bound
    assert not size.exact


def count_of_server(address, body):
    """The prompt tokens reported by the server, which reports them only without streaming."""
    headers = {"content-type": "application/json"}
    ask = urllib.request.Request(f"{address}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(ask, timeout=600) as reply:
        return json.load(reply)["usage"]["prompt_tokens"]
