"""Remote models over real HTTP: a hostile provider on loopback, litellm in its helper process."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace

import pytest
import pytest_asyncio
from hostile_server import hostile_server
from model_servers import EMPTY_OLLAMA, model_server

from ecoshell.budget import PriceBook
from ecoshell.catalog import FINISH_SCHEMA
from ecoshell.errors import (
    ContextExceeded,
    ModelBroken,
    ModelMissing,
    ModelUnavailable,
    ModelUnreachable,
)
from ecoshell.messages import Call, Message, ToolSchema, Usage
from ecoshell.models import Delta, Reply, Request, request_bound
from ecoshell.models.keys import Keys
from ecoshell.models.remote import RemoteModel, RemoteOptions, named_parameters
from ecoshell.models.remote_process import RemoteProcess
from ecoshell.models.traffic import Traffic, retry_after

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-test-0123456789abcdef"
NATIVE = """
caller two-calls half-a-call deep-call nan-call list-call wrong-call stranger good two-calls-numbered-alike
second-call-broken marked-caller finisher early-finisher repeater doubler
"""
READ_FILE = ToolSchema(
    "files.read_file",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
QUESTION = (Message("system", "You help."), Message("user", "What is in notes.txt?"))
ASK = Request(QUESTION, want="text", max_tokens=50)
ASK_WITH_TOOL = Request(QUESTION, tools=(READ_FILE,), callable_now=(READ_FILE,), max_tokens=50)
ASK_WITH_FINISH = replace(
    ASK_WITH_TOOL, tools=(READ_FILE, FINISH_SCHEMA), callable_now=(READ_FILE, FINISH_SCHEMA)
)


@pytest.fixture(scope="module")
def server():
    with hostile_server() as running:
        yield running


@pytest.fixture(autouse=True)
def forget(server):
    server.forget()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process():
    running = RemoteProcess()
    yield running
    await running.aclose()


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    entry = {"litellm_provider": "openai", "mode": "chat", "supports_function_calling": True}
    entry["max_input_tokens"] = 128_000
    file = tmp_path_factory.mktemp("prices") / "prices.json"
    file.write_text(json.dumps({f"openai/{name}": entry for name in NATIVE.split()}, indent=4))
    return PriceBook(file=file)


@pytest.fixture
def model(server, process, book):
    def build(name, **options):
        fields = {
            "base_url": server.openai,
            "keys": Keys({"OPENAI_API_KEY": KEY}),
            "book": book,
        } | options
        parts = {part: fields.pop(part) for part in ("keys", "book")}
        return RemoteModel(name, process=process, options=RemoteOptions(**fields), **parts)

    return build


async def ask(model, request=ASK):
    """The reply and the streamed text."""
    pieces = [piece async for piece in model.stream(request)]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1], "".join(piece.text for piece in pieces[:-1])


async def failure(model, request=ASK):
    with pytest.raises((ModelMissing, ModelUnavailable, ModelBroken)) as caught:
        await ask(model, request)
    return caught.value


async def test_the_bound_of_an_openai_model_uses_its_tokenizer(process, book):
    text = "The quick brown fox jumps over the lazy dog. " * 200
    request = Request((Message("system", text), Message("user", "?")))
    own = RemoteModel(
        "openai/gpt-4o", book=book, keys=Keys({"OPENAI_API_KEY": KEY}), process=process
    )
    try:
        assert own._counter.wait()
        size = own.size(request)
        assert size.count < size.bound < request_bound(request, native_tools=False) / 3
    finally:
        await own.aclose()


@pytest.mark.parametrize(
    ("name", "purpose", "writes"),
    [
        ("anthropic/claude-sonnet-4-5", "step", True),
        ("anthropic/claude-sonnet-4-5", "rank", False),
        ("openai/gpt-4o", "rank", True),
    ],
)
async def test_only_a_request_with_cache_marks_can_write_to_anthropics_cache(
    book, process, name, purpose, writes
):
    model = RemoteModel(name, book=book, keys=Keys({}), process=process)
    assert model.size(replace(ASK, purpose=purpose)).cache_writes == writes
    await model.aclose()


async def test_text_streams_and_ends_in_a_reply_with_the_reported_usage(model):
    reply, streamed = await ask(model("openai/good"), Request(QUESTION, want="text"))
    assert reply == Reply("The answer.", usage=Usage(input=70, output=12, cached=40, reasoning=5))
    assert streamed == "The answer."


async def test_the_request_has_the_limit_the_temperature_and_the_key(model, server):
    await ask(model("openai/good"), Request(QUESTION, want="text", max_tokens=77, temperature=0.5))
    body = server.asked[0]
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (77, 0.5, True)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_unreported_usage_is_unknown_despite_litellms_estimate(model):
    reply, _ = await ask(model("openai/no-usage"))
    assert (reply.text, reply.usage) == ("The answer.", None)


async def test_the_larger_of_two_usage_reports_counts(model):
    reply, _ = await ask(model("openai/double-usage"))
    assert reply.usage == Usage(input=140, output=24)


async def test_reasoning_counted_only_in_the_total_is_output(model):
    reply, _ = await ask(model("openai/hidden-reasoner"))
    assert reply.usage == Usage(input=70, output=512)


@pytest.mark.parametrize("behaviour", ["garbage-usage", "negative-usage", "zero-usage"])
async def test_implausible_usage_is_unknown_and_keeps_the_answer(model, behaviour):
    reply, _ = await ask(model(f"openai/{behaviour}"))
    assert (reply.text, reply.usage) == ("The answer.", None)


async def test_an_answer_at_the_limit_is_reported_as_cut(model):
    reply, _ = await ask(model("openai/length"))
    assert reply.cut
    assert reply.usage is not None


@pytest.mark.parametrize(
    ("behaviour", "kind", "billed", "message"),
    [
        ("cut", ModelUnavailable, True, ""),
        ("failing", ModelUnavailable, True, ""),
        ("reset", ModelUnavailable, True, ""),
        ("error-inside", ModelUnavailable, True, "overloaded"),
        ("gave-up-waiting", ModelUnavailable, True, ""),
        ("broken-down", ModelUnavailable, True, ""),
        ("no-funds", ModelUnavailable, True, ""),
        ("too-many", ModelUnavailable, False, ""),
        ("garbage", ModelBroken, True, ""),
        ("web-page", ModelBroken, True, ""),
        ("half-json", ModelBroken, True, ""),
        ("picky", ModelBroken, False, "I do not like this"),
    ],
)
async def test_a_failure_is_possibly_billed_unless_the_request_was_refused(
    model, server, behaviour, kind, billed, message
):
    error = await failure(model(f"openai/{behaviour}"))
    assert isinstance(error, kind)
    assert error.billed == billed
    assert message in error.message
    assert "\x1b" not in str(error)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("behaviour", "transient", "retry_after", "message"),
    [
        ("too-many", True, 1.0, "failed with HTTP 429 (too many requests): slow down"),
        ("overloaded", True, 2.5, "failed with HTTP 529 (overloaded): "),
        ("broken-down", True, None, "failed with HTTP 500 (internal error): oops"),
        ("reset", True, None, "did not answer: "),
        ("no-funds", False, None, "failed with HTTP 402 (payment required): pay first"),
        (
            "out-of-credit",
            False,
            None,
            "failed with HTTP 429 (too many requests): You exceeded your current quota.",
        ),
    ],
)
async def test_a_failure_has_its_status_and_its_retry_delay(
    model, behaviour, transient, retry_after, message
):
    error = await failure(model(f"openai/{behaviour}"))
    assert isinstance(error, ModelUnavailable)
    assert (error.transient, error.retry_after) == (transient, retry_after)
    assert error.message.startswith(f"openai/{behaviour} {message}")


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m6.5s"}, 66.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"}, None),
    ],
)
async def test_the_retry_delay_is_read_from_the_headers(headers, seconds):
    assert retry_after(headers, NOW) == seconds


async def test_a_refusal_is_a_finish_reason(model):
    reply, _ = await ask(model("openai/refuser"))
    assert (reply.text, reply.finish) == ("I cannot.", "refusal")


@pytest.mark.parametrize(
    ("sent", "finish"),
    [
        (b'"finishReason": "MALFORMED_FUNCTION_CALL"', "malformed_call"),
        (b'{"delta":{"stop_reason":"refusal"}}', "refusal"),
        (b'{"delta":{"stop_reason":"end_turn"}}', "stop"),
        (b'{"content":"{\\"stop_reason\\":\\"refusal\\"}"}', "stop"),
    ],
)
async def test_a_finish_reason_that_litellm_hides_is_restored(sent, finish):
    async def pieces():
        yield sent[:20]
        yield sent[20:]

    traffic = Traffic(1000)
    async for _ in traffic.body(pieces(), "identity", refused=False):
        pass
    assert traffic.finish("stop") == finish
    assert traffic.finish("length") == "length"


@pytest.mark.parametrize(
    ("name", "address", "message"),
    [
        (
            "openai/good",
            "http://127.0.0.1:1/v1",
            "The server of openai/good does not answer on 127.0.0.1:1. Start it",
        ),
        (
            "ollama/x",
            "http://localhost:1",
            "Ollama does not answer on localhost:1. Start it with ollama serve, or",
        ),
        (
            "openai/good",
            "http://nowhere.invalid/v1",
            "openai/good cannot be reached at nowhere.invalid:80. Is this",
        ),
    ],
)
async def test_an_unreachable_server_is_named_by_its_address_and_not_billed(
    model, name, address, message
):
    error = await failure(model(name, base_url=address))
    assert isinstance(error, ModelUnreachable)
    assert not error.billed
    assert str(error).startswith(message)


async def test_silence_over_the_limit_is_an_error_and_possibly_billed(model):
    error = await failure(model("openai/slow", silence=0.5))
    assert isinstance(error, ModelUnavailable)
    assert error.billed


async def test_a_prompt_over_the_context_suggests_a_larger_context(model):
    error = await failure(model("openai/too-long"))
    assert isinstance(error, ContextExceeded)
    assert error.limit == 4_097
    assert "exceeds the context of openai/too-long" in error.message
    assert "larger context" in error.fix
    assert not error.billed


async def test_a_rejected_key_names_the_variable_and_not_the_key(model):
    error = await failure(model("openai/wrong-key"))
    assert isinstance(error, ModelMissing)
    assert "OPENAI_API_KEY" in error.fix
    assert "keyring set ecoshell OPENAI_API_KEY" in error.fix
    assert KEY not in str(error)
    assert "sk-abcdef" not in str(error)


async def test_no_process_starts_without_a_key(book):
    fresh = RemoteProcess()
    error = await failure(
        RemoteModel("openai/good", book=book, keys=Keys({}, NoVault()), process=fresh)
    )
    assert isinstance(error, ModelMissing)
    assert "OPENAI_API_KEY" in error.fix
    assert fresh.pid is None


async def test_a_check_finds_a_missing_key_and_an_unknown_name_before_any_call(book):
    parts = {"book": book, "keys": Keys({}, NoVault()), "process": RemoteProcess()}
    with pytest.raises(ModelMissing, match="OPENAI_API_KEY"):
        RemoteModel("openai/good", **parts).check()
    with pytest.raises(ModelMissing, match="Did you mean embedded"):
        RemoteModel("embeded", **parts).check()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ollama/qwen2.5-coder:1.5b", 1_500_000_000),
        ("openai/Qwen2.5-0.5B-Instruct", 500_000_000),
        ("ollama/smollm2:135m", 135_000_000),
        ("together_ai/mistralai/Mixtral-8x7B-Instruct-v0.1", 56_000_000_000),
        ("ollama/qwen3:30b-a3b", 30_000_000_000),
        ("openai/qwen2.5-7b-instruct-1m", 7_000_000_000),
        ("anthropic/claude-sonnet-4-5-1m", None),
        ("openai/gpt-4o", None),
        ("openai/phi-3-mini-128k", None),
    ],
)
async def test_the_parameter_count_is_read_from_a_models_name(name, parameters):
    assert named_parameters(name) == parameters


async def test_settings_override_the_price_book(book):
    parts = {"book": book, "keys": Keys({}, NoVault()), "process": RemoteProcess()}
    default = RemoteModel("openai/good", **parts).traits
    configured = RemoteModel(
        "openai/good", **parts, options=RemoteOptions(native_tools=False, context=4096)
    ).traits
    assert (default.native_tools, default.context) == (True, 128_000)
    assert (configured.native_tools, configured.context) == (False, 4096)


@pytest.mark.parametrize(
    ("name", "sent"), [("ollama_chat/qwen3:4b", 32_768), ("lm_studio/qwen3-4b", None)]
)
async def test_ollama_is_asked_for_the_context_of_the_settings(book, name, sent):
    options = RemoteOptions("http://127.0.0.1:1", context=32_768, set_context=32_768)
    parts = {"book": book, "keys": Keys({}, NoVault()), "process": RemoteProcess()}
    body = RemoteModel(name, **parts, options=options)._request_body(ASK)
    assert body.get("num_ctx") == sent


async def test_a_key_from_the_keyring_is_sent(model, server):
    await ask(model("openai/good", keys=Keys({}, KeptKey())))
    assert server.headers[0]["authorization"] == "Bearer kept-in-the-keyring"


async def test_a_custom_server_needs_no_key(model):
    reply, _ = await ask(model("openai/good", keys=Keys({}, NoVault())))
    assert reply.text == "The answer."


async def test_a_name_without_a_provider_uses_openais_protocol_at_a_custom_address(model, server):
    await ask(model("good"))
    assert server.asked[0]["model"] == "good"


async def test_an_unknown_model_suggests_similar_names_and_starts_nothing():
    fresh = RemoteProcess()
    error = await failure(
        RemoteModel("gpt-4o-mimi", book=PriceBook(), keys=Keys({}), process=fresh)
    )
    assert isinstance(error, ModelMissing)
    assert "gpt-4o-mini" in error.fix
    assert fresh.pid is None


@pytest.mark.parametrize("name", ["nosuchprovider/model", "openai/no-such-model"])
async def test_a_model_unknown_to_the_provider_is_missing(model, server, name):
    error = await failure(
        model(name, base_url=server.openai if name.startswith("openai") else None)
    )
    assert isinstance(error, ModelMissing)
    assert name in error.message
    assert not error.billed


async def test_a_model_missing_on_an_ollama_server_names_the_command_that_downloads_it(model):
    with model_server(EMPTY_OLLAMA) as ollama:
        error = await failure(model("ollama_chat/qwen3:4b", base_url=f"http://{ollama.host}"))
    assert isinstance(error, ModelMissing)
    assert error.fix.startswith("Download it with ollama pull qwen3:4b")


async def test_a_native_call_has_its_original_name_and_arguments(model, server):
    reply, _ = await ask(model("openai/caller"), ASK_WITH_TOOL)
    assert reply.call == Call("files.read_file", {"path": "notes.txt"}, "c0")
    assert not reply.fault
    sent = server.asked[0]["tools"][0]["function"]["name"]
    assert sent.replace("_", "").replace("-", "").isalnum()


@pytest.mark.parametrize("behaviour", ["two-calls", "two-calls-numbered-alike"])
async def test_two_calls_in_one_reply_are_parsed_in_order(model, server, behaviour):
    reply, _ = await ask(model(f"openai/{behaviour}"), ASK_WITH_TOOL)
    assert [call.arguments["path"] for call in reply.calls] == ["first.txt", "second.txt"]
    assert {call.name for call in reply.calls} == {"files.read_file"}
    assert server.asked[0]["parallel_tool_calls"] is (ASK_WITH_TOOL.want == "either")


async def test_a_call_left_in_the_text_by_the_server_is_parsed(model):
    pieces = [piece async for piece in model("openai/marked-caller").stream(ASK_WITH_TOOL)]
    reply = pieces[-1]
    assert reply.call == Call("files.read_file", {"path": "a.txt"})
    assert (reply.reasoning, reply.text) == ("Which one?", "I look.")
    assert "".join(piece.text for piece in pieces[:-1] if piece.reasoning) == "Which one?"
    assert "".join(piece.text for piece in pieces[:-1] if not piece.reasoning) == "I look.\n"


async def test_the_answer_in_a_call_of_finish_is_streamed(model):
    pieces = [piece async for piece in model("openai/finisher").stream(ASK_WITH_FINISH)]
    assert [piece.text for piece in pieces[:-1] if piece.answer] == ["Milk ", "😀, ", "eggs"]
    assert "".join(piece.text for piece in pieces[:-1] if not piece.answer) == "That is all."
    assert pieces[-1].text == "That is all."
    assert pieces[-1].call == Call("finish", {"answer": "Milk 😀, eggs"}, "c0")
    assert sum(piece.unseen for piece in pieces[:-1]) > len("Milk, eggs")


async def test_the_answer_of_finish_after_another_call_is_not_streamed(model):
    reply, streamed = await ask(model("openai/early-finisher"), ASK_WITH_FINISH)
    assert [call.name for call in reply.calls] == ["files.read_file", "finish"]
    assert streamed == ""


async def test_no_temperature_is_sent_by_default(model, server):
    await ask(model("openai/good"), replace(ASK, temperature=None))
    await ask(model("openai/good"), replace(ASK, temperature=0.0))
    assert ["temperature" in body for body in server.asked] == [False, True]
    assert server.asked[1]["temperature"] == 0


def record(text="", *calls, finish="stop"):
    """The helper's record of an answer."""
    functions = [{"name": "files.read_file", "arguments": arguments} for arguments in calls]
    tool_calls = [
        {"id": f"c{number}", "type": "function", "function": dict(f)}
        for number, f in enumerate(functions)
    ]
    message = {"content": text, "tool_calls": tool_calls} if tool_calls else {"content": text}
    return {
        "text": text,
        "reasoning": "",
        "calls": functions,
        "message": message,
        "usage": None,
        "finish": finish,
    }


