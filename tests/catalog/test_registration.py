from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.budget import ZERO_PRICE, Price, Rates
from ecoshell.catalog import (
    GROW,
    PLAIN,
    STABLE,
    TEXT,
    TOKEN_WEIGHTS,
    Candidate,
    Decision,
    Policy,
    Workload,
    candidates_of,
    decide,
    rates_of,
    under,
)
from ecoshell.messages import ToolSchema


def rates(cached: str = "1", written: str = "1", output: str = "4") -> Rates:
    return Rates(Decimal(1), Decimal(cached), Decimal(written), Decimal(output), Decimal(output))


UNCACHED = rates()
CACHED = rates("0.1", "1.25")


def pool(size: int, *, tokens: int = 200, chance: str = "0.1") -> tuple[Candidate, ...]:
    return tuple(Candidate(f"tool{n}", tokens, 5, Decimal(chance)) for n in range(size))


CHANCES = st.decimals(0, Decimal("0.9"), places=3)
CANDIDATES = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 30), CHANCES), max_size=30).map(
    lambda rows: tuple(Candidate(f"tool{n}", *row) for n, row in enumerate(rows))
)
PRICES = st.decimals(0, 20, places=2)
RATES = st.builds(Rates, PRICES, PRICES, PRICES, PRICES, PRICES)
WORK = st.builds(
    Workload,
    steps=st.integers(1, 24),
    output=st.integers(1, 2000),
    observation=st.integers(0, 4000),
    answer=st.integers(1, 2000),
    base=st.integers(0, 20_000),
)


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK)
def test_the_decision_is_never_dearer_by_expectation_than_registering_everything(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload
) -> None:
    decision = decide(candidates, prices, work)
    assert decision.plan.cost <= decide(candidates, prices, work, Policy("all_text")).plan.cost


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK, st.data())
def test_a_likelier_tool_is_never_taken_out_of_the_context(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload, data: st.DataObject
) -> None:
    if not candidates:
        return
    place = data.draw(st.integers(0, len(candidates) - 1))
    chosen = candidates[place]
    likelier = Candidate(
        chosen.name, chosen.tokens, chosen.name_tokens, data.draw(st.decimals(chosen.chance, 1, places=3))
    )
    changed = (*candidates[:place], likelier, *candidates[place + 1 :])
    for presentation in ("grow", "stable"):
        policy = Policy(presentation=presentation, whole=False)
        if chosen.name in decide(candidates, prices, work, policy).plan.upfront:
            assert chosen.name in decide(changed, prices, work, policy).plan.upfront


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK, st.booleans(), st.sampled_from(["0", "0.03", "0.25", "1"]))
def test_a_tool_is_never_up_front_while_a_likelier_one_is_left_a_bare_name(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload, whole: bool, forgotten: str
) -> None:
    upfront = decide(candidates, prices, work, Policy(whole=whole, forgotten=Decimal(forgotten))).plan.upfront
    shown = [one.chance for one in candidates if one.name in upfront]
    hidden = [one.chance for one in candidates if one.name not in upfront]
    assert not shown or not hidden or min(shown) > max(hidden)


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK, st.integers(0, 5000))
def test_a_likelier_tool_is_left_a_name_for_want_of_room_alone(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload, room: int
) -> None:
    upfront = decide(candidates, prices, work, Policy(whole=False, room=room)).plan.upfront
    taken = sum(one.tokens for one in candidates if one.name in upfront)
    assert taken <= room
    least = min((one.chance for one in candidates if one.name in upfront), default=Decimal(2))
    for one in candidates:
        if one.name not in upfront and one.chance > least:
            likelier = sum(other.tokens for other in candidates if other.name in upfront and other.chance >= one.chance)
            assert likelier + one.tokens > room


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK)
def test_the_more_often_hidden_tools_are_forgotten_the_more_documents_are_there(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload
) -> None:
    shown = [
        len(decide(candidates, prices, work, Policy(presentation="stable", forgotten=Decimal(forgotten))).plan.upfront)
        for forgotten in ("0", "0.1", "0.5", "1")
    ]
    assert shown == sorted(shown)


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK)
def test_names_are_left_only_where_that_also_pays_with_bad_luck(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload
) -> None:
    everything = decide(candidates, prices, work, Policy("all_text")).plan
    assert decide(candidates, prices, work).plan.dearest <= everything.cost


def test_a_tool_that_is_nearly_certain_to_be_used_is_there_from_the_start() -> None:
    candidates = (*pool(30, chance="0.04"), Candidate("sure", 200, 5, Decimal("0.9")))
    assert decide(candidates, UNCACHED, Workload()).plan.upfront == ("sure",)


