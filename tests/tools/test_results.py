"""What tools give is cut without being read to its end, and is what it would have been up to there."""

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


@given(text=TEXTS, most=st.integers(1, 40))
def test_a_text_within_the_limit_is_whole_and_any_other_is_cut_at_it_once_it_can_be_stored(text: str, most: int):
    seen = validated("t", Observation(text, changes=text), Limits(result=ResultSize(most), changes=most))
    escaped = text.encode("utf-8", "backslashreplace").decode()
    assert seen.truncated == (len(escaped) > most)
    assert seen.text == seen.changes
    shown, mark, _ = seen.text.partition("\n[truncated: ") if seen.truncated else (seen.text, "", "")
    assert bool(mark) == seen.truncated
    assert shown == (escaped[:most].rstrip() if seen.truncated else escaped)


@given(value=VALUES.filter(lambda value: not isinstance(value, str)), most=st.integers(1, 200))
def test_a_value_is_told_as_its_json_as_far_as_the_limit(value: Any, most: int):
    whole = json.dumps(value, ensure_ascii=False)
    seen = to_observation("t", value, Limits(result=ResultSize(most)))
    assert seen.truncated == (len(whole) > most)
    mark = f"\n[truncated: only the first {most} characters shown]" if seen.truncated else ""
    assert seen.text == f"{whole[:most]}{mark}"


class Counted(list[int]):
    """Counts how many of its elements were asked for."""

    asked = 0

    def __iter__(self):
        for each in super().__iter__():
            self.asked += 1
            yield each


def test_of_a_long_list_only_so_much_is_looked_at_as_can_be_shown():
    value = Counted(range(1_000_000))
    assert to_observation("t", value, Limits(result=ResultSize(100))).truncated
    assert 0 < value.asked <= 101


async def test_a_function_that_runs_out_of_what_it_iterates_over_fails_by_name():
    def take() -> str:
        return next(iter(()))

    seen = await FunctionTool(take, effects=(), limits=Limits(seconds=30)).run({})
    assert not seen.ok
    assert seen.text.startswith("take failed: RuntimeError")
