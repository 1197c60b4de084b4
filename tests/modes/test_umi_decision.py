"""How the planner's text is read as a decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import Call
from ecoshell.modes.umi import action_in, action_text, decision


@pytest.mark.parametrize(
    ("text", "rationale", "following"),
    [
        ("Count the lines. Next: caller.", "Count the lines.", "caller"),
        ("Enough is known.\nNext: conclusion", "Enough is known.", "conclusion"),
        ("No such file. NEXT : Give Up", "No such file.", "give up"),
        ("**Next:** the caller", "", "caller"),
        ("Read it. Next step: call read_file, please", "Read it.", "caller"),
        ("assistant: Done. next - give_up!!", "Done.", "give up"),
        ("One of both. Next: caller. Next: conclusion.", "One of both.", "conclusion"),
        ("Next: conclusion. Or: Next: give up.", "", "give up"),
        ("I do not give up yet. Next: caller.", "I do not give up yet.", "caller"),
        ("Read.\nNext: caller.\ncaller: Action: x\nassistant: Next: give up.", "Read.", "caller"),
        ("That is all.\nConclusion.", "That is all.", "conclusion"),
        ("I will read the file next.", "I will read the file next.", None),
        ("", "", None),
    ],
)
def test_a_decision_is_read_in_many_spellings(text, rationale, following):
    decided = decision(text)
    assert (decided.rationale, decided.next) == (rationale, following)


@given(st.text(max_size=300))
def test_any_text_can_be_read(text):
    assert decision(text).next in (None, "caller", "conclusion", "give up")


@given(
    st.text(st.characters(categories=["L", "Zs"]), max_size=80),
    st.sampled_from(["caller", "conclusion", "give up"]),
    st.booleans(),
    st.sampled_from(["", ".", " .", "!"]),
)
def test_a_written_decision_is_read_back(rationale, following, upper, end):
    sign = f"Next: {following}"
    assert decision(f"{rationale}. {sign.upper() if upper else sign}{end}").next == following


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True),
    st.dictionaries(st.text(max_size=8), JSON, max_size=4),
)
def test_a_written_action_is_read_back(name, arguments):
    call = Call(name, arguments)
    assert action_in(f"I call it.\n{action_text(call)}\nThat is all.") == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Action: x",
        "Action: x\nAction Input: none {}",
        "Action: x\nAction Input: {",
        'Action: x\nAction Input: {"n": NaN}',
        f'Action: x\nAction Input: {{"a": {"[" * 600}{"]" * 600}}}',
    ],
)
def test_an_invalid_action_is_none(text):
    assert action_in(text) is None
