"""How alike questions are: those that mean the same are near each other, in every process and every order."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.btp.similarity import FeatureIndex, WordEncoder

WEATHER = "What will the weather be in Paris tomorrow?"


def cosines(text: str, past: Sequence[str]) -> list[float]:
    encoder, index = WordEncoder(), FeatureIndex()
    index.add(encoder.encode(past))
    return index.cosines(encoder.encode([text])[0]).tolist()


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
    encoder, index = WordEncoder(), FeatureIndex()
    for vector in encoder.encode(texts):
        index.add([vector])
        index.cosines(vector)  # what is remembered of fewer rows is not used for more
    asked = "the weather at the station"
    assert len(index) == len(texts)
    assert index.cosines(encoder.encode([asked])[0]).tolist() == pytest.approx(cosines(asked, texts), abs=1e-6)


def test_vectors_are_the_same_in_another_process():
    program = (
        "import sys; from ecoshell.planning.btp.similarity import WordEncoder;"
        f"sys.stdout.write(WordEncoder().encode([{WEATHER!r}])[0].hex())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == WordEncoder().encode([WEATHER])[0].hex()


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=60))
def test_words_have_cosines_between_nothing_and_all_and_the_same_text_has_all(past: list[str], text: str):
    found = cosines(text, [*past, text])
    assert all(0.0 <= cosine <= 1.0 for cosine in found)
    assert found[-1] == pytest.approx(1.0 if WordEncoder().encode([text])[0] else 0.0)


features = st.sets(st.integers(0, 65535), max_size=8)


@given(st.lists(features, min_size=1, max_size=8), features)
def test_rows_are_weighed_by_how_rare_their_features_are(rows: list[set[int]], asked: set[int]):
    def weight(feature: int) -> float:
        return math.log((1 + len(rows)) / (1 + sum(feature in row for row in rows))) + 1

    def dot(one: set[int], other: set[int]) -> float:
        return sum(weight(feature) ** 2 for feature in one & other)

    index = FeatureIndex()
    index.add([_packed(row) for row in rows])
    lengths = [math.sqrt(dot(row, row) * dot(asked, asked)) for row in rows]
    expected = [dot(row, asked) / length if length else 0.0 for row, length in zip(rows, lengths, strict=True)]
    assert index.cosines(_packed(asked)).tolist() == pytest.approx(expected)


def _packed(row: set[int]) -> bytes:
    return np.array(sorted(row), "<u2").tobytes()
