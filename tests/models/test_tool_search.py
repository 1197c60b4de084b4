"""Which models search deferred tools, what they get back, and what the bound reserves."""

from types import SimpleNamespace

import pytest

from ecoshell.budget import PriceBook
from ecoshell.catalog import DEFERRED
from ecoshell.messages import Call, Message, ProviderState, ToolSchema, Usage
from ecoshell.models import PromptSize, Request, request_bound
from ecoshell.models.chat_body import chat_body
from ecoshell.models.keys import Keys
from ecoshell.models.prompt_bound import PER_TOOL, json_bound
from ecoshell.models.prompt_counts import ReportedPrompts
from ecoshell.models.remote import RemoteModel
from ecoshell.models.remote_replies import sent_back
from ecoshell.models.streamed_answer import StreamedAnswer
from ecoshell.models.tool_search import client_calls, loaded_names, search_tool

REGEX = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ, WEB, MAIL = (
    ToolSchema(name, f"{name} does it.", SCHEMA) for name in ("read_file", "web_fetch", "mail_send")
)
SEARCH_CALL = {
    "id": "srvtoolu_1",
    "type": "function",
    "function": {"name": REGEX["name"], "arguments": '{"query":"w"}'},
}
WEB_CALL = {
    "id": "toolu_1",
    "type": "function",
    "function": {"name": "web_fetch", "arguments": '{"path":"x"}'},
}


def result(*names, search="srvtoolu_1"):
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    return {"type": "tool_search_tool_result", "tool_use_id": search, "content": content}


def request(*tools, loads=("web_fetch",)):
    state = ProviderState(
        "anthropic",
        {
            "content": "I look.",
            "tool_calls": [SEARCH_CALL, WEB_CALL],
            "provider_specific_fields": {"tool_results": [result(*loads)]},
        },
    )
    call = Call("web_fetch", {"path": "x"}, "toolu_1")
    step = (
        Message("assistant", "I look.", (call,), state=state),
        Message("tool", "Fetched.", (call,)),
    )
    return Request((Message("user", "Go."), *step), tools=tools)


def deferred(schema):
    return ToolSchema(schema.name, schema.description, schema.parameters, deferred=True)


@pytest.mark.parametrize(
    ("provider", "name", "own_server", "setting", "type_"),
    [
        ("anthropic", "claude-sonnet-4-5", False, None, REGEX["type"]),
        ("anthropic", "anthropic/claude-opus-4-5-20251101", False, None, REGEX["type"]),
        ("anthropic", "claude-opus-5-5", False, None, REGEX["type"]),
        ("anthropic", "claude-sonnet-4-20250514", False, None, None),
        ("anthropic", "claude-haiku-4-5", False, None, None),
        ("anthropic", "claude-3-7-sonnet-latest", False, None, None),
        ("anthropic", "claude-sonnet-4-5", True, None, None),
        ("anthropic", "claude-sonnet-4-5", True, True, REGEX["type"]),
        ("anthropic", "claude-sonnet-4-5", False, False, None),
        ("bedrock", "bedrock/anthropic.claude-sonnet-4-5-v1:0", False, None, None),
        ("openrouter", "openrouter/anthropic/claude-sonnet-4-5", False, True, None),
        ("openai", "openai/gpt-5.4", False, None, "tool_search"),
        ("openai", "openai/responses/gpt-5.4-mini", False, None, "tool_search"),
        ("openai", "gpt-5.4-nano", False, None, None),
        ("openai", "openai/gpt-5.2", False, None, None),
        ("openai", "openai/gpt-5-mini", False, None, None),
        ("openai", "openai/gpt-5.4", True, True, None),
        ("openai", "openai/responses/gpt-5.4", True, True, "tool_search"),
        ("gemini", "gemini/gemini-3.1-pro-preview", False, True, None),
    ],
)
def test_a_model_searches_only_if_its_provider_supports_it(
    provider, name, own_server, setting, type_
):
    tool = search_tool(provider, name, own_server=own_server, wanted=setting)
    assert (tool and tool["type"]) == type_


def test_the_tool_array_keeps_its_order_while_tools_are_registered():
    tools = (WEB, READ, MAIL)
    first = DEFERRED.array((READ,), deferrable=tools, finish=False)
    second = DEFERRED.array((READ, MAIL), deferrable=tools, finish=False)
    assert [(tool.name, tool.deferred) for tool in first] == [
        ("read_file", False),
        ("web_fetch", True),
        ("mail_send", True),
    ]
    assert [tool.name for tool in second] == [tool.name for tool in first]


