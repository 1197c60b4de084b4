import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import Call, Message, ProviderState, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.models.chat_body import chat_body, mark_for_cache
from ecoshell.models.protocol import (
    as_plain_messages,
    call_fault,
    call_text,
    parse_reply,
    resolved_name,
    safe_name,
)

CALCULATE = ToolSchema(
    "calculate",
    "Work out an expression.",
    {
        "type": "object",
        "properties": {"expression": {"type": "string"}, "digits": {"type": "integer"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
)
BROKEN_SCHEMA = ToolSchema("odd", "", {"type": "nonsense", "properties": 3})
QUESTION = (Message("system", "You are ecoshell."), Message("user", "What is 17 * 23?"))
REQUEST = Request(QUESTION, tools=(CALCULATE,), callable_now=(CALCULATE,))
GOOD = {
    "call": {"name": "calculate", "arguments": {"expression": "17 * 23"}},
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def parsed(text: str, want: str = "call") -> Reply:
    return parse_reply(text, Request(QUESTION, callable_now=(CALCULATE,), want=want))  # type: ignore[arg-type]


def test_the_system_text_holds_the_tools_and_the_protocol():
    first = as_plain_messages(REQUEST)[0]
    assert first.speaker == "system"
    assert first.text.startswith("You are ecoshell.")
    assert CALCULATE.as_text() in first.text
    assert '"arguments"' in first.text


def test_a_request_without_tools_is_unchanged():
    assert as_plain_messages(Request(QUESTION)) == list(QUESTION)


def test_a_call_and_its_observation_become_assistant_and_user_texts():
    call = Call("calculate", {"expression": "17 * 23"})
    steps = (Message("assistant", "Multiply.", (call,)), Message("tool", "391", (call,)))
    call_text, result = as_plain_messages(Request((*QUESTION, *steps)))[-2:]
    assert (
        call_text.text == 'Multiply.\n{"name": "calculate", "arguments": {"expression": "17 * 23"}}'
    )
    assert call_text.speaker == "assistant"
    assert result == Message("user", "Result of calculate:\n391")


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text()), max_size=6))
def test_adding_messages_never_changes_a_byte_of_the_earlier_ones(added):
    messages = QUESTION
    earlier = as_plain_messages(Request(messages, tools=(CALCULATE,)))
    for speaker, text in added:
        calls = (Call("calculate", {"expression": text}),) if speaker != "user" else ()
        messages = (*messages, Message(speaker, text, calls))
        later = as_plain_messages(Request(messages, tools=(CALCULATE,)))
        assert later[: len(earlier)] == earlier
        earlier = later


def test_the_text_of_a_call_parses_back_to_the_same_call():
    call = Call("calculate", {"expression": 'say "ü" {', "digits": 3})
    reply = parsed(call_text(call, "Because."))
    assert (reply.text, reply.call, reply.fault) == ("Because.", call, "")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD)}\n```",
        f"Multiply.\n{json.dumps({'call': GOOD['call']})} and that is all",
        'Multiply. {"name": "calculate", "arguments": {"expression": "17 * 23"}}',
        '{"call": {"name": "calculate", "arguments": {"expression": "17 * 23",},},}',
        '{"call": {"name": "calculate", "arguments": "{\\"expression\\": \\"17 * 23\\"}"}}',
        f"Multiply. {{not json}} {json.dumps({'call': GOOD['call']})}".replace("{not json} ", ""),
    ],
)
def test_fences_prose_bare_calls_trailing_commas_and_string_arguments_are_accepted(text):
    reply = parsed(text)
    assert reply.fault == ""
    assert reply.call == Call("calculate", {"expression": "17 * 23"})


def test_the_prose_before_a_call_is_its_thought():
    call = '{"call": {"name": "calculate", "arguments": {"expression": "1"}}}'
    assert parsed(f"I multiply.\n{call}").text == "I multiply."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"call": {"name": "calculator", "arguments": {}}}', "no tool named 'calculator'"),
        ('{"call": {"name": "calculate", "arguments": {}}}', "'expression' is a required property"),
        (
            '{"call": {"name": "calculate", "arguments": {"expression": 17}}}',
            "expression: 17 is not of type 'string'",
        ),
        (
            '{"call": {"name": "calculate", "arguments": {"expression": "1", "x": 1}}}',
            "'x' was unexpected",
        ),
        ('{"call": {"name": 5, "arguments": {}}}', '"name" (a text)'),
        ('{"call": {"name": "calculate", "arguments": [1]}}', '"arguments" (an object)'),
        ('{"call": {"name": "calculate", "arguments": {"expression": NaN}}}', "could not be read"),
        ('{"call": {"name": "calculate", "arguments": {"expression": "\\ud800"}}}', "surrogate"),
        (
            '{"call": {"name": "calculate", "arguments": {"expression": "1", "digits": 1e999}}}',
            "cannot represent",
        ),
        (
            '{"call": {"name": "calculate", "arguments": {"a": ' + "[" * 600 + "]" * 600 + "}}}",
            "64 levels deep",
        ),
        ('{"call": {"name": "calc', "could not be read"),
        ("391", "A call was wanted"),
    ],
)
def test_an_unusable_call_is_a_fault_in_words(text, fault):
    reply = parsed(text)
    assert reply.call is None
    assert fault in reply.fault


def test_a_call_cut_by_the_token_limit_is_reported_as_cut():
    reply = parse_reply('{"call": {"name": "calc', REQUEST, cut=True)
    assert "was cut" in reply.fault
    assert reply.cut


def test_plain_text_is_an_answer_when_a_call_is_optional():
    assert parsed("It is {391}.", want="either") == Reply("It is {391}.")


def test_a_text_reply_is_never_parsed_as_a_call():
    assert parsed(json.dumps(GOOD), want="text").call is None


def test_a_tool_whose_own_schema_is_broken_can_still_be_called():
    assert call_fault(Call("odd", {"a": 1}), (BROKEN_SCHEMA,)) == ""


def test_a_number_that_overflows_a_schema_check_passes_to_the_tool():
    cents = ToolSchema("pay", "", {"properties": {"sum": {"multipleOf": 0.01}}})
    assert call_fault(Call("pay", {"sum": 10**400}), (cents,)) == ""


@given(st.text())
def test_parsing_any_text_never_raises(text):
    reply = parsed(text)
    assert reply.call is None or reply.fault == ""


@given(st.text(alphabet='{}[]",:\\`ntrue1 calexpsiong', max_size=60))
def test_parsing_malformed_json_never_raises(text):
    reply = parsed('{"call": {"name": "calculate", "arguments": ' + text, want="either")
    assert reply.call is None or reply.fault == ""