async def test_reasoning_before_a_native_call_is_not_in_the_text(model):
    reply = model("openai/caller")._reply(
        record("<think>secret</think>\n\nI look.", '{"path": "a"}'), ASK_WITH_TOOL
    )
    assert (reply.text, reply.reasoning, len(reply.calls)) == ("I look.", "secret", 1)


async def test_the_fault_of_a_truncated_call_asks_for_a_shorter_one(model):
    reply = model("openai/caller")._reply(record("", '{"path": "a', finish="length"), ASK_WITH_TOOL)
    assert "cut" in reply.fault
    assert "shorter" in reply.fault


async def test_an_answer_ended_by_a_content_filter_says_so(model):
    reply = model("openai/caller")._reply(record("Half of", finish="content_filter"), ASK_WITH_TOOL)
    assert reply.text.startswith("Half of")
    assert reply.text.endswith("content filter ended this reply.]")


async def test_a_text_with_an_example_call_in_the_middle_is_an_answer(model):
    example = 'A call looks like this:\n```json\n{"name": "get_weather", "arguments": {}}\n```'
    native = model("openai/caller")
    assert native._reply(record(example), ASK_WITH_TOOL).attempt.name == "get_weather"
    assert native._reply(record(f"{example}\nThat is all."), ASK_WITH_TOOL) == Reply(
        f"{example}\nThat is all."
    )


