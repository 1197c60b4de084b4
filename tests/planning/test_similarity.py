"""Similarity of questions, which is the same in every process and order."""

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


def test_the_same_question_has_cosine_one():
    assert cosines(WEATHER, [WEATHER]) == [pytest.approx(1.0, abs=0.001)]


def test_a_question_is_more_similar_to_one_of_its_kind():
    near, far = cosines(
        WEATHER, ["weather tomorrow in London", "Refactor the parser of the config file"]
    )
    assert near > 0.3 > far


def test_forms_of_a_word_are_similar():
    near, far = cosines("convert these files", ["converting a file", "the capital of France"])
    assert near > far + 0.2


def test_languages_without_spaces_are_compared():
    near, far = cosines("北京天气怎么样", ["上海天气如何", "请写一首诗"])
    assert near > far


@pytest.mark.parametrize("empty", ["", " \n\t"])
def test_a_text_without_words_has_cosine_zero(empty: str):
    assert cosines(empty, [WEATHER, empty]) == [0.0, 0.0]
    assert cosines(WEATHER, [empty]) == [0.0]


def test_surrogates_nulls_and_very_long_texts_are_accepted():
    weather = cosines(WEATHER, ["\ud83d weather", "weather\x00", "weather " * 100_000])
    assert all(0.2 < cosine <= 1.0 for cosine in weather)


def test_an_empty_index_gives_no_cosines():
    assert cosines(WEATHER, []) == []


def test_cosines_follow_the_order_of_rows_added_one_by_one():
    texts = [WEATHER, "", "a route to the station", "weather in Rome", "北京天气怎么样"]
    index = QuestionIndex()
    for text in texts:
        index.add([text])
        index.cosines(text)  # caches a state of fewer rows
    query = "the weather at the station"
    assert index.cosines(query).tolist() == pytest.approx(cosines(query, texts), abs=1e-6)


def test_cosines_are_the_same_in_another_process():
    program = (
        "from ecoshell.planning.btp.evidence import QuestionIndex; index = QuestionIndex();"
        f"index.add([{WEATHER!r}, 'weather in Rome']); print(index.cosines('weather')[1])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert float(run.stdout) == cosines("weather", [WEATHER, "weather in Rome"])[1]


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=60))
def test_cosines_lie_between_zero_and_one_which_is_the_same_text(past: list[str], text: str):
    result = cosines(text, [*past, text])
    assert all(0.0 <= cosine <= 1.0 for cosine in result)
    folded = unicodedata.normalize("NFKC", text)  # characters such as ㈪ contain a letter
    assert result[-1] == pytest.approx(1.0 if re.search(r"[^\W_]", folded) else 0.0)


words = st.sets(st.sampled_from("犬猫鳥魚馬牛"), max_size=6)
FEATURES_PER_WORD = 5
"""Features of a word of one character: `=犬`, `犬`, ` 犬`, `犬 `, ` 犬 `."""


@given(st.lists(words, min_size=1, max_size=8), words)
def test_rare_words_weigh_more(rows: list[set[str]], query: set[str]):
    def weight(word: str) -> float:
        return math.log((1 + len(rows)) / (1 + sum(word in row for row in rows))) + 1

    def dot(first: set[str], second: set[str]) -> float:
        blank = (
            math.log((1 + len(rows)) / (1 + sum(map(bool, rows)))) + 1
        )  # the blank that marks a word's ends
        return (
            sum(FEATURES_PER_WORD * weight(word) ** 2 for word in first & second)
            + bool(first and second) * blank**2
        )

    lengths = [math.sqrt(dot(row, row) * dot(query, query)) for row in rows]
    expected = [
        dot(row, query) / length if length else 0.0
        for row, length in zip(rows, lengths, strict=True)
    ]
    assert cosines(
        " ".join(sorted(query)), [" ".join(sorted(row)) for row in rows]
    ) == pytest.approx(expected)
