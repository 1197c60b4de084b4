import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.btp.redaction import MARK, SIZE_LIMITS, redacted, size_level

SECRETS = [
    "sk-proj-abcdefghijklmnop1234567890",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "xoxb-123456789012-abcdefghij",
    "glpat-abcdefghij0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_of_the_usual_shapes_are_taken_out_wherever_they_stand(secret):
    text = f"before {secret} after"
    assert redacted(text, {}) == f"before {MARK} after"
    assert secret not in redacted(json.dumps({"note": text}), {}).encode().decode("unicode_escape")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter2", f"password={MARK}"),
        ("api_key: abc123, next", f"api_key: {MARK}, next"),
        ('{"client_secret": "a \\" b", "q": "x"}', f'{{"client_secret": "{MARK}", "q": "x"}}'),
        ("MY_ACCESS_TOKEN='abc'", f"MY_ACCESS_TOKEN='{MARK}'"),
        ("Authorization: Bearer abcdefgh12345678", f"Authorization: Bearer {MARK}"),
        ("postgres://me:s3cret@host/db", f"postgres://{MARK}@host/db"),
        (r'"{\"password\": \"hunter2\"}"', rf'"{{\"password\": \"{MARK}\"}}"'),
    ],
)
def test_what_is_named_like_a_secret_is_taken_out_and_its_surroundings_stay(text, expected):
    assert redacted(text, {}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "How many tokens has this text?",
        "the secret of the house",
        "keyboard: qwerty",
        "http://host:8080/x@y",
        "monkey=1",
    ],
)
def test_other_words_are_left_alone(text):
    assert redacted(text, {}) == text


def test_values_of_secret_variables_are_taken_out_and_others_stay():
    environ = {"MY_API_KEY": "correct horse", "EDITOR": "vim staple", "PIN_TOKEN": "123"}
    assert redacted("correct horse, vim staple, 123", environ) == f"{MARK}, vim staple, 123"


@given(st.text(max_size=400))
def test_any_text_can_be_redacted_and_doing_so_twice_changes_nothing(text):
    once = redacted(text, {})
    assert redacted(once, {}) == once


def test_levels_of_size_grow_with_the_size():
    assert [size_level(count) for count in (0, *(limit + 1 for limit in SIZE_LIMITS))] == [0, 1, 2, 3]