async def test_a_tool_name_repeated_in_every_delta_is_one_name(model):
    reply, _ = await ask(model("openai/repeater"), ASK_WITH_TOOL)
    assert reply.calls == (Call("files.read_file", {"path": "a.txt"}, "c0"),)


async def test_duplicated_arguments_are_parsed_once(model):
    reply, _ = await ask(model("openai/doubler"), ASK_WITH_TOOL)
    assert (reply.calls, reply.fault) == ((Call("files.read_file", {"path": "a.txt"}, "c0"),), "")


async def test_an_invalid_call_after_a_valid_one_has_its_own_fault(model):
    reply, _ = await ask(model("openai/second-call-broken"), ASK_WITH_TOOL)
    assert [(call.id, bool(call.fault)) for call in reply.calls] == [("c0", False), ("c1", True)]
    assert not reply.fault


async def test_reasoning_is_streamed_separately_from_the_answer(model):
    pieces = [piece async for piece in model("openai/reasoner").stream(ASK)]
    thought = "".join(piece.text for piece in pieces[:-1] if piece.reasoning)
    assert thought == pieces[-1].reasoning == "Let me think."
    assert pieces[-1].text == "The answer."
    assert "".join(piece.text for piece in pieces[:-1] if not piece.reasoning) == "The answer."


