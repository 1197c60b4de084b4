"""The classifier of results: training on marks, cross-validation and storage."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.experience import Use
from ecoshell_train.classifier import DIMENSIONS, Classifier, features, load, save
from ecoshell_train.classifier_training import MIN_PER_CLASS, train

TOWNS = "Oslo Bergen Tromsø Bodø Narvik Hamar Voss Molde Ålesund Drammen Moss Larvik Skien Arendal"
PLACES = TOWNS.split()


def use(query, result, helpful, *, tool="search", by="you", ok=True, arguments="{}"):
    return Use(query, tool, "d", arguments, result, "r", ok, helpful, by, "m", 0, None, 0, 0.0, 0)


def marks():
    """Marks of a user who likes timetables and dislikes advertisements; rules cannot distinguish them."""
    good = [
        use(f"Trains to {place}?", f"Timetable {place}: departs 06:12, platform 4", True)
        for place in PLACES
    ]
    bad = [
        use(f"Buses to {place}?", f"Book your dream holiday in {place} now! Cheap offers", False)
        for place in PLACES
    ]
    return [*good, *bad]


TIMES = Observation("Timetable Kiruna: departs 07:00, platform 1")
ADVERTISEMENT = Observation("Book a dream holiday in Kiruna! Offers for you")


@pytest.fixture(scope="module")
def training():
    return train(marks())


def test_classifier_learns_distinctions_that_rules_cannot_make(training):
    judge = training.classifier.judge
    call = Call("search", {"text": "Kiruna"})
    liked, disliked = (
        judge("Trains to Kiruna?", call, TIMES),
        judge("Ships to Kiruna?", call, ADVERTISEMENT),
    )
    assert (liked.helpful, liked.by, liked.sure) == (True, "classifier", True)
    assert (disliked.helpful, disliked.by) == (False, "classifier")
    assert "likely to help" in disliked.reason


def test_accuracy_is_compared_with_rules_and_majority_on_the_same_folds(training):
    assert (training.helpful, training.unhelpful, training.skipped, training.folds) == (
        14,
        14,
        0,
        5,
    )
    assert training.accuracy.mean == 1.0
    assert training.rules.mean == pytest.approx(0.5, abs=0.1)
    assert training.majority.mean <= 0.5
    assert training.pays


def test_training_on_noise_does_not_pay():
    texts = [f"Note {place}" for place in PLACES * 2]
    noise = [
        use(f"Question about {text}", text, place % 2 == 0) for place, text in enumerate(texts)
    ]
    training = train(noise)
    assert not training.pays
    assert training.accuracy.mean < 0.8


def test_training_is_deterministic(training):
    assert train(iter(marks())) == training


def test_marks_of_one_question_share_a_fold():
    """Otherwise the classifier would recognise questions by their words."""
    uses = [
        use(f"{place} or not", "something came back", place < "J")
        for place in PLACES
        for _ in range(8)
    ]
    assert train(uses).accuracy.mean < 0.8


@pytest.mark.parametrize("uses", [[], marks()[: 14 + MIN_PER_CLASS - 1]])
def test_too_few_marks_are_refused_with_advice(uses):
    with pytest.raises(UsageError, match=f"{MIN_PER_CLASS} results of each kind") as refused:
        train(uses)
    assert "+ or -" in refused.value.fix
    assert "--all-judged" in refused.value.fix


def test_only_marks_of_the_user_count_without_all_judged():
    by_others = [replace(mark, judged_by="model" if mark.helpful else "rules") for mark in marks()]
    with pytest.raises(UsageError, match="0 helpful and 0 unhelpful"):
        train(by_others)
    assert train(by_others, all_judged=True).helpful == 14


def test_classifier_does_not_learn_from_its_own_verdicts():
    with pytest.raises(UsageError):
        train([replace(mark, judged_by="classifier") for mark in marks()], all_judged=True)


def test_mistakes_of_the_caller_are_skipped():
    typo = use(
        "Read it",
        "nots.txt: there is no such file or folder.",
        False,
        ok=False,
        arguments='{"path": "nots.txt"}',
    )
    training = train([*marks(), typo, use("Go", "", None)])
    assert (training.skipped, training.unhelpful) == (1, 14)


def test_rules_judge_mistakes_of_the_caller(training):
    seen = Observation("nots.txt: there is no such file or folder.", ok=False)
    verdict = training.classifier.judge("Read it", Call("read_file", {"path": "nots.txt"}), seen)
    assert (verdict.helpful, verdict.by) == (None, "")


@pytest.mark.parametrize("arguments", ['{"path": "a…', "[1]", "[" * 9_999, ""])
def test_truncated_arguments_are_accepted(arguments):
    assert train([replace(mark, arguments=arguments) for mark in marks()]).helpful == 14


def test_missing_scikit_learn_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)  # makes the import fail
    with pytest.raises(UsageError, match="scikit-learn") as refused:
        train(marks())
    assert "pip install 'ecoshell[learn]'" in refused.value.fix


def test_saved_classifier_loads_unchanged(training, tmp_path):
    file = tmp_path / "new" / "judge.json"
    save(training.classifier, file)
    assert load(file) == training.classifier
    assert [entry.name for entry in file.parent.iterdir()] == ["judge.json"]
    assert file.stat().st_mode & 0o077 == 0


def test_judging_imports_no_library(training, tmp_path):
    save(training.classifier, tmp_path / "judge.json")
    code = f"""