def test_a_loaded_tool_stays_deferred_but_a_registered_tool_does_not():
    body = chat_body(
        request(READ, WEB, MAIL, deferred(MAIL)), native=True, family="anthropic", search=REGEX
    )
    assert [tool.get("defer_loading", False) for tool in body["tools"]] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert body["tools"][-1] == REGEX
    [assistant] = [message for message in body["messages"] if message["role"] == "assistant"]
    assert [call["id"] for call in assistant["tool_calls"]] == ["srvtoolu_1", "toolu_1"]
    assert assistant["provider_specific_fields"]["tool_results"] == [result("web_fetch")]
    assert [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"] == ["toolu_1"]


@pytest.mark.parametrize(
    ("tools", "search"),
    [((READ, WEB), None), ((READ, deferred(MAIL)), REGEX), ((READ, MAIL), REGEX)],
    ids=["no search", "a loaded tool is gone", "nothing is deferred"],
)
def test_searches_that_the_provider_would_refuse_are_omitted(tools, search):
    body = chat_body(request(*tools), native=True, family="anthropic", search=search)
    [assistant] = [message for message in body["messages"] if message["role"] == "assistant"]
    assert assistant["tool_calls"] == [WEB_CALL]
    assert "provider_specific_fields" not in assistant


def test_another_provider_family_gets_no_search():
    body = chat_body(request(READ, WEB), native=True, family="gemini")
    assert "srvtoolu" not in str(body)
    assert "tool_reference" not in str(body)


def test_provider_state_keeps_its_searches():
    reply = {
        "content": None,
        "tool_calls": [SEARCH_CALL],
        "thinking_blocks": [{"thinking": "t", "signature": "s"}],
    }
    reply["provider_specific_fields"] = {"tool_results": [result("web_fetch")], "citations": []}
    back = sent_back(reply, "anthropic", "claude-sonnet-4-5", own_server=False)
    assert back["provider_specific_fields"] == {"tool_results": [result("web_fetch")]}
    items = [{"type": "tool_search_output", "tools": [{"type": "function", "name": "web_fetch"}]}]
    reply = {"content": "x", "provider_specific_fields": {"tool_search_items": items}}
    for own_server in (False, True):
        back = sent_back(reply, "openai", "openai/responses/gpt-5.4", own_server=own_server)
        assert [*loaded_names(back)] == ["web_fetch"]
    assert client_calls({"tool_calls": [SEARCH_CALL, WEB_CALL]}) == [WEB_CALL]


def test_a_streamed_list_that_repeats_itself_is_not_duplicated():
    class Delta:
        def __init__(self, **fields):
            self.provider_specific_fields = fields

    answer = StreamedAnswer()
    answer._take_fields(Delta(tool_results=[1], thought_signatures=["a"]))
    answer._take_fields(Delta(tool_results=[1, 2], thought_signatures=["b"]))
    assert answer.fields == {"tool_results": [1, 2], "thought_signatures": ["a", "b"]}


def chunk(arguments: str, name: str = "") -> SimpleNamespace:
    """A chunk of litellm with a piece of a call."""
    function = SimpleNamespace(name=name, arguments=arguments)
    part = SimpleNamespace(index=0, id="c1" if name else "", function=function)
    delta = SimpleNamespace(content="", tool_calls=[part])
    return SimpleNamespace(choices=[SimpleNamespace(delta=delta, finish_reason="")])


def growth(path: str, *pieces: str) -> list[dict[str, object]]:
    answer = StreamedAnswer()
    chunks = [chunk('{"path": ', "write_file"), *map(chunk, (f'"{path}", "content": "', *pieces))]
    return [taken["call"] for taken in map(answer.take, chunks) if "call" in taken]


def test_a_long_call_tells_its_path_and_lines_while_it_is_streamed():
    pieces = ("one", "\\ntwo", "\\nthree\\n", 'four"}')
    path, name = "notes.txt", "write_file"
    assert growth(path, *pieces) == [
        {"name": name, "path": path, "lines": 2},
        {"name": name, "path": path, "lines": 4},
    ]
    assert len(growth(path, *("word\\n" for _ in range(2_000)))) < 100
    assert growth("\\x", "\\n")[0]["path"] == ""
    assert growth(path, *"a call of one line") == []


def test_the_bound_counts_deferred_schemas_and_each_load():
    schema = PER_TOOL + json_bound(WEB.as_function())
    once = request_bound(request(READ, WEB), native_tools=True)
    assert request_bound(request(READ, deferred(WEB)), native_tools=True) >= once
    twice = request_bound(request(READ, WEB, loads=("web_fetch", "web_fetch")), native_tools=True)
    assert twice >= once + schema


class RecordedProcess:
    """Records the request body and answers `Hi.`."""

    body = None

    async def ask(self, body, **_limits):
        self.body = body
        message = {"content": "Hi."}
        yield {
            "reply": {
                "text": "Hi.",
                "reasoning": "",
                "calls": [],
                "message": message,
                "usage": None,
                "finish": "",
            }
        }


@pytest.mark.parametrize(
    ("tools", "name"),
    [((READ, deferred(WEB)), "openai/responses/gpt-5.4"), ((READ, WEB), "openai/gpt-5.4")],
)
async def test_deferred_tools_use_openais_responses_api(tools, name, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-key-of-nobody")
    process = RecordedProcess()
    model = RemoteModel("openai/gpt-5.4", book=PriceBook(), keys=Keys(), process=process)
    try:
        assert [
            piece async for piece in model.stream(Request((Message("user", "Hi"),), tools=tools))
        ][-1].text == "Hi."
    finally:
        await model.aclose()
    assert process.body["model"] == name
    assert ({"type": "tool_search"} in process.body["tools"]) == (name != "openai/gpt-5.4")


def size_of(part):
    return PromptSize(0, request_bound(part, native_tools=True), exact=False)


@pytest.mark.parametrize(
    "tools", [(READ, deferred(WEB), deferred(MAIL)), (READ, WEB, deferred(MAIL))]
)
def test_reported_usage_does_not_replace_the_bound_of_loadable_schemas(tools):
    prompts = ReportedPrompts("m", native_tools=True, defers_tools=True)
    longer = request(*tools)
    counted = Request(longer.messages[:1], tools=(READ, deferred(WEB), deferred(MAIL)))
    prompts.record(counted, Usage(input=400, output=50), size_of(counted))
    bound = prompts.bound(longer, size_of)
    added = Request(longer.messages[1:], tools=(READ,))
    schemas = sum(PER_TOOL + json_bound(tool.as_function()) for tool in (WEB, MAIL))
    loaded_again = PER_TOOL + json_bound(WEB.as_function())
    assert (
        bound
        >= 400
        + schemas
        + loaded_again
        + size_of(added).bound
        - size_of(Request((), tools=(READ,))).bound
    )