@pytest.mark.parametrize(
    ("behaviour", "complaint"),
    [
        ("half-a-call", "files.read_file are not valid JSON"),
        ("deep-call", "files.read_file are not valid JSON"),
        ("nan-call", "NaN is not JSON"),
        ("list-call", "files.read_file must be one JSON object"),
        ("wrong-call", "path"),
    ],
)
async def test_an_invalid_native_call_explains_its_fault(model, behaviour, complaint):
    reply, _ = await ask(model(f"openai/{behaviour}"), ASK_WITH_TOOL)
    assert complaint in reply.call.fault
    assert not reply.fault


async def test_arguments_that_are_not_an_object_are_sent_back_as_an_empty_one(model):
    reply, _ = await ask(model("openai/half-a-call"), ASK_WITH_TOOL)
    assert reply.state.message["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_a_call_of_an_unknown_tool_passes_to_the_guards(model):
    reply, _ = await ask(model("openai/stranger"), ASK_WITH_TOOL)
    assert (reply.call.name, reply.call.fault) == ("rm_rf", "")


async def test_a_call_in_the_text_is_parsed_without_native_tools(model, server):
    read_file = ToolSchema("read_file", READ_FILE.description, READ_FILE.parameters)
    request = Request(QUESTION, tools=(read_file,), callable_now=(read_file,))
    reply, _ = await ask(model("openai/text-caller", native_tools=False), request)
    assert reply.call == Call("read_file", {"path": "a.txt"})
    assert "tools" not in server.asked[0]


@pytest.mark.parametrize(
    ("want", "choice"), [("call", "required"), ("either", "auto"), ("text", "none")]
)
async def test_the_wanted_kind_of_reply_becomes_the_tool_choice(model, server, want, choice):
    await ask(model("openai/good"), Request(QUESTION, (READ_FILE,), (READ_FILE,), want))
    assert server.asked[0]["tool_choice"] == choice


async def test_half_a_surrogate_pair_in_a_message_is_sent_as_a_question_mark(model, server):
    await ask(model("openai/good"), Request((Message("user", "a\ud800b"),), want="text"))
    assert server.asked[0]["messages"][0]["content"] == "a?b"


async def test_claudes_cached_and_written_tokens_are_part_of_the_input(model, server):
    claude = model(
        "anthropic/claude-x",
        base_url=server.address,
        keys=Keys({"ANTHROPIC_API_KEY": "k-anthropic-1"}),
    )
    reply, _ = await ask(claude)
    assert reply == Reply("The answer.", usage=Usage(input=90, output=9, cached=50, cache_write=30))
    assert server.asked[0]["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert server.asked[0]["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


async def test_claude_gets_the_shared_prompt_of_two_requests_as_one_marked_block(model, server):
    claude = model(
        "anthropic/claude-x",
        base_url=server.address,
        keys=Keys({"ANTHROPIC_API_KEY": "k-anthropic-1"}),
    )
    system, question, tasks = *QUESTION, ("\n\nDecide.", "\n\nCall.")
    decided = (question, Message("assistant", "Read it."), Message("user", tasks[1].strip()))
    await ask(
        claude,
        replace(
            ASK, messages=(system, replace(question, text=question.text + tasks[0])), task=tasks[0]
        ),
    )
    await ask(claude, replace(ASK, messages=(system, *decided), task=tasks[1]))
    first, second = (body["messages"] for body in server.asked)
    shared = {"type": "text", "text": question.text, "cache_control": {"type": "ephemeral"}}
    assert first[0]["content"] == [shared, {"type": "text", "text": tasks[0]}]
    assert second[0]["content"] == [shared]
    assert "cache_control" not in json.dumps(second[1:])


async def test_each_of_many_parallel_calls_gets_its_own_answer(model):
    echo = model("openai/echo")
    questions = [f"question number {number}" for number in range(12)]
    replies = await asyncio.gather(
        *(ask(echo, Request((Message("user", text),), want="text")) for text in questions)
    )
    assert [reply.text for reply, _ in replies] == questions


async def test_closing_an_endless_stream_closes_the_connection(model, server):
    async with aclosing(model("openai/endless").stream(ASK)) as pieces:
        async for piece in pieces:
            assert isinstance(piece, Delta)
            if "7" in piece.text:
                break
    assert await asyncio.to_thread(server.client_left.wait, 600)


async def test_cancelling_before_the_first_byte_closes_the_connection(model, server):
    task = asyncio.create_task(ask(model("openai/slow")))
    assert await asyncio.to_thread(server.arrived.wait, 600)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.client_left.wait, 600)


class NoVault:
    def get_password(self, service_name, username):
        return None


class KeptKey:
    def get_password(self, service_name, username):
        return (
            "kept-in-the-keyring"
            if (service_name, username) == ("ecoshell", "OPENAI_API_KEY")
            else None
        )