def test_a_short_document_is_no_reason_to_be_there_before_a_likelier_tool() -> None:
    others, short = pool(30, chance="0.04"), Candidate("short", 20, 5, Decimal("0.3"))
    likelier, equal = Candidate("long", 900, 5, Decimal("0.31")), Candidate("long", 900, 5, Decimal("0.3"))
    assert decide((*others, short, likelier), CACHED, Workload()).plan.upfront in ((), ("long",), ("short", "long"))
    assert decide((*others, short, equal), CACHED, Workload()).plan.upfront in ((), ("short", "long"))
    assert decide((*others, short), CACHED, Workload()).plan.upfront == ("short",)


def test_where_all_have_room_leaving_names_means_that_a_name_is_left() -> None:
    tools = tuple(Candidate(f"tool{n}", 100, 5, Decimal("0.3"), text_tokens=60) for n in range(10))
    decision = decide(tools, CACHED, Workload(), Policy(forgotten=Decimal("0.25"), native=True, little=100))
    assert (decision.plan.presentation, len(decision.plan.upfront)) == (PLAIN, 10)


def test_a_small_set_is_shown_whole_unless_names_save_a_clear_margin() -> None:
    few, many = pool(8, tokens=150, chance="0.2"), pool(8, tokens=900, chance="0.2")
    assert len(decide(few, CACHED, Workload()).plan.upfront) == 8
    assert len(decide(many, CACHED, Workload()).plan.upfront) == 0
    between = pool(9, tokens=133, chance="0.05")
    assert len(decide(between, CACHED, Workload(), Policy(little=1200)).plan.upfront) == 9
    assert len(decide(between, CACHED, Workload(), Policy(little=1000)).plan.upfront) == 0


def test_a_model_that_does_badly_by_names_is_shown_documents() -> None:
    badly = Policy(forgotten=Decimal("0.25"))
    tools = (*pool(20, tokens=120, chance="0.05"), *(Candidate(f"likely{n}", 120, 5, Decimal("0.2")) for n in range(5)))
    assert len(decide(tools, CACHED, Workload()).plan.upfront) < 5
    assert len(decide(tools, CACHED, Workload(), badly).plan.upfront) >= 5


def test_a_weak_model_has_everything_in_the_array_it_was_trained_on_where_that_has_room() -> None:
    tools = tuple(Candidate(f"tool{n}", 100, 5, Decimal("0.3"), text_tokens=60) for n in range(10))
    native = Policy(forgotten=Decimal("0.25"), native=True)
    assert decide(tools, CACHED, Workload(), native).plan.presentation is PLAIN
    assert decide(tools, CACHED, Workload(), Policy(forgotten=Decimal("0.25"))).plan.presentation is TEXT
    tight = Policy(forgotten=Decimal("0.25"), native=True, room=700)
    assert decide(tools, CACHED, Workload(), tight).plan.presentation is TEXT


def test_names_come_with_a_few_words_where_these_cost_less_than_what_is_forgotten_without_them() -> None:
    def described(forgotten: str, tokens: int = 9, **settled: Any) -> bool:
        tools = tuple(Candidate(f"tool{n}", 900, 5, Decimal("0.06"), words_tokens=tokens) for n in range(40))
        return decide(tools, CACHED, Workload(), Policy(forgotten=Decimal(forgotten), **settled)).plan.described

    assert described("0.1")
    assert not described("0.001")
    assert not described("0.1", 0)
    assert not described("0.1", 90)
    assert not described("0.1", little=300)
    assert not described("0.1", registration="names")


def test_few_tools_are_all_registered() -> None:
    decision = decide(pool(5, chance="0.5"), UNCACHED, Workload())
    assert decision.plan.presentation is TEXT
    assert len(decision.plan.upfront) == 5


def test_many_tools_are_known_by_name() -> None:
    decision = decide(pool(60, chance="0.04"), UNCACHED, Workload())
    assert decision.plan.presentation is GROW
    assert decision.plan.upfront == ()
    assert decide(pool(60, chance="0.04"), CACHED, Workload()).plan.presentation is STABLE


def test_the_array_is_kept_stable_where_a_cached_prefix_is_cheap() -> None:
    by_name = Policy(registration="names")
    assert decide(pool(20), UNCACHED, Workload(), by_name).plan.presentation is GROW
    assert decide(pool(20), CACHED, Workload(), by_name).plan.presentation is STABLE


def test_what_the_user_settled_is_done_at_any_price() -> None:
    everything = decide(pool(500), UNCACHED, Workload(), Policy(registration="all"))
    assert (everything.plan.presentation, len(everything.plan.upfront)) == (PLAIN, 500)
    in_text = decide(pool(500), UNCACHED, Workload(), Policy(registration="all", presentation="stable"))
    assert (in_text.plan.presentation, len(in_text.plan.upfront)) == (TEXT, 500)
    compact = decide(pool(500), UNCACHED, Workload(), Policy(registration="all_text"))
    assert (compact.plan.presentation, len(compact.plan.upfront)) == (TEXT, 500)
    names = decide(pool(2, chance="0.9"), UNCACHED, Workload(), Policy(registration="names", presentation="stable"))
    assert (names.plan.presentation, names.plan.upfront) == (STABLE, ())


