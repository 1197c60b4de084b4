"""The past as evidence: read from a real store, weighed by likeness, and followed while others write to it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from math import exp, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.errors import StoreError
from ecoshell.planning.btp.evidence import (
    NEARNESS,
    NO_EVIDENCE,
    OTHER_SCHEMA_WEIGHT,
    Evidence,
    Figure,
    Past,
    QuestionIndex,
)
from ecoshell.planning.btp.experience import Choice, ExperienceStore, Use
from ecoshell.planning.btp.value import frequency_bound, value

WEATHER = "what is the weather in Paris"
RAIN = "will it rain in Paris"
PARSER = "refactor the config parser"
NOW = {"look": "now", "read": "now", "edit": "now"}


def use(query: str, tool: str = "look", helpful: bool | None = True, **given: object) -> Use:
    """One use; `given` replaces what does not matter."""
    fields: dict[str, object] = {
        "document_hash": "now",
        "arguments": "{}",
        "result": "done",
        "result_hash": "0",
        "ok": True,
        "judged_by": "rules",
        "model": "small",
        "price_nano": 1000,
        "step_nano": 200,
        "step_tokens": 50,
        "seconds": 1.0,
        "size_level": 0,
        "session": "s",
        "at": "2026-01-01T00:00:00Z",
    }
    return Use(query=query, tool=tool, helpful=helpful, **{**fields, **given})  # pyright: ignore[reportArgumentType]


def numbered(uses: Sequence[Use]) -> list[Use]:
    """The uses with a call id each, as they come from a session."""
    return [Use(**{**asdict(one), "call": f"c{number}"}) for number, one in enumerate(uses)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperienceStore]:
    store = ExperienceStore(tmp_path / "experience.db")
    yield store
    store.close()


def known(store: ExperienceStore, query: str = WEATHER, tool: str = "look", model: str = "small") -> Evidence:
    return Past(store).evidence(query, NOW, model)[tool]


def test_without_experience_nothing_is_known_of_any_tool(store: ExperienceStore):
    assert Past(store).evidence(WEATHER, NOW, "small") == dict.fromkeys(NOW, NO_EVIDENCE)


def test_a_shell_without_experience_does_not_load_numpy(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path;"
        "from ecoshell.planning.btp.evidence import Past;"
        "from ecoshell.planning.btp.experience import ExperienceStore;"
        f"Past(ExperienceStore(Path({str(tmp_path / 'e.db')!r}))).evidence('q', {{'look': 'now'}}, 'm');"
        "sys.exit('numpy' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0


def test_a_use_for_the_same_question_weighs_one(store: ExperienceStore):
    store.add([use(WEATHER, helpful=True)])
    found = known(store)
    assert (found.uses, found.weight, found.helpful_weight) == (1, pytest.approx(1.0), pytest.approx(1.0))
    assert value(found) == pytest.approx(0.55)


def test_uses_for_questions_like_the_new_one_weigh_more(store: ExperienceStore):
    store.add(numbered([use(RAIN, "look"), use(PARSER, "read")]))
    found = Past(store).evidence(WEATHER, NOW, "small")
    assert found["look"].weight > found["read"].weight >= exp(-1)
    assert found["look"].chance > found["read"].chance


def test_a_use_under_another_document_of_its_tool_weighs_a_half(store: ExperienceStore):
    store.add(numbered([use(WEATHER, document_hash="before"), use(WEATHER, "read")]))
    found = Past(store).evidence(WEATHER, NOW, "small")
    assert found["look"].weight == pytest.approx(OTHER_SCHEMA_WEIGHT * found["read"].weight)
    assert found["look"].uses == found["read"].uses == 1


def test_a_use_that_nobody_judged_counts_as_a_use_and_not_towards_the_value(store: ExperienceStore):
    store.add(numbered([use(WEATHER, helpful=None), use(WEATHER, helpful=None)]))
    found = known(store)
    assert (found.uses, found.weight, found.query_weight) == (2, 0.0, pytest.approx(1.0))
    assert found.frequency_weight == pytest.approx(1.0)


def test_uses_are_counted_for_each_task_and_at_most_one_where_none_helped(store: ExperienceStore):
    helped = [use(WEATHER, "look", helpful) for helpful in (False, True, False)]
    never = [use(WEATHER, "read", False) for _ in range(3)]
    store.add(numbered([*helped, *never]))
    found = Past(store).evidence(WEATHER, NOW, "small")
    assert found["look"].frequency_weight == pytest.approx(3.0)
    assert found["read"].frequency_weight == pytest.approx(1.0)
    assert frequency_bound(found["look"], value(found["look"]), 0.15) == 3


def test_the_same_question_asked_again_is_another_task(store: ExperienceStore):
    store.add([use(WEATHER, turn=turn, call="c") for turn in range(4)])
    found = known(store)
    assert found.query_weight == found.frequency_weight == pytest.approx(4.0)
    assert frequency_bound(found, value(found), 0.15) == 1


def test_means_are_those_of_the_tool_and_steps_those_of_the_model(store: ExperienceStore):
    store.add(
        numbered(
            [
                use(WEATHER, price_nano=100, seconds=1.0, step_nano=10, step_tokens=7),
                use(PARSER, price_nano=300, seconds=3.0, step_nano=None, step_tokens=9),
                use(RAIN, price_nano=200, seconds=2.0, step_nano=99, step_tokens=99, model="large"),
            ]
        )
    )
    found = known(store)
    assert found.price == Figure(3, pytest.approx(200.0), pytest.approx(sqrt(20_000 / 3)))
    assert found.seconds == Figure(3, pytest.approx(2.0), pytest.approx(sqrt(2 / 3)))
    assert found.step_nano == Figure(1, pytest.approx(10.0), 0.0)
    assert found.step_tokens == Figure(2, pytest.approx(8.0), pytest.approx(1.0))
    assert known(store, model="unheard of").step_tokens == Figure()


def test_a_tool_that_no_past_task_used_is_less_likely_the_more_tasks_there_are_like_this_one(store: ExperienceStore):
    store.add([use(WEATHER, "look")])
    found = known(store, tool="edit")
    assert (found.uses, found.chance, found.chance_weight) == (0, 0.0, pytest.approx(1.0))


def test_uses_and_marks_that_come_later_are_seen(store: ExperienceStore):
    past = Past(store)
    assert past.evidence(WEATHER, NOW, "small")["look"].uses == 0
    store.add([use(WEATHER, helpful=None, turn=1, call="c1")])
    assert past.evidence(WEATHER, NOW, "small")["look"].weight == 0.0
    store.add([use(PARSER, turn=2, call="c1")])
    assert past.evidence(PARSER, NOW, "small")["look"].uses == 2
    assert store.mark("s", 1, "c1", helpful=False)
    found = past.evidence(WEATHER, NOW, "small")["look"]
    assert found.weight > 1.0 > found.helpful_weight


def test_what_another_shell_writes_is_seen(store: ExperienceStore, tmp_path: Path):
    past = Past(store)
    assert past.evidence(WEATHER, NOW, "small")["look"] == NO_EVIDENCE
    other = ExperienceStore(tmp_path / "experience.db")
    other.add([use(WEATHER, turn=1, call="c1")])
    assert past.evidence(WEATHER, NOW, "small")["look"].uses == 1
    other.mark("s", 1, "c1", helpful=False)
    assert past.evidence(WEATHER, NOW, "small")["look"].helpful_weight == 0.0
    other.close()


def test_what_is_forgotten_is_evidence_no_more(store: ExperienceStore):
    past = Past(store)
    store.add(numbered([use(WEATHER), use(PARSER, "edit"), use(RAIN, "read")]))
    assert past.evidence(RAIN, NOW, "small")["read"].uses == 1
    assert store.forget(Choice(tool="read")).uses == 1
    store.add([use(PARSER, "edit", turn=9, call="c")])
    found = past.evidence(RAIN, NOW, "small")
    assert {tool: found[tool].uses for tool in NOW} == {"look": 1, "read": 0, "edit": 2}
    assert found == Past(store).evidence(RAIN, NOW, "small")


class Stumbling:
    """A store that fails the first time it is asked for questions."""

    def __init__(self, store: ExperienceStore) -> None:
        self._store = store
        self._failed = False
        self.generation = store.generation
        self.columns, self.attempts_after = store.columns, store.attempts_after

    def queries(self, after: int = 0) -> Sequence[tuple[int, str]]:
        if not self._failed:
            self._failed = True
            raise StoreError("The file is locked.")
        return self._store.queries(after)


def test_after_a_store_has_failed_everything_is_read_again(store: ExperienceStore):
    store.add(numbered([use(WEATHER), use(PARSER)]))
    past = Past(Stumbling(store))
    with pytest.raises(StoreError, match="locked"):
        past.evidence(WEATHER, NOW, "small")
    assert past.evidence(WEATHER, NOW, "small")["look"] == known(store)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM state",
        "UPDATE uses SET helpful = 'abc'",
        "UPDATE uses SET helpful = 300",
        "UPDATE uses SET step_nano = 'abc'",
        "UPDATE uses SET seconds = 9e999",
    ],
)
def test_an_experience_that_is_damaged_is_told_as_one(store: ExperienceStore, tmp_path: Path, change: str):
    store.add([use(WEATHER)])
    damage(tmp_path, change)
    with pytest.raises(StoreError, match="damaged"):
        known(store)


def damage(folder: Path, change: str) -> None:
    with closing(sqlite3.connect(folder / "experience.db")) as db, db:
        db.execute(change)


def test_threads_may_ask_while_uses_come_in(store: ExperienceStore):
    past = Past(store)
    with ThreadPoolExecutor(4) as pool:
        adding = pool.submit(lambda: [store.add([use(f"question {turn}", turn=turn, call="c")]) for turn in range(30)])
        asked = [pool.submit(past.evidence, f"question {number}", NOW, "small") for number in range(30)]
        adding.result()
        seen = [one.result()["look"].uses for one in asked]
    assert all(0 <= count <= 30 for count in seen)
    assert past.evidence("question 1", NOW, "small")["look"] == known(store, "question 1")


WORDS = ["weather", "Paris", "rain", "parser", "config", "天气"]
questions = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
histories = st.lists(
    st.builds(
        use,
        questions,
        st.sampled_from([*NOW, "gone"]),
        st.sampled_from([True, False, None]),
        document_hash=st.sampled_from(["now", "before"]),
        turn=st.integers(0, 2),
        price_nano=st.integers(0, 10**12),
        step_nano=st.none() | st.integers(0, 10**9),
        model=st.sampled_from(["small", "large"]),
    ),
    max_size=12,
).map(numbered)


def evidence_of(uses: Sequence[Use], query: str) -> dict[str, Evidence]:
    with TemporaryDirectory() as folder:
        store = ExperienceStore(Path(folder) / "experience.db")
        try:
            store.add(uses)
            return Past(store).evidence(query, NOW, "small")
        finally:
            store.close()


def plain(evidence: Evidence) -> dict[str, object]:
    """The evidence as numbers that may differ in their last digits."""
    return {
        name: pytest.approx(tuple(field.values()) if isinstance(field, dict) else field, rel=1e-6, abs=1e-6)
        for name, field in asdict(evidence).items()
    }


def flat(evidence: Evidence) -> dict[str, object]:
    return {
        name: tuple(field.values()) if isinstance(field, dict) else field for name, field in asdict(evidence).items()
    }


@settings(max_examples=30, deadline=None)
@given(histories, questions, st.randoms(use_true_random=False))
def test_the_order_in_which_uses_were_recorded_does_not_matter(uses, query, random):
    shuffled = list(uses)
    random.shuffle(shuffled)
    one, other = evidence_of(uses, query), evidence_of(shuffled, query)
    for tool in NOW:
        assert flat(one[tool]) == plain(other[tool])
        worth = value(one[tool])
        assert frequency_bound(one[tool], worth, 0.15) == frequency_bound(other[tool], worth, 0.15)


@settings(max_examples=30, deadline=None)
@given(histories, questions)
def test_sums_are_those_of_the_formulas(uses, query):
    """Checked against the sums written out use by use (SPEC §2)."""
    index = QuestionIndex()
    past = list(dict.fromkeys(one.query for one in uses))
    index.add(past)
    cosine = dict(zip(past, index.cosines(query).tolist(), strict=True))
    found = evidence_of(uses, query)
    every_task = {(one.query, one.turn) for one in uses}
    for tool in NOW:
        mine = [one for one in uses if one.tool == tool]
        weights = [
            exp(cosine[one.query] - 1) * (1 if one.document_hash == "now" else OTHER_SCHEMA_WEIGHT) for one in mine
        ]
        judged = [(weight, one) for weight, one in zip(weights, mine, strict=True) if one.helpful is not None]
        tasks = {
            (one.query, one.turn): [other for other in mine if other.query == one.query and other.turn == one.turn]
            for one in mine
        }
        assert found[tool].uses == len(mine)
        assert found[tool].weight == pytest.approx(sum(weight for weight, _ in judged))
        assert found[tool].helpful_weight == pytest.approx(sum(weight for weight, one in judged if one.helpful))
        task_weights = [
            (
                exp(cosine[question] - 1)
                * (1 if any(one.document_hash == "now" for one in done) else OTHER_SCHEMA_WEIGHT),
                done,
            )
            for (question, _), done in tasks.items()
        ]
        counts = [len(done) if any(one.helpful for one in done) else 1 for _, done in task_weights]
        assert found[tool].query_weight == pytest.approx(sum(weight for weight, _ in task_weights))
        assert found[tool].frequency_weight == pytest.approx(
            sum(weight * count for (weight, _), count in zip(task_weights, counts, strict=True))
        )
        near = sum(cosine[question] ** NEARNESS for question, _ in every_task)
        assert found[tool].chance_weight == pytest.approx(near)
        used = sum(cosine[question] ** NEARNESS for question, _ in tasks)
        assert found[tool].chance * near == pytest.approx(used)
