"""Past uses as evidence: read from a real store, weighted by similarity, and updated while others write."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
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


def use(query: str, tool: str = "look", helpful: bool | None = True, **overrides: object) -> Use:
    """A use with default fields."""
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
    return Use(query=query, tool=tool, helpful=helpful, **{**fields, **overrides})  # pyright: ignore[reportArgumentType]


def numbered(uses: Sequence[Use]) -> list[Use]:
    """The uses with distinct call ids, as sessions record them."""
    return [replace(use, call=f"c{number}") for number, use in enumerate(uses)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperienceStore]:
    store = ExperienceStore(tmp_path / "experience.db")
    yield store
    store.close()


def evidence_for(
    store: ExperienceStore, query: str = WEATHER, tool: str = "look", model: str = "small"
) -> Evidence:
    return Past(store).evidence(query, NOW, model)[tool]


def test_without_experience_no_tool_has_evidence(store: ExperienceStore):
    assert Past(store).evidence(WEATHER, NOW, "small") == dict.fromkeys(NOW, NO_EVIDENCE)


def test_numpy_is_not_loaded_without_experience(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path;"
        "from ecoshell.planning.btp.evidence import Past;"
        "from ecoshell.planning.btp.experience import ExperienceStore;"
        f"Past(ExperienceStore(Path({str(tmp_path / 'e.db')!r}))).evidence('q', {{'look': 'now'}}, 'm');"
        "sys.exit('numpy' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode
        == 0
    )


def test_a_use_for_the_same_question_has_weight_one(store: ExperienceStore):
    store.add([use(WEATHER, helpful=True)])
    evidence = evidence_for(store)
    assert (evidence.uses, evidence.weight, evidence.helpful_weight) == (
        1,
        pytest.approx(1.0),
        pytest.approx(1.0),
    )
    assert value(evidence) == pytest.approx(0.55)


def test_uses_for_similar_questions_weigh_more(store: ExperienceStore):
    store.add(numbered([use(RAIN, "look"), use(PARSER, "read")]))
    evidence = Past(store).evidence(WEATHER, NOW, "small")
    assert evidence["look"].weight > evidence["read"].weight >= exp(-1)
    assert evidence["look"].chance > evidence["read"].chance


def test_a_use_with_another_tool_schema_weighs_half(store: ExperienceStore):
    store.add(numbered([use(WEATHER, document_hash="before"), use(WEATHER, "read")]))
    evidence = Past(store).evidence(WEATHER, NOW, "small")
    assert evidence["look"].weight == pytest.approx(OTHER_SCHEMA_WEIGHT * evidence["read"].weight)
    assert evidence["look"].uses == evidence["read"].uses == 1


def test_an_unjudged_use_counts_as_a_use_but_not_towards_the_value(store: ExperienceStore):
    store.add(numbered([use(WEATHER, helpful=None), use(WEATHER, helpful=None)]))
    evidence = evidence_for(store)
    assert (evidence.uses, evidence.weight, evidence.query_weight) == (2, 0.0, pytest.approx(1.0))
    assert evidence.frequency_weight == pytest.approx(1.0)


def test_a_task_counts_all_its_uses_but_only_one_if_none_helped(store: ExperienceStore):
    mixed = [use(WEATHER, "look", helpful) for helpful in (False, True, False)]
    unhelpful = [use(WEATHER, "read", False) for _ in range(3)]
    store.add(numbered([*mixed, *unhelpful]))
    evidence = Past(store).evidence(WEATHER, NOW, "small")
    assert evidence["look"].frequency_weight == pytest.approx(3.0)
    assert evidence["read"].frequency_weight == pytest.approx(1.0)
    assert frequency_bound(evidence["look"], value(evidence["look"]), 0.15) == 3


def test_a_repeated_question_is_another_task(store: ExperienceStore):
    store.add([use(WEATHER, turn=turn, call="c") for turn in range(4)])
    evidence = evidence_for(store)
    assert evidence.query_weight == evidence.frequency_weight == pytest.approx(4.0)
    assert frequency_bound(evidence, value(evidence), 0.15) == 1


def test_prices_are_averaged_per_tool_and_steps_per_model(store: ExperienceStore):
    store.add(
        numbered(
            [
                use(WEATHER, price_nano=100, seconds=1.0, step_nano=10, step_tokens=7),
                use(PARSER, price_nano=300, seconds=3.0, step_nano=None, step_tokens=9),
                use(RAIN, price_nano=200, seconds=2.0, step_nano=99, step_tokens=99, model="large"),
            ]
        )
    )
    evidence = evidence_for(store)
    assert evidence.price == Figure(3, pytest.approx(200.0), pytest.approx(sqrt(20_000 / 3)))
    assert evidence.seconds == Figure(3, pytest.approx(2.0), pytest.approx(sqrt(2 / 3)))
    assert evidence.step_nano == Figure(1, pytest.approx(10.0), 0.0)
    assert evidence.step_tokens == Figure(2, pytest.approx(8.0), pytest.approx(1.0))
    assert evidence_for(store, model="unheard of").step_tokens == Figure()


def test_prices_of_subagents_are_averaged_per_model(store: ExperienceStore):
    prices = ((100, "small"), (300, "small"), (9_000, "large"), (5, ""))
    store.add(
        numbered([use(WEATHER, price_nano=nano, subagent_model=name) for nano, name in prices])
    )
    assert evidence_for(store).subagent_prices == {
        "small": Figure(2, pytest.approx(200.0), pytest.approx(100.0)),
        "large": Figure(1, pytest.approx(9_000.0), 0.0),
    }
    assert evidence_for(store, tool="edit").subagent_prices == {}


def test_an_unused_tool_has_no_chance_with_the_weight_of_similar_tasks(store: ExperienceStore):
    store.add([use(WEATHER, "look")])
    evidence = evidence_for(store, tool="edit")
    assert (evidence.uses, evidence.chance, evidence.chance_weight) == (0, 0.0, pytest.approx(1.0))


def test_later_uses_and_marks_are_included(store: ExperienceStore):
    past = Past(store)
    assert past.evidence(WEATHER, NOW, "small")["look"].uses == 0
    store.add([use(WEATHER, helpful=None, turn=1, call="c1")])
    assert past.evidence(WEATHER, NOW, "small")["look"].weight == 0.0
    store.add([use(PARSER, turn=2, call="c1")])
    assert past.evidence(PARSER, NOW, "small")["look"].uses == 2
    assert store.mark("s", 1, "c1", helpful=False)
    evidence = past.evidence(WEATHER, NOW, "small")["look"]
    assert evidence.weight > 1.0 > evidence.helpful_weight


def test_uses_and_marks_of_another_shell_are_included(store: ExperienceStore, tmp_path: Path):
    past = Past(store)
    assert past.evidence(WEATHER, NOW, "small")["look"] == NO_EVIDENCE
    other = ExperienceStore(tmp_path / "experience.db")
    other.add([use(WEATHER, turn=1, call="c1")])
    assert past.evidence(WEATHER, NOW, "small")["look"].uses == 1
    other.mark("s", 1, "c1", helpful=False)
    assert past.evidence(WEATHER, NOW, "small")["look"].helpful_weight == 0.0
    other.close()


def test_forgotten_uses_are_not_evidence(store: ExperienceStore):
    past = Past(store)
    store.add(numbered([use(WEATHER), use(PARSER, "edit"), use(RAIN, "read")]))
    assert past.evidence(RAIN, NOW, "small")["read"].uses == 1
    assert store.forget(Choice(tool="read")).uses == 1
    store.add([use(PARSER, "edit", turn=9, call="c")])
    evidence = past.evidence(RAIN, NOW, "small")
    assert {tool: evidence[tool].uses for tool in NOW} == {"look": 1, "read": 0, "edit": 2}
    assert evidence == Past(store).evidence(RAIN, NOW, "small")


class FailingOnce:
    """A store whose first query fails."""

    def __init__(self, store: ExperienceStore) -> None:
        self._store = store
        self._failed = False
        self.generation = store.generation
        self.columns = store.columns

    def queries(self, after: int = 0) -> Sequence[tuple[int, str]]:
        if not self._failed:
            self._failed = True
            raise StoreError("The file is locked.")
        return self._store.queries(after)


def test_all_evidence_is_read_again_after_a_failure_of_the_store(store: ExperienceStore):
    store.add(numbered([use(WEATHER), use(PARSER)]))
    past = Past(FailingOnce(store))
    with pytest.raises(StoreError, match="locked"):
        past.evidence(WEATHER, NOW, "small")
    assert past.evidence(WEATHER, NOW, "small")["look"] == evidence_for(store)


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
def test_a_damaged_store_is_an_error(store: ExperienceStore, tmp_path: Path, change: str):
    store.add([use(WEATHER)])
    damage(tmp_path, change)
    with pytest.raises(StoreError, match="damaged"):
        evidence_for(store)


def damage(folder: Path, change: str) -> None:
    with closing(sqlite3.connect(folder / "experience.db")) as db, db:
        db.execute(change)


def test_evidence_can_be_queried_while_threads_add_uses(store: ExperienceStore):
    past = Past(store)
    with ThreadPoolExecutor(4) as pool:
        adding = pool.submit(
            lambda: [
                store.add([use(f"question {turn}", turn=turn, call="c")]) for turn in range(30)
            ]
        )
        queries = [
            pool.submit(past.evidence, f"question {number}", NOW, "small") for number in range(30)
        ]
        adding.result()
        counts = [query.result()["look"].uses for query in queries]
    assert all(0 <= count <= 30 for count in counts)
    assert past.evidence("question 1", NOW, "small")["look"] == evidence_for(store, "question 1")


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


def approximate(evidence: Evidence) -> dict[str, object]:
    """The evidence as numbers that are compared approximately."""
    return {
        name: pytest.approx(
            tuple(field.values()) if isinstance(field, dict) else field, rel=1e-6, abs=1e-6
        )
        for name, field in asdict(evidence).items()
    }


def flat(evidence: Evidence) -> dict[str, object]:
    return {
        name: tuple(field.values()) if isinstance(field, dict) else field
        for name, field in asdict(evidence).items()
    }


@settings(max_examples=30, deadline=None)
@given(histories, questions, st.randoms(use_true_random=False))
def test_evidence_does_not_depend_on_the_order_of_uses(uses, query, random):
    shuffled = list(uses)
    random.shuffle(shuffled)
    first, second = evidence_of(uses, query), evidence_of(shuffled, query)
    for tool in NOW:
        assert flat(first[tool]) == approximate(second[tool])
        worth = value(first[tool])
        assert frequency_bound(first[tool], worth, 0.15) == frequency_bound(
            second[tool], worth, 0.15
        )


@settings(max_examples=30, deadline=None)
@given(histories, questions)
def test_sums_match_the_formulas(uses, query):
    """Compares with sums written out use by use (SPEC §2)."""
    index = QuestionIndex()
    past = list(dict.fromkeys(use.query for use in uses))
    index.add(past)
    cosine = dict(zip(past, index.cosines(query).tolist(), strict=True))
    evidence = evidence_of(uses, query)
    all_tasks = {(use.query, use.turn) for use in uses}

    def weight(task_uses: Sequence[Use]) -> float:
        has_same_schema = any(use.document_hash == "now" for use in task_uses)
        return exp(cosine[task_uses[0].query] - 1) * (1 if has_same_schema else OTHER_SCHEMA_WEIGHT)

    for tool in NOW:
        tool_uses = [use for use in uses if use.tool == tool]
        judged = [(weight([use]), use) for use in tool_uses if use.helpful is not None]
        tasks: dict[tuple[str, int], list[Use]] = {}
        for use in tool_uses:
            tasks.setdefault((use.query, use.turn), []).append(use)
        counts = [len(task) if any(use.helpful for use in task) else 1 for task in tasks.values()]
        assert evidence[tool].uses == len(tool_uses)
        assert evidence[tool].weight == pytest.approx(sum(weight for weight, _ in judged))
        assert evidence[tool].helpful_weight == pytest.approx(
            sum(weight for weight, use in judged if use.helpful)
        )
        assert evidence[tool].query_weight == pytest.approx(sum(map(weight, tasks.values())))
        assert evidence[tool].frequency_weight == pytest.approx(
            sum(weight(task) * count for task, count in zip(tasks.values(), counts, strict=True))
        )
        nearness = sum(cosine[question] ** NEARNESS for question, _ in all_tasks)
        assert evidence[tool].chance_weight == pytest.approx(nearness)
        used_nearness = sum(cosine[question] ** NEARNESS for question, _ in tasks)
        assert evidence[tool].chance * nearness == pytest.approx(used_nearness)
