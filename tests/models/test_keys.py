"""API keys: lookup, storage and redaction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.errors import StoreError, UsageError
from ecoshell.models.keys import Keys

ALPHABET = st.characters(codec="ascii", categories=["L", "N"])


class Ring(dict):
    """A keyring in a dictionary."""

    def get_password(self, service_name, username):
        return self.get((service_name, username))

    def set_password(self, service_name, username, password):
        self[service_name, username] = password


class BrokenRing:
    def get_password(self, service_name, username):
        raise RuntimeError("no session bus")

    def set_password(self, service_name, username, password):
        raise RuntimeError("no session bus")


def test_the_environment_takes_precedence_over_the_keyring():
    ring = Ring({("ecoshell", "OPENAI_API_KEY"): "from-the-ring"})
    assert Keys({"OPENAI_API_KEY": "from-environ"}, ring).find("openai") == "from-environ"
    assert Keys({}, ring).find("openai") == "from-the-ring"


def test_every_variable_of_a_provider_is_tried():
    assert Keys({"GOOGLE_API_KEY": "a-google-key"}, Ring()).find("gemini") == "a-google-key"


@pytest.mark.parametrize("blank", ["", "   "])
def test_a_blank_variable_is_ignored(blank):
    keys = Keys({"OPENAI_API_KEY": blank}, Ring())
    assert keys.find("openai") is None


def test_a_typed_key_is_used_stored_and_redacted():
    ring = Ring()
    keys = Keys({}, ring)
    keys.keep("openai", " typed-by-hand-123 \n")
    assert ring["ecoshell", "OPENAI_API_KEY"] == "typed-by-hand-123"
    assert keys.find("openai") == "typed-by-hand-123"
    assert "openai" in keys.at_hand()
    assert "typed-by-hand" not in keys.redact("it said typed-by-hand-123")


@pytest.mark.parametrize("typed", ["", "  ", "two words", "schlüssel"])
def test_an_invalid_key_is_not_stored(typed):
    ring = Ring()
    with pytest.raises(UsageError, match="not an API key"):
        Keys({}, ring).keep("openai", typed)
    assert ring == {}


def test_a_key_that_cannot_be_stored_is_used_until_exit():
    keys = Keys({}, BrokenRing())
    with pytest.raises(StoreError, match=r"It is used until ecoshell ends\. Set OPENAI_API_KEY"):
        keys.keep("openai", "typed-by-hand-123")
    assert keys.find("openai") == "typed-by-hand-123"


def test_a_broken_keyring_is_ignored():
    assert Keys({}, BrokenRing()).find("openai") is None


def test_a_provider_without_keys_has_none():
    assert Keys({}, BrokenRing()).find("ollama") is None
    assert Keys.variables("ollama") == ()


def test_the_advice_names_the_variable_and_the_keyring():
    advice = Keys({}).how_to_give("anthropic")
    assert advice.startswith("Set ANTHROPIC_API_KEY")
    assert "keyring set ecoshell ANTHROPIC_API_KEY" in advice


@given(st.text(ALPHABET, min_size=8, max_size=40), st.text(), st.text())
def test_a_known_key_is_always_redacted(key, prefix, suffix):
    in_environ = Keys({"SOME_API_KEY": key})
    assert key not in in_environ.redact(f"{prefix}{key}{suffix}").replace("[key hidden]", "")
    from_ring = Keys({}, Ring({("ecoshell", "OPENAI_API_KEY"): key}))
    from_ring.find("openai")
    assert key not in from_ring.redact(f"{prefix} {key} {suffix}").replace("[key hidden]", "")


@pytest.mark.parametrize(
    "leak",
    [
        "sk-proj-abcdefghijklmnop",
        "sk-ant-api03-abcdefghijkl",
        "Authorization: Bearer abc.def-ghi123",
        "authorization: bearer abcdefghij",
        "AIzaSyA1234567890abcdefghijklmnop",
        "gsk_abcdefghijklmnop1234",
        "hf_abcdefghijklmnop1234",
        "AKIAABCDEFGHIJKLMNOP",
        "http://me:secret99@host/v1",
        "https://host/v1?key=abcdef123456&x=1",
        "https://host/v1?api_key=abcdef123456",
    ],
)
def test_text_that_looks_like_a_key_is_redacted(leak):
    redacted = Keys({}).redact(f"failed with {leak} today")
    secret = (
        leak.split()[-1].rpartition("=")[2]
        if "=" not in leak
        else leak.split("key=")[1].split("&")[0]
    )
    assert secret.removeprefix("http://").split("@")[0] not in redacted
    assert redacted.startswith("failed with ")
    assert redacted.endswith(" today")


def test_ordinary_text_is_unchanged():
    text = "The task-list of the risk-averse bearer is at https://host/path?a=1."
    assert Keys({"HOME": "/home/me", "SHORT_TOKEN": "abc"}).redact(text) == text


def test_keys_are_listed_from_the_environment_and_from_keyring_lookups():
    class Counting(Ring):
        lookups = 0

        def get_password(self, service_name, username):
            self.lookups += 1
            return super().get_password(service_name, username)

    ring = Counting({("ecoshell", "ANTHROPIC_API_KEY"): "from-the-ring"})
    keys = Keys({"OPENAI_API_KEY": "from-environ"}, ring)
    assert "openai" in keys.at_hand()
    assert "anthropic" not in keys.at_hand()
    assert ring.lookups == 0
    keys.find("anthropic")
    assert "anthropic" in keys.at_hand()
