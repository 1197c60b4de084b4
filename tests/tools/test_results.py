"""Results of tools are truncated at their limit."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import Observation
from ecoshell.tools import Limits, ResultSize
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.running import to_observation, validated

TEXTS = st.text(st.characters(exclude_categories=()), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=30), inner),
    max_leaves=12,
)


@given(text=TEXTS, limit=st.integers(1, 40))
def test_a_text_is_escaped_and_then_truncated_at_the_limit(text: str, limit: int):
    result = validated(
        "t", Observation(text, changes=text), Limits(result=ResultSize(limit), changes=limit)
    )
    escaped = text.encode("utf-8", "backslashreplace").decode()
    assert result.truncated == (len(escaped) > limit)
    assert result.text == result.changes
    excerpt, mark, _ = (
        result.text.partition("\n[truncated: ") if result.truncated else (result.text, "", "")
    )
    assert bool(mark) == result.truncated
    assert excerpt == (escaped[:limit].rstrip() if result.truncated else escaped)


@given(value=VALUES.filter(lambda value: not isinstance(value, str)), limit=st.integers(1, 200))
def test_a_value_becomes_json_truncated_at_the_limit(value: Any, limit: int):
    text = json.dumps(value, ensure_ascii=False)
    result = to_observation("t", value, Limits(result=ResultSize(limit)))
    assert result.truncated == (len(text) > limit)
    mark = f"\n[truncated: {limit} of {len(text)} characters shown]" if result.truncated else ""
    assert result.text == f"{text[:limit].rstrip() if mark else text}{mark}"


async def test_a_stop_iteration_of_a_function_is_a_failure():
    def take() -> str:
        return next(iter(()))

    result = await FunctionTool(take, effects=(), limits=Limits(seconds=30)).run({})
    assert not result.ok
    assert result.text.startswith("take failed: RuntimeError")