@given(json_values)
def test_arguments_are_either_valid_or_a_fault(arguments):
    text = json.dumps({"call": {"name": "calculate", "arguments": arguments}})
    reply = parsed(text)
    assert (reply.call is None) == bool(reply.fault)


def test_thousands_of_open_braces_parse_without_a_call():
    assert parsed("{" * 20_000).call is None
    assert parsed("[" * 20_000 + '{"a":' * 20_000).fault


TOOL = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
CALL = Call("read_file", {"path": "ä.txt"})
STEPS = (
    Message("system", "You help."),
    Message("user", "What is in it?"),
    Message("assistant", "I look.", (CALL,)),
    Message("tool", "some words", (CALL,)),
    Message("assistant", "", (CALL,)),
    Message("tool", "the same words", (CALL,)),
)


def test_a_call_and_its_result_share_an_id_of_nine_letters_and_digits():
    messages = chat_body(Request(STEPS, (TOOL,)), native=True)["messages"]
    calls = [message["tool_calls"][0] for message in messages if "tool_calls" in message]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert [call["id"] for call in calls] == results
    assert len(set(results)) == 2
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", call_id) for call_id in results)
    assert json.loads(calls[0]["function"]["arguments"]) == CALL.arguments


def test_each_request_starts_with_the_messages_of_the_previous_request():
    messages = chat_body(Request(STEPS, (TOOL,)), native=True)["messages"]
    for length in (2, 4):
        assert (
            chat_body(Request(STEPS[:length], (TOOL,)), native=True)["messages"]
            == messages[:length]
        )


def test_a_call_without_a_result_and_a_result_without_a_call_become_text():
    messages = (
        Message("tool", "lost words", (CALL,)),
        Message("assistant", "I look.", (CALL,)),
        Message("user", "Well?"),
    )
    sent = chat_body(Request(messages, (TOOL,)), native=True)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "lost words" in sent[0]["content"]
    assert "read_file" in sent[1]["content"]


FIRST, SECOND = (
    Call("read_file", {"path": "a"}, "x1", "g"),
    Call("read_file", {"path": "b"}, "x2", "g"),
)
REPLY = {
    "content": "Both.",
    "tool_calls": [
        {
            "id": "prov/1",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path" : "a"}'},
        },
        {
            "id": "prov/2",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path" : "b"}'},
        },
    ],
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s1"}],
}
PARALLEL = (
    Message("user", "Read both."),
    Message("assistant", "Both.", (FIRST, SECOND), state=ProviderState("anthropic", REPLY)),
    Message("tool", "A", (FIRST,)),
    Message("tool", "B", (SECOND,)),
)


