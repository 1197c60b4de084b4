"""Images in requests to providers, as a server on loopback receives them through litellm."""

import json

import pytest
import pytest_asyncio
from hostile_server import hostile_server
from pictures import png

from ecoshell.budget import PriceBook
from ecoshell.images import image_of, image_tokens, label
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.models.chat_body import chat_body, mark_for_cache
from ecoshell.models.keys import Keys
from ecoshell.models.remote import RemoteModel, RemoteOptions, RemoteProcess

LOOP = pytest.mark.asyncio(loop_scope="module")

IMAGE = image_of(png(), "photo.png")
URL = f"data:image/png;base64,{IMAGE.data}"
PART = {"type": "image_url", "image_url": {"url": URL}}
TOOL = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
QUESTION = Message("user", f"What is this?\n\n{label(IMAGE)}", images=(IMAGE,))
CALLS = (
    Call("read_file", {"path": "a.png"}, "toolu_1"),
    Call("read_file", {"path": "b.png"}, "toolu_2"),
)
HISTORY = (
    QUESTION,
    Message("assistant", "", CALLS),
    Message("tool", label(IMAGE), CALLS[:1], images=(IMAGE,)),
    Message("tool", "a text", CALLS[1:]),
)
KEYS = Keys({"OPENAI_API_KEY": "sk-test-0123456789", "ANTHROPIC_API_KEY": "k-anthropic-1"})


@pytest.fixture(scope="module")
def server():
    with hostile_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process():
    running = RemoteProcess()
    yield running
    await running.aclose()


@pytest.fixture
def model(server, process):
    server.forget()

    def build(name, **options):
        address = server.address if name.startswith("anthropic/") else server.openai
        return RemoteModel(
            name,
            book=PriceBook(),
            keys=KEYS,
            process=process,
            options=RemoteOptions(address, **options),
        )

    return build


async def ask(model, *messages, tools=(TOOL,)):
    request = Request(messages, tools=tools, callable_now=tools, max_tokens=500)
    pieces = [piece async for piece in model.stream(request)]
    assert isinstance(pieces[-1], Reply)


@LOOP
async def test_an_image_in_a_question_is_sent_before_its_text(model, server):
    await ask(model("openai/good", native_tools=True), QUESTION)
    assert server.asked[0]["messages"] == [
        {"role": "user", "content": [PART, {"type": "text", "text": QUESTION.text}]}
    ]


@LOOP
async def test_images_of_results_follow_all_results_of_their_step(model, server):
    await ask(model("openai/good", native_tools=True), *HISTORY)
    sent = server.asked[0]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[2]["content"] == label(IMAGE)
    assert sent[4]["content"][0] == PART


@LOOP
async def test_claude_sees_images_inside_the_results(model, server):
    await ask(model("anthropic/claude-sonnet-4-5"), *HISTORY)
    user, _, results = server.asked[0]["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE.data}
    assert user["content"][0] == {"type": "image", "source": source}
    first, second = results["content"]
    assert any(part.get("source") == source for part in first["content"])
    assert second.get("cache_control") or "cache_control" in json.dumps(second)


@LOOP
async def test_a_model_without_native_tools_sees_images(model, server):
    await ask(model("openai/good", native_tools=False), *HISTORY)
    sent = server.asked[0]["messages"]
    assert [message["role"] for message in sent] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [next(iter(message["content"])) == PART for message in sent] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]


@LOOP
async def test_a_model_without_vision_gets_only_the_names(model, server):
    await ask(model("openai/good", native_tools=True, vision=False), *HISTORY)
    assert IMAGE.data not in json.dumps(server.asked[0])
    assert label(IMAGE) in json.dumps(server.asked[0], ensure_ascii=False)


@LOOP
async def test_images_are_counted_and_bounded(model):
    good = model("openai/good", native_tools=True)
    with_image, without = (
        good.size(Request((message,), tools=(TOOL,)))
        for message in (QUESTION, Message("user", QUESTION.text))
    )
    assert with_image.count == without.count + image_tokens(IMAGE)
    assert with_image.bound >= without.bound + 2_000
    blind = model("openai/good", native_tools=True, vision=False)
    assert blind.size(Request((QUESTION,), tools=(TOOL,))) == without


@LOOP
async def test_vision_follows_the_price_file_and_the_settings(model):
    book = {"book": PriceBook(), "keys": KEYS, "process": RemoteProcess()}
    assert RemoteModel("openai/gpt-4o", **book).traits.vision is True
    assert RemoteModel("openai/gpt-3.5-turbo", **book).traits.vision is False
    assert model("openai/good").traits.vision is None
    assert RemoteModel("ollama/llama3", **book).traits.vision is None
    assert (
        RemoteModel(
            "openai/gpt-3.5-turbo", **book, options=RemoteOptions(vision=True)
        ).traits.vision
        is True
    )


def test_a_task_after_an_image_is_not_cached():
    task = "\n\nDecide."
    request = Request((Message("user", f"See.{task}", images=(IMAGE,)),), task=task)
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    image, shared, last = body["messages"][0]["content"]
    assert (image, last) == (PART, {"type": "text", "text": task})
    assert shared == {"type": "text", "text": "See.", "cache_control": {"type": "ephemeral"}}
