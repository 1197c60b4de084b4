"""Request bodies: parsed strictly, and changed in nothing but the replaced values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell_gateway.bodies import parse_body
from ecoshell_gateway.errors import Refused

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(st.dictionaries(st.text(), VALUES), st.integers(0, 4), st.booleans())
def test_a_body_keeps_its_bytes(fields: dict[str, object], indent: int, is_ascii: bool):
    data = json.dumps(fields, indent=indent or None, ensure_ascii=is_ascii).encode(
        "utf-8", "surrogatepass"
    )
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    body = parse_body(data)
    assert body.encoded() == data
    assert body.fields == fields


@given(st.dictionaries(st.text(), VALUES, min_size=1), st.integers(), st.text())
def test_replacing_a_value_changes_that_value_only(
    fields: dict[str, object], number: int, name: str
):
    data = json.dumps(fields, indent=1).encode()
    changed = parse_body(data).with_values({name: number})
    assert json.loads(changed.encoded()) == {**fields, name: number}
    if name in fields:
        start, end = parse_body(data).spans[name]
        text = data.decode()
        assert changed.text == text[:start] + str(number) + text[end:]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": 1,}',
        b'{"a" 1}',
        b'{"a": 1} x',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": NaN}',
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\xff"}',
        b"{1: 2}",
    ],
)
def test_anything_else_is_refused(data: bytes):
    with pytest.raises(Refused) as refusal:
        parse_body(data)
    assert refusal.value.status == 400
