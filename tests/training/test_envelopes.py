"""Recorded results are unwrapped, also if they were truncated."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell_train.envelopes import unwrapped


def enveloped(text, *, failed=False):
    """A result in the format of an MCP server."""
    return json.dumps(
        {"_meta": None, "content": [{"type": "text", "text": text}], "isError": failed}, indent=2
    )


def printed(text, *, failed=False):
    """The same result as printed by Python."""
    return f"meta=None content=[TextContent(type='text', text={text!r}, annotations=None)] isError={failed}"


@pytest.mark.parametrize(
    "wrapped", [enveloped, printed, lambda text, **more: printed(enveloped(text, **more))]
)
def test_a_result_is_unwrapped(wrapped):
    assert unwrapped(wrapped("the engine broke", failed=True)) == ("the engine broke", True)
    assert unwrapped(wrapped('it\'s "06:12"\n\\o/')) == ('it\'s "06:12"\n\\o/', False)


@pytest.mark.parametrize("wrapped", [enveloped, printed, lambda text: printed(enveloped(text))])
def test_a_truncated_envelope_is_unwrapped_as_far_as_possible(wrapped):
    text = 'Tåg till Oslo\n06:12 "snabbtåg" \\o/ it\'s\n' * 4
    envelope = wrapped(text)
    start = envelope.index("T", envelope.rindex("text") + 4)
    contents = [unwrapped(envelope[:end])[0] for end in range(start, envelope.rindex("06:12"))]
    assert all(text.startswith(content) for content in contents)
    assert max(map(len, contents)) > len(text) // 2


def test_several_content_parts_are_joined():
    parts = [{"type": "text", "text": "Oslo"}, {"type": "image", "data": "…"}, "06:12"]
    assert unwrapped(json.dumps({"content": parts, "isError": False})) == (
        "Oslo\n[image]\n06:12",
        False,
    )


@given(st.text(max_size=300))
def test_unwrapping_returns_the_wrapped_text(text):
    assert unwrapped(enveloped(text))[0] in (text, unwrapped(text)[0])