import sys
from pathlib import Path
from ecoshell.messages import Call, Observation
from ecoshell_train.classifier import load
judge = load(Path({str(tmp_path / "judge.json")!r})).judge
verdict = judge("Ships?", Call("search"), Observation("Book a holiday! Offers"))
print(verdict.by, *[name for name in ("numpy", "scipy", "sklearn") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["classifier"]


VALID = {
    "format": "ecoshell judge",
    "version": 1,
    "dimensions": DIMENSIONS,
    "bias": 0.0,
    "weights": {"3": 1.5},
}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "did not write it"),
        ("{", "did not write it"),
        pytest.param("[" * 100_000, "did not write it", id="deep"),
        ("[1]", "did not write it"),
        ("{}", "did not write it"),
        (json.dumps({**VALID, "version": 2}), "another version"),
        (json.dumps({**VALID, "dimensions": 8}), "another version"),
        (json.dumps({**VALID, "weights": [1]}), "did not write it"),
        (json.dumps({**VALID, "weights": {"-1": 1}}), "did not write it"),
        (json.dumps({**VALID, "weights": {str(DIMENSIONS): 1}}), "did not write it"),
        (json.dumps({**VALID, "weights": {"3": "x"}}), "not a number"),
        (json.dumps({**VALID, "weights": {"3": True}}), "not a number"),
        (json.dumps({**VALID, "bias": None}), "not a number"),
        (json.dumps({**VALID, "bias": float("nan")}), "not a number"),
        (json.dumps({**VALID, "bias": 10**40}), "not a number"),
        pytest.param(" " * 5_000_000, "too large", id="large"),
    ],
)
def test_damaged_file_is_named_and_unchanged(text, why, tmp_path):
    file = tmp_path / "judge.json"
    file.write_text(text)
    with pytest.raises(StoreError, match=why) as broken:
        load(file)
    assert str(file) in broken.value.message
    assert "experience train" in broken.value.fix
    assert file.read_text() == text


def test_missing_file_says_how_to_train(tmp_path):
    with pytest.raises(UsageError, match="No classifier"):
        load(tmp_path / "judge.json")
    with pytest.raises(StoreError):
        load(tmp_path)


def test_unwritable_folder_raises_store_error(training, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        save(training.classifier, tmp_path / "file" / "judge.json")


@given(st.text(max_size=200), st.text(max_size=20), st.text(max_size=600), st.booleans())
def test_features_and_chance_exist_for_any_result(query, tool, text, ok):
    call, seen = Call(tool), Observation(text, ok)
    values = features(query, call, seen)
    assert all(0 <= index < DIMENSIONS for index in values)
    assert 0 <= Classifier(-3.0, dict.fromkeys(values, 1e6)).chance(query, call, seen) <= 1


def test_stored_beginning_has_the_features_of_the_full_result():
    result = Observation("Timetable: " + "departs 06:12. " * 200)
    assert features("Trains?", Call("search"), result) == features(
        "Trains?", Call("search"), replace(result, text=result.text[:400])
    )