def test_a_reply_is_sent_back_to_its_provider_unchanged():
    sent = chat_body(Request(PARALLEL, (TOOL,)), native=True, family="anthropic")["messages"]
    assert sent[1] == {"role": "assistant", **REPLY}
    assert [(result["tool_call_id"], result["content"]) for result in sent[2:]] == [
        ("prov/1", "A"),
        ("prov/2", "B"),
    ]


def test_another_provider_gets_the_reply_as_one_message_without_opaque_fields():
    sent = chat_body(Request(PARALLEL, (TOOL,)), native=True, family="openai")["messages"]
    assert set(sent[1]) == {"role", "content", "tool_calls"}
    calls = sent[1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"])["path"] for call in calls] == ["a", "b"]
    assert [result["tool_call_id"] for result in sent[2:]] == [call["id"] for call in calls]


def test_a_text_protocol_gets_each_call_directly_before_its_result():
    texts = [message.text for message in as_plain_messages(Request(PARALLEL))]
    assert [text.partition("\n")[0] for text in texts[1:]] == [
        "Both.",
        "Result of read_file:",
        '{"name": "read_file", "arguments": {"path": "b"}}',
        "Result of read_file:",
    ]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("functions.read_file", "read_file"),
        ("Read_File ", "read_file"),
        ("read-file", "read_file"),
        ("default_api:read_file", "read_file"),
        ("read_files", "read_files"),
        ("git.log", "git.log"),
        ("GIT_LOG", "GIT_LOG"),  # matches two tools
    ],
)
def test_a_name_is_resolved_only_if_it_matches_one_tool(written, name):
    schemas = [replace(TOOL, name=tool) for tool in ("read_file", "git.log", "git_log", "Git-Log")]
    assert resolved_name(written, schemas) == name


def test_messages_without_text_are_dropped_because_providers_refuse_them():
    sent = chat_body(
        Request((Message("user", ""), Message("user", "Hello")), (TOOL,)), native=True
    )["messages"]
    assert [message["content"] for message in sent] == ["Hello"]


def test_without_native_tools_everything_is_text():
    body = chat_body(Request(STEPS, (TOOL,)), native=False)
    assert set(body) == {"messages"}
    assert all(isinstance(message["content"], str) for message in body["messages"])


def test_the_system_text_and_the_ends_of_this_and_the_previous_request_are_marked_for_the_cache():
    body = chat_body(Request(STEPS, (TOOL,)), native=True)
    mark_for_cache(body, Request(STEPS, (TOOL,)))
    marked = [
        index
        for index, message in enumerate(body["messages"])
        if "cache_control" in json.dumps(message)
    ]
    roles = [message["role"] for message in body["messages"]]
    assert (marked, roles[3:]) == ([0, 3, 5], ["tool", "assistant", "tool"])


def test_a_task_of_this_request_alone_is_not_marked_for_the_cache():
    question = replace(STEPS[1], text=f"{STEPS[1].text}\n\nSay it.")
    request = Request((STEPS[0], question), (TOOL,), task="\n\nSay it.")
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    assert body["messages"][-1]["content"] == [
        {"type": "text", "text": STEPS[1].text, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "\n\nSay it."},
    ]


def test_the_result_before_a_separate_task_message_is_marked():
    request = Request(
        (*STEPS, Message("assistant", "Enough."), Message("user", "Say it.")),
        (TOOL,),
        task="\n\nSay it.",
    )
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    marked = [
        index
        for index, message in enumerate(body["messages"])
        if "cache_control" in json.dumps(message)
    ]
    assert marked == [0, len(STEPS) - 1]


def test_without_a_system_text_the_last_tool_is_marked():
    request = Request(STEPS[1:2], (TOOL, TOOL))
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]


def test_a_prompt_without_a_continuation_is_not_cached():
    request = Request(STEPS[:2], purpose="compact")
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    assert "cache_control" not in json.dumps(body)


@given(st.text(min_size=1))
def test_every_name_is_sent_in_a_form_providers_accept_and_resolved_again(name):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", safe_name(name))
    assert resolved_name(safe_name(name), [TOOL, ToolSchema(name, "", {})]) == name


def test_names_that_differ_only_in_replaced_characters_stay_distinct():
    assert safe_name("files.read") != safe_name("files/read")