def test_a_settled_presentation_is_kept_even_when_everything_is_registered() -> None:
    for settled, presentation in (("stable", TEXT), ("grow", PLAIN)):
        decision = decide(pool(3, chance="0.7"), UNCACHED, Workload(), Policy(presentation=settled))  # type: ignore[arg-type]
        assert (decision.plan.presentation, len(decision.plan.upfront)) == (presentation, 3)


def test_of_a_shortlist_registering_everything_is_no_choice() -> None:
    decision = decide(pool(3, chance="0.1"), UNCACHED, Workload(), Policy(whole=False))
    assert decision.plan.presentation not in (PLAIN, TEXT)


def test_documents_that_do_not_fit_the_context_are_not_put_there() -> None:
    candidates = pool(10, tokens=300, chance="0.8")
    decision = decide(candidates, UNCACHED, Workload(), Policy(room=1000))
    assert decision.plan.presentation not in (PLAIN, TEXT)
    assert len(decision.plan.upfront) == 3


def test_the_likeliest_documents_get_what_room_there_is() -> None:
    candidates = (*pool(10, tokens=300, chance="0.7"), Candidate("best", 300, 5, Decimal("0.9")))
    assert decide(candidates, UNCACHED, Workload(), Policy(room=400)).plan.upfront == ("best",)


def test_no_tools_at_all_are_no_reason_to_fail() -> None:
    assert decide((), UNCACHED, Workload()).plan.upfront == ()


def test_a_free_or_unpriced_model_is_decided_by_tokens() -> None:
    assert rates_of(None, 1000) is TOKEN_WEIGHTS
    assert rates_of(ZERO_PRICE, 1000) is TOKEN_WEIGHTS
    assert rates_of(Price(CACHED), 1000) is CACHED


def test_every_tool_has_a_reason_that_names_it_and_its_chance() -> None:
    decision: Decision = decide((*pool(30), Candidate("sure", 200, 5, Decimal("0.9"))), UNCACHED, Workload())
    assert "sure" in decision.why("sure")
    assert "90%" in decision.why("sure")
    assert "name only" in decision.why("tool3")
    assert "document up front" in decision.why("sure")
    assert decision.why("not_there") == decision.summary


def test_a_reason_never_tells_of_a_document_up_front_that_is_not_there() -> None:
    sure = Candidate("sure", 200, 5, Decimal("0.9"))
    for policy in (Policy(registration="names"), Policy(room=10)):
        assert "name only" in decide((*pool(30), sure), UNCACHED, Workload(), policy).why("sure")


def test_the_summary_names_the_presentation_and_the_saving() -> None:
    assert "stable" in decide(pool(60), CACHED, Workload()).summary
    assert "%" in decide(pool(60), CACHED, Workload()).summary
    assert "Every tool" in decide(pool(3, chance="0.7"), CACHED, Workload()).summary


def test_candidates_carry_the_tokens_of_document_and_name() -> None:
    schema = ToolSchema("read_file", "Read.", {})
    (candidate,) = candidates_of([schema], {"read_file": 0.25}, lambda texts: [*map(len, texts)])
    entry, text = len(schema.entry), len(schema.as_text())
    assert candidate == Candidate("read_file", entry, len(", read_file"), Decimal("0.25"), text, len(" (Read)"))
    assert tuple(under(way, [candidate])[0].tokens for way in (GROW, STABLE)) == (entry, text)


CORE_NAMES = ("tool0", "tool1")
NATIVE = Policy(array_only=True, core=frozenset(CORE_NAMES))


def test_a_model_with_native_calls_has_a_small_catalog_loaded_whole() -> None:
    plan = decide(pool(10), CACHED, Workload(), NATIVE).plan
    assert plan.presentation is PLAIN
    assert len(plan.upfront) == 10


def test_of_many_tools_the_core_set_a_constant_beginning_and_likely_ones_are_loaded() -> None:
    likely = Candidate("tool29", 200, 5, Decimal("0.9"))
    plan = decide((*pool(29), likely), CACHED, Workload(), NATIVE).plan
    assert plan.presentation is GROW
    assert plan.upfront == (*CORE_NAMES, "tool2", "tool3", "tool4", "tool29")
    other = decide(pool(30), CACHED, Workload(), NATIVE).plan
    assert plan.upfront[:5] == other.upfront


def test_later_turns_load_what_they_are_likely_to_need_and_no_more() -> None:
    core_is_loaded = (*pool(10)[2:], Candidate("tool10", 200, 5, Decimal("0.9")))
    assert decide(core_is_loaded, CACHED, Workload(), NATIVE).plan.upfront == ("tool10",)


def test_loaded_tools_of_a_native_model_keep_to_the_room_there_is() -> None:
    plan = decide(pool(30, chance="0.9"), CACHED, Workload(), replace(NATIVE, room=1000)).plan
    assert len(plan.upfront) == 7  # the core set always, and five more of 200 tokens
