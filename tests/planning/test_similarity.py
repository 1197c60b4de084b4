"""How alike questions are: those that mean the same are near each other, in every process and every order."""

import math
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.btp.evidence import QuestionIndex

WEATHER = "What will the weather be in Paris tomorrow?"


def cosines(text: str, past: Sequence[str]) -> list[float]:
    index = QuestionIndex()
    index.add(past)
    return index.cosines(text).tolist()


def test_the_same_question_is_as_near_as_can_be():
    assert cosines(WEATHER, [WEATHER]) == [pytest.approx(1.0, abs=0.001)]


def test_a_question_is_nearer_to_one_of_its_kind_than_to_another():
    near, far = cosines(WEATHER, ["weather tomorrow in London", "Refactor the parser of the config file"])
    assert near > 0.3 > far


def test_another_form_of_a_word_is_near_it():
    near, far = cosines("convert these files", ["converting a file", "the capital of France"])
    assert near > far + 0.2


def test_languages_without_spaces_are_compared_too():
    near, far = cosines("北京天气怎么样", ["上海天气如何", "请写一首诗"])
    assert near > far


@pytest.mark.parametrize("empty", ["", " \n\t"])
def test_a_text_without_words_is_near_to_nothing(empty: str):
    assert cosines(empty, [WEATHER, empty]) == [0.0, 0.0]
    assert cosines(WEATHER, [empty]) == [0.0]


def test_half_a_surrogate_pair_a_null_and_a_very_long_text_are_taken_as_they_come():
    found = cosines(WEATHER, ["\ud83d weather", "weather\x00", "weather " * 100_000])
    assert all(0.2 < cosine <= 1.0 for cosine in found)


def test_an_index_without_rows_gives_no_cosines():
    assert cosines(WEATHER, []) == []


def test_cosines_come_in_the_order_of_the_rows_however_these_were_added():
    texts = [WEATHER, "", "a route to the station", "weather in Rome", "北京天气怎么样"]
    index = QuestionIndex()
    for text in texts:
        index.add([text])
        index.cosines(text)  # what is remembered of fewer rows is not used for more
    asked = "the weather at the station"
    assert index.cosines(asked).tolist() == pytest.approx(cosines(asked, texts), abs=1e-6)


def test_cosines_are_the_same_in_another_process():
    program = (
        "from ecoshell.planning.btp.evidence import QuestionIndex; index = QuestionIndex();"
        f"index.add([{WEATHER!r}, 'weather in Rome']); print(index.cosines('weather')[1])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert float(run.stdout) == cosines("weather", [WEATHER, "weather in Rome"])[1]


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=60))
def test_words_have_cosines_between_nothing_and_all_and_the_same_text_has_all(past: list[str], text: str):
    found = cosines(text, [*past, text])
    assert all(0.0 <= cosine <= 1.0 for cosine in found)
    folded = unicodedata.normalize("NFKC", text)  # a sign such as ㈪ has a letter in it
    assert found[-1] == pytest.approx(1.0 if re.search(r"[^\W_]", folded) else 0.0)


words = st.sets(st.sampled_from("犬猫鳥魚馬牛"), max_size=6)
"""Words of one sign."""
FEATURES_OF_ONE = 5
"""The word, alone, behind a blank, before one and between two, and as a whole: `=犬`, `犬`, ` 犬`, `犬 `, ` 犬 `."""


@given(st.lists(words, min_size=1, max_size=8), words)
def test_rows_are_weighed_by_how_rare_their_words_are(rows: list[set[str]], asked: set[str]):
    def weight(word: str) -> float:
        return math.log((1 + len(rows)) / (1 + sum(word in row for row in rows))) + 1

    def dot(one: set[str], other: set[str]) -> float:
        blank = math.log((1 + len(rows)) / (1 + sum(map(bool, rows)))) + 1  # the blank that marks a word's ends
        return sum(FEATURES_OF_ONE * weight(word) ** 2 for word in one & other) + bool(one and other) * blank**2

    lengths = [math.sqrt(dot(row, row) * dot(asked, asked)) for row in rows]
    expected = [dot(row, asked) / length if length else 0.0 for row, length in zip(rows, lengths, strict=True)]
    assert cosines(" ".join(sorted(asked)), [" ".join(sorted(row)) for row in rows]) == pytest.approx(expected)
