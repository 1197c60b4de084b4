"""Requests in providers' shape."""

import json
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import Call, Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.wire import mark_for_cache, native_body, plain_body, real_name, safe_name

TOOL = ToolDocument("read_file", "Reads a file.", {"type": "object", "properties": {}})
CALL = Call("read_file", {"path": "ä.txt"})
STEPS = (
    Message("system", "You help."),
    Message("user", "What is in it?"),
    Message("assistant", "I look.", CALL),
    Message("tool", "some words", CALL),
    Message("assistant", "", CALL),
    Message("tool", "the same words", CALL),
)


def test_a_call_and_its_result_carry_the_same_identity_of_nine_letters_and_digits():
    messages = native_body(Request(STEPS, (TOOL,)))["messages"]
    calls = [message["tool_calls"][0] for message in messages if "tool_calls" in message]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert [call["id"] for call in calls] == results
    assert len(set(results)) == 2
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", identity) for identity in results)
    assert json.loads(calls[0]["function"]["arguments"]) == CALL.arguments


def test_each_request_begins_with_the_messages_of_the_one_before():
    whole = native_body(Request(STEPS, (TOOL,)))["messages"]
    for length in (2, 4):
        assert native_body(Request(STEPS[:length], (TOOL,)))["messages"] == whole[:length]


def test_a_call_without_a_result_and_a_result_without_a_call_become_text():
    messages = (Message("tool", "lost words", CALL), Message("assistant", "I look.", CALL), Message("user", "Well?"))
    sent = native_body(Request(messages, (TOOL,)))["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "lost words" in sent[0]["content"]
    assert "read_file" in sent[1]["content"]


def test_messages_without_text_are_left_out_since_providers_refuse_them():
    sent = native_body(Request((Message("user", ""), Message("user", "Hello")), (TOOL,)))["messages"]
    assert [message["content"] for message in sent] == ["Hello"]


def test_without_native_tools_everything_is_text():
    body = plain_body(Request(STEPS, (TOOL,)))
    assert set(body) == {"messages"}
    assert all(isinstance(message["content"], str) for message in body["messages"])


def test_cache_marks_stand_on_the_system_text_and_on_the_last_message():
    body = native_body(Request(STEPS, (TOOL,)))
    mark_for_cache(body, Request(STEPS, (TOOL,)))
    marked = [index for index, message in enumerate(body["messages"]) if "cache_control" in json.dumps(message)]
    assert marked == [0, len(body["messages"]) - 1]


def test_a_task_for_this_ask_alone_is_parted_from_what_is_worth_caching():
    told = replace(STEPS[1], text=f"{STEPS[1].text}\n\nSay it.")
    request = Request((STEPS[0], told), (TOOL,), task="\n\nSay it.")
    body = native_body(request)
    mark_for_cache(body, request)
    assert body["messages"][-1]["content"] == [
        {"type": "text", "text": STEPS[1].text, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "\n\nSay it."},
    ]


def test_before_a_task_that_is_a_message_of_its_own_the_last_result_is_marked():
    request = Request(
        (*STEPS, Message("assistant", "Enough."), Message("user", "Say it.")), (TOOL,), task="\n\nSay it."
    )
    body = native_body(request)
    mark_for_cache(body, request)
    marked = [index for index, message in enumerate(body["messages"]) if "cache_control" in json.dumps(message)]
    assert marked == [0, len(STEPS) - 1]


def test_without_a_system_text_the_last_tool_is_marked():
    request = Request(STEPS[1:2], (TOOL, TOOL))
    body = native_body(request)
    mark_for_cache(body, request)
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]


def test_a_prompt_that_no_later_call_continues_is_not_written_to_a_cache():
    request = Request(STEPS[:2], purpose="compact")
    body = native_body(request)
    mark_for_cache(body, request)
    assert "cache_control" not in json.dumps(body)


@given(st.text(min_size=1))
def test_every_name_goes_out_in_a_form_providers_take_and_comes_back(name):
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", safe_name(name))
    assert real_name(safe_name(name), [TOOL, ToolDocument(name, "", {})]) == name


def test_names_that_differ_only_in_refused_letters_stay_apart():
    assert safe_name("files.read") != safe_name("files/read")
