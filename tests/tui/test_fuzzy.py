"""Fuzzy search: matches and their order."""

import time

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.tui.fuzzy import best, places, score

NAMES = ["azure/gpt-4o", "gpt-4", "gpt-4o", "gpt-4o-mini", "openai/gpt-4o", "claude-sonnet-4"]
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)


def found(typed: str, names: list[str] = NAMES) -> list[str]:
    return best(typed, ((name, name) for name in names), 10)[0]


def test_full_name_ranks_before_its_start_and_a_word_in_it():
    assert found("gpt-4o") == ["gpt-4o", "gpt-4o-mini", "azure/gpt-4o", "openai/gpt-4o"]


def test_ties_keep_their_order():
    assert found("4o", ["b-4o-x", "a-4o-x"]) == ["b-4o-x", "a-4o-x"]


def test_all_words_must_match_in_any_order():
    assert found("mini gpt") == ["gpt-4o-mini"]
    assert found("mini claude") == []


def test_adjacent_words_rank_before_separate_ones():
    names = ["theme high-contrast-light", "theme light"]
    assert found("theme light", names) == ["theme light", "theme high-contrast-light"]


def test_closer_letters_rank_higher():
    assert found("gp4", ["g-p-x-4", "gpt4", "no"]) == ["gpt4", "g-p-x-4"]


def test_capitals_make_no_difference():
    assert found("CLAUDE") == ["claude-sonnet-4"]


def test_letters_out_of_order_do_not_match():
    assert score(["tpg"], "gpt") == 0


def test_results_are_limited_and_all_matches_counted():
    output, count = best("gpt", ((name, name) for name in NAMES), 2)
    assert (len(output), count) == (2, 5)


def test_places_are_those_of_the_letters():
    assert [("the-gp-t"[at]) for at in places(["gpt"], "the-gp-t")] == ["g", "p", "t"]
    assert places(["gp"], "agp gp") == [4, 5]


@given(WORDS, WORDS)
def test_positions_of_a_match_hold_the_typed_letters(typed, text):
    words, text = typed.lower().split(), text.lower()
    if score(words, text):
        at = places(words, text)
        assert [text[place] for place in at] == list("".join(words))


@given(WORDS, WORDS, WORDS)
def test_substring_always_matches(previous, typed, after):
    typed = typed.lower()
    assert score(typed.split(), f"{previous.lower()}{typed}{after.lower()}") > 0


def test_hostile_name_takes_no_time():
    name = "a" * 5_000 + "b"
    started = time.process_time()
    assert score(["a" * 30 + "c"], name) == 0
    assert score(["ab" * 2], name) == 0
    assert time.process_time() - started < 10, "it tries every way"
