"""Token bounds compared with real tokenizers."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import PER_PROMPT, PER_TOOL_ARRAY, Request, request_bound, text_bound
from ecoshell.models.prompt_bound import PER_MESSAGE, json_bound
from ecoshell.models.tokens import counter_for

NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TOOL = ToolSchema(
    "read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)


@pytest.fixture(scope="module", params=["gpt-4", "gpt-4o"])
def counter(request):
    counter = counter_for(request.param)
    assert counter.wait()
    yield counter
    counter.close()


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_no_text_has_more_tokens_than_its_bound(counter, text):
    assert counter.count(text) <= text_bound(text)


@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(st.text(), NESTED, max_size=3))
def test_no_json_encoding_has_more_tokens_than_its_bound(counter, value):
    for indent in (None, 2, 4):
        for ascii_only in (True, False):
            printed = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
            escaped = (
                printed.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
            )
            assert max(counter.count(printed), counter.count(escaped)) <= json_bound(value)


def test_a_character_lengthened_by_normalisation_is_bounded_by_its_long_form():
    assert text_bound("\ufdfa") == 33


def test_half_a_surrogate_pair_has_a_bound():
    assert text_bound("\ud800") == 1


def test_each_message_adds_its_frame():
    single = request_bound(Request((Message("user", "a"),)), native_tools=False)
    double = request_bound(
        Request((Message("user", "a"), Message("user", "b"))), native_tools=False
    )
    assert single == PER_PROMPT + PER_MESSAGE + 1
    assert double - single == PER_MESSAGE + 1


def test_a_native_tool_array_adds_the_overhead_of_providers():
    bare = request_bound(Request((Message("user", "a"),)), native_tools=True)
    with_tool = request_bound(Request((Message("user", "a"),), (TOOL,)), native_tools=True)
    assert with_tool - bare > PER_TOOL_ARRAY + len(json.dumps(TOOL.as_function()))


def test_arguments_of_earlier_calls_are_counted():
    call = Call("write_file", {"text": "x" * 1000})
    assert (
        request_bound(Request((Message("assistant", "", (call,)),), (TOOL,)), native_tools=True)
        > 1000
    )


def test_a_result_does_not_count_the_arguments_of_its_call_again():
    call = Call("write_file", {"text": "x" * 10_000})
    made = (Message("user", "Write."), Message("assistant", "", (call,)))
    results = [Message("tool", "written", (named,)) for named in (call, Call("write_file", {}))]
    for native in (True, False):
        bounds = {
            request_bound(Request((*made, result), (TOOL,)), native_tools=native)
            for result in results
        }
        assert len(bounds) == 1
