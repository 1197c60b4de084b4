"""Token counts with litellm's real tokenizers in the real helper process."""

import os
import signal

import pytest

from ecoshell.models import estimate
from ecoshell.models.tokens import TokenCounter, counter_for, encoding_of


@pytest.fixture(scope="module")
def counter():
    counter = counter_for("openai/gpt-4-turbo")
    assert counter.wait()
    yield counter
    counter.close()


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4", "cl100k_base"),
        ("openai/gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("openrouter/openai/gpt-4o-mini", "o200k_base"),
        ("ft:gpt-4o:me", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("o3-pro", "o200k_base"),
        ("anthropic/claude-sonnet-4", None),
        ("ollama/llama3", None),
    ],
)
def test_only_openai_model_names_imply_a_tokenizer(model, encoding):
    assert encoding_of(model) == encoding


def test_counts_match_the_models_tokenizer(counter):
    assert counter.exact
    assert counter.count("hello world") == 2
    assert counter.count("") == 0


def test_a_special_token_in_text_is_counted_as_text(counter):
    assert counter.count("<|endoftext|>") > 1


def test_lines_and_half_surrogates_do_not_break_the_count(counter):
    assert counter.count("a\nb\r\n\x00c") > 3
    assert counter.count("\ud800") > 0
    assert counter.count("hello world") == 2


def test_a_very_long_text_is_estimated(counter):
    assert counter.count("x" * 1_000_000) == 250_000


def test_counts_are_estimates_until_the_tokenizer_is_loaded():
    fresh = counter_for("gpt-4")
    try:
        assert (fresh.count("12345678"), fresh.exact) == (2, False)
    finally:
        fresh.close()


def test_another_models_tokenizer_is_never_exact():
    foreign = counter_for("anthropic/claude-sonnet-4")
    try:
        assert foreign.wait()
        assert foreign.count("hello world") == 2
        assert not foreign.exact
    finally:
        foreign.close()


def test_a_model_at_a_custom_address_is_never_exact():
    named_alike = counter_for("openai/gpt-4", hosted=False)
    try:
        assert named_alike.wait()
        assert not named_alike.exact
    finally:
        named_alike.close()


def test_counts_become_estimates_when_the_helper_is_killed():
    doomed = counter_for("gpt-4")
    assert doomed.wait()
    os.kill(doomed.pid, signal.SIGKILL)
    assert doomed.count("12345678 12345678") == 5
    assert not doomed.exact
    doomed.close()


def test_a_missing_tokenizer_file_is_never_downloaded(tmp_path):
    missing = TokenCounter("cl100k_base", tmp_path, own=True)
    assert not missing.wait()
    assert missing.count("12345678") == 2
    assert list(tmp_path.iterdir()) == []
    missing.close()


def test_bytes_round_up_and_invalid_text_is_counted():
    assert estimate("12345") == 2
    assert estimate("\ud800") == 1
