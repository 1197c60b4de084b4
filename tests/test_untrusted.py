import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import visible, visible_line

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_no_control_character_is_left(text: str) -> None:
    controls = {
        char for char in visible(text) if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}
    }
    assert controls <= {"\n", "\t"}


@given(any_text)
def test_visible_text_can_always_be_encoded(text: str) -> None:
    assert visible(text).encode("utf-8").decode("utf-8") == visible(text)


@given(any_text)
def test_escaping_twice_changes_nothing(text: str) -> None:
    assert visible(visible(text)) == visible(text)


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x9b2J", "\\x9b2J"),
        ("over\rwritten", "over\\x0dwritten"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("bell\x07", "bell\\x07"),
        ("a\u202etxt.exe", "a\\u202etxt.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("👩‍🚀 naïve 日本語", "👩‍🚀 naïve 日本語"),
    ],
)
def test_each_kind_of_unsafe_character_has_its_readable_form(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_a_line_is_one_line() -> None:
    assert visible_line(" a\n\tb\x1b ") == "a b␛"
