"""Fuzzy search: what a few letters find, and in which order."""

import time

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.tui.fuzzy import best, places, score

NAMES = ["azure/gpt-4o", "gpt-4", "gpt-4o", "gpt-4o-mini", "openai/gpt-4o", "claude-sonnet-4"]
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)


def found(typed: str, names: list[str] = NAMES) -> list[str]:
    return best(typed, ((name, name) for name in names), 10)[0]


def test_the_whole_name_comes_first_then_its_start_then_a_word_in_it():
    assert found("gpt-4o") == ["gpt-4o", "gpt-4o-mini", "azure/gpt-4o", "openai/gpt-4o"]


def test_equals_stay_in_their_order():
    assert found("4o", ["b-4o-x", "a-4o-x"]) == ["b-4o-x", "a-4o-x"]


def test_every_word_must_be_there_in_whatever_order():
    assert found("mini gpt") == ["gpt-4o-mini"]
    assert found("mini claude") == []


def test_words_side_by_side_as_they_were_typed_come_before_words_apart():
    names = ["theme high-contrast-light", "theme light"]
    assert found("theme light", names) == ["theme light", "theme high-contrast-light"]


def test_letters_may_stand_apart_and_the_closer_they_are_the_better():
    assert found("gp4", ["g-p-x-4", "gpt4", "no"]) == ["gpt4", "g-p-x-4"]


def test_capitals_make_no_difference():
    assert found("CLAUDE") == ["claude-sonnet-4"]


def test_letters_out_of_order_are_not_found():
    assert score(["tpg"], "gpt") == 0


def test_no_more_than_asked_for_are_given_and_all_are_counted():
    shown, count = best("gpt", ((name, name) for name in NAMES), 2)
    assert (len(shown), count) == (2, 5)


def test_the_places_are_those_of_the_letters():
    assert [("the-gp-t"[at]) for at in places(["gpt"], "the-gp-t")] == ["g", "p", "t"]
    assert places(["gp"], "agp gp") == [4, 5]


@given(WORDS, WORDS)
def test_what_fits_has_the_typed_letters_where_it_says(typed, text):
    words, text = typed.lower().split(), text.lower()
    if score(words, text):
        at = places(words, text)
        assert [text[place] for place in at] == list("".join(words))


@given(WORDS, WORDS, WORDS)
def test_a_text_that_holds_what_was_typed_is_found(before, typed, after):
    typed = typed.lower()
    assert score(typed.split(), f"{before.lower()}{typed}{after.lower()}") > 0


def test_a_hostile_name_takes_no_time():
    name = "a" * 5_000 + "b"
    started = time.process_time()
    assert score(["a" * 30 + "c"], name) == 0
    assert score(["ab" * 2], name) == 0
    assert time.process_time() - started < 10, "it tries every way"
