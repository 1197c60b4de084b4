"""Which mode is tried first: the rule alone, and with past attempts in a real store."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import exp
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unprivileged import read_only_folder

from ecoshell.budget.database import Database
from ecoshell.errors import StoreError
from ecoshell.planning.btp.evidence import CANDIDATES, NOTHING_KNOWN, SHARPNESS, ModeEvidence, Past, choose
from ecoshell.planning.btp.experience import ATTEMPTS, SCHEMA, Attempt, Choice, ExperienceStore, Use

HARD = "find the cause of the failing parser test and fix it"
EASY = "what is the capital of France"
PLAYED = {"single": "m", "umi": "m"}
ATTEMPT = Attempt(HARD, "single", "m", "react", "gave_up", 2_000_000, 1_000, 3.0, "s", 1, "2026-11-20T10:00:00+00:00")


def evidence(answered: float, attempts: int = 10, price: float | None = 1e6, **fields: float) -> ModeEvidence:
    """Evidence of attempts at the same question, with the share of answered ones."""
    return ModeEvidence(attempts, float(attempts), answered * attempts, price, **{"tokens": 1e3, **fields})


EVIDENCE = st.builds(
    evidence,
    st.floats(0, 1),
    st.integers(1, 10_000),
    st.none() | st.floats(0, 1e12),
    tokens=st.floats(0, 1e9),
    seconds=st.floats(0, 1e6),
)


def test_single_mode_is_tried_first_without_experience():
    assert choose({}).mode == "single"
    assert choose(dict.fromkeys(CANDIDATES, NOTHING_KNOWN)).mode == "single"


def test_an_untried_mode_is_never_first_except_single():
    assert choose({"single": evidence(0.0)}).mode == "single"
    assert choose({"umi": evidence(1.0)}).mode == "single"


def test_the_mode_with_more_answers_per_cost_is_tried_first():
    often, seldom = evidence(0.95, 20, 3e6), evidence(0.1, 20, 2e6)
    assert choose({"single": seldom, "umi": often}).mode == "umi"
    assert choose({"single": replace(seldom, answered_weight=18.0), "umi": often}).mode == "single"
    why = choose({"single": seldom, "umi": often}).why
    assert why == "of questions like this one umi answers 93% for about $0.003, single answers 12% for about $0.002"


def test_single_mode_is_tried_first_on_a_tie():
    assert choose({"single": evidence(0.5), "umi": evidence(0.5)}).mode == "single"
    assert choose({"single": evidence(0.5, price=0.0), "umi": evidence(0.5, price=0.0)}).mode == "single"


def test_tokens_decide_if_prices_are_unknown_or_zero():
    for price in (None, 0.0):
        cheap, dear = evidence(0.5, price=price, tokens=100.0), evidence(0.6, price=price, tokens=900.0)
        assert choose({"single": dear, "umi": cheap}).mode == "umi"
        assert "tokens" in choose({"single": dear, "umi": cheap}).why


def test_waiting_time_counts_at_its_price():
    slow, quick = evidence(0.9, price=1e6, seconds=90.0), evidence(0.9, price=1.2e6, seconds=5.0)
    assert choose({"single": slow, "umi": quick}).mode == "single"
    assert choose({"single": slow, "umi": quick}, hour_nano=20 * 10**9).mode == "umi"


@given(EVIDENCE, EVIDENCE, st.integers(0, 10**12))
def test_the_choice_depends_only_on_the_evidence(single: ModeEvidence, umi: ModeEvidence, hour: int):
    first = choose({"single": single, "umi": umi}, hour)
    assert first == choose({"umi": umi, "single": single}, hour)
    assert first.mode in CANDIDATES


@given(
    st.integers(0, 199),
    st.integers(1, 200),
    st.integers(100, 10**9),
    st.integers(1, 10**9),
    st.sampled_from(CANDIDATES),
)
def test_a_more_expensive_and_less_successful_mode_is_never_chosen(
    answered: int, more: int, price: int, dearer: int, worse: str
):
    better = next(mode for mode in CANDIDATES if mode != worse)
    good = ModeEvidence(400, 400.0, float(answered + more), float(price), tokens=10.0)
    bad = ModeEvidence(400, 400.0, float(answered), float(price + dearer), tokens=10.0)
    assert choose({better: good, worse: bad}).mode == better


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_reverse_order_never_has_a_lower_expected_cost(single: int, umi: int, single_nano: int, umi_nano: int):
    modes = {"single": evidence(single / 100, 10, single_nano), "umi": evidence(umi / 100, 10, umi_nano)}
    success = {mode: modes[mode].success for mode in modes}
    cost = {"single": single_nano, "umi": umi_nano}
    first = choose(modes).mode
    other = next(mode for mode in CANDIDATES if mode != first)
    expected = cost[first] + (1 - success[first]) * cost[other]
    reverse = cost[other] + (1 - success[other]) * cost[first]
    assert expected <= reverse + 1e-6 * max(cost.values())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "experience.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ExperienceStore]:
    with closing(ExperienceStore(path)) as store:
        yield store


def modes_for(store: ExperienceStore, query: str = HARD, played: dict[str, str] = PLAYED) -> dict[str, ModeEvidence]:
    return Past(store).modes(query, played)


def test_an_attempt_at_the_same_question_has_weight_one(store: ExperienceStore):
    store.add([ATTEMPT])
    modes = modes_for(store)
    assert modes["umi"] == NOTHING_KNOWN
    single = modes["single"]
    assert single.weight == pytest.approx(1.0)
    assert single.success == pytest.approx(0.25)
    assert (single.price_nano, single.tokens, single.seconds) == pytest.approx((2e6, 1_000, 3.0))


def test_similar_questions_outweigh_many_others(store: ExperienceStore):
    easy = [replace(ATTEMPT, query=f"{EASY} {n}", outcome="answered", turn=n) for n in range(2, 30)]
    hard = [replace(ATTEMPT, query=f"{HARD} {n}", turn=n) for n in range(30, 36)]
    solved = [replace(attempt, mode="umi", outcome="answered", price_nano=3_000_000) for attempt in hard]
    store.add([*easy, *hard, *solved])
    assert choose(modes_for(store)).mode == "umi"
    assert choose(modes_for(store, EASY)).mode == "single"
    far = modes_for(store, EASY)["umi"]
    assert len(hard) * exp(-SHARPNESS) <= far.weight < 0.1 * len(hard)


def test_only_answered_and_given_up_attempts_count(store: ExperienceStore):
    store.add([replace(ATTEMPT, outcome="limit"), replace(ATTEMPT, turn=2, outcome="answered")])
    assert (modes_for(store)["single"].attempts, modes_for(store)["single"].success) == (1, pytest.approx(0.75))


def test_attempts_with_other_models_do_not_count(store: ExperienceStore):
    store.add([ATTEMPT])
    assert modes_for(store, played={"single": "another", "umi": "m"}) == dict.fromkeys(CANDIDATES, NOTHING_KNOWN)


def test_one_unknown_price_makes_the_mean_unknown(store: ExperienceStore):
    store.add([ATTEMPT, replace(ATTEMPT, turn=2, price_nano=None)])
    assert (modes_for(store)["single"].attempts, modes_for(store)["single"].price_nano) == (2, None)


def test_attempts_changed_by_another_shell_are_followed(store: ExperienceStore, path: Path):
    past = Past(store)
    assert past.modes(HARD, PLAYED)["single"] == NOTHING_KNOWN
    with closing(ExperienceStore(path)) as other:
        other.add([ATTEMPT])
        assert past.modes(HARD, PLAYED)["single"].success == pytest.approx(0.25)
        other.add([replace(ATTEMPT, outcome="answered")])
        assert past.modes(HARD, PLAYED)["single"].success == pytest.approx(0.75)
        other.forget(Choice())
    assert past.modes(HARD, PLAYED)["single"] == NOTHING_KNOWN


@pytest.mark.parametrize("column", ["tokens", "seconds", "price_nano"])
def test_a_damaged_attempt_is_named_by_its_number(store: ExperienceStore, path: Path, column: str):
    store.add([ATTEMPT])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE attempts SET {column} = 'garbage'")
    with pytest.raises(StoreError, match="experience is damaged"):
        modes_for(store)
    with pytest.raises(StoreError, match=f"attempt a1 has no valid `{column}`.*forget a1"):
        store.find(ATTEMPTS)
    assert store.forget(Choice(attempts=(1,))).attempts == 1


def test_a_question_stays_for_its_attempts_and_goes_with_the_last_use(store: ExperienceStore):
    use = Use(HARD, "t", "", "", "", "", True, True, "rules", "m", 0, 0, 0, 0.0, 0, session="s", turn=1, call="c")
    store.add([ATTEMPT, replace(ATTEMPT, query=EASY, turn=2), use])
    assert store.forget(Choice(ids=(1,))).attempts == 1
    assert [match.item.query for match in store.find(ATTEMPTS)] == [EASY]
    assert [text for _, text in store.queries()] == [EASY]


def version_1(path: Path) -> None:
    """Write a file of the version without attempts, with one use."""
    with closing(Database(path, schema=SCHEMA, version=1)) as database, database.writing("") as db:
        db.execute("INSERT INTO queries (text) VALUES (?)", (HARD,))
        values = "1, 1, 't', '', '', '', '', 1, 1, 'rules', NULL, 'm', 0, 0, 0, 0.5, 0, 's', 1, 'c', ''"
        db.execute(f"INSERT INTO uses VALUES ({values})")
        db.execute("INSERT INTO vectors VALUES (1, 'words-1', x'0102')")


def test_a_file_of_version_1_is_migrated_with_its_uses(path: Path):
    version_1(path)
    with closing(ExperienceStore(path)) as store:
        assert [use.tool for use in store.uses()] == ["t"]
        store.add([ATTEMPT])
        assert [*store.attempts()] == [ATTEMPT]
    with closing(ExperienceStore(path)) as again:
        assert (len([*again.uses()]), [*again.attempts()]) == (1, [ATTEMPT])
        assert modes_for(again)["single"].attempts == 1
    with closing(sqlite3.connect(path)) as db:
        assert not db.execute("SELECT * FROM sqlite_master WHERE name = 'vectors'").fetchall()


def test_a_read_only_file_of_version_1_can_be_read(path: Path):
    version_1(path)
    with read_only_folder(path) as folder, closing(ExperienceStore(folder / path.name)) as store:
        assert [use.tool for use in store.uses()] == ["t"]
        assert ([*store.attempts()], store.find(ATTEMPTS)) == ([], [])
        assert modes_for(store) == dict.fromkeys(CANDIDATES, NOTHING_KNOWN)
        with pytest.raises(StoreError, match="cannot be written"):
            store.add([ATTEMPT])
