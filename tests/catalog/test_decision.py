"""Which tools are loaded at the start of a turn."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
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
    LoadingDecision,
    LoadingPolicy,
    Presentation,
    Workload,
    candidates_of,
    decide_loading,
    rates_of,
    sized_for,
)
from ecoshell.messages import ToolSchema


def rates(cached: str = "1", written: str = "1", output: str = "4") -> Rates:
    return Rates(Decimal(1), Decimal(cached), Decimal(written), Decimal(output), Decimal(output))


UNCACHED = rates()
CACHED = rates("0.1", "1.25")
DEFAULT = LoadingPolicy()
WEAK = LoadingPolicy(failure_rate=Decimal("0.25"))
SURE = Candidate("sure", 200, 5, Decimal("0.9"))


def pool(size: int, *, tokens: int = 200, chance: str = "0.1") -> tuple[Candidate, ...]:
    return tuple(Candidate(f"tool{n}", tokens, 5, Decimal(chance)) for n in range(size))


def text_pool() -> tuple[Candidate, ...]:
    """Return ten tools whose schemas are smaller as text."""
    return tuple(replace(tool, text_tokens=60) for tool in pool(10, tokens=100, chance="0.3"))


def decide(
    candidates: tuple[Candidate, ...],
    prices: Rates = CACHED,
    policy: LoadingPolicy = DEFAULT,
) -> tuple[Presentation, tuple[str, ...]]:
    """Return the presentation and the loaded tools for a usual workload."""
    plan = decide_loading(candidates, prices, Workload(), policy).plan
    return plan.presentation, plan.loaded


def loaded(*arguments: Any) -> tuple[str, ...]:
    return decide(*arguments)[1]


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
def test_decision_is_expected_to_cost_no_more_than_loading_everything(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload
) -> None:
    everything = decide_loading(candidates, prices, work, LoadingPolicy("all_text")).plan
    decision = decide_loading(candidates, prices, work, DEFAULT)
    assert decision.plan.cost <= everything.cost
    assert decision.plan.unlucky_cost <= everything.cost


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK, st.data())
def test_loaded_tool_stays_loaded_if_it_becomes_likelier(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload, data: st.DataObject
) -> None:
    if not candidates:
        return
    index = data.draw(st.integers(0, len(candidates) - 1))
    tool = candidates[index]
    likelier = Candidate(tool.name, tool.tokens, tool.name_tokens, data.draw(st.decimals(tool.chance, 1, places=3)))
    changed = (*candidates[:index], likelier, *candidates[index + 1 :])
    for presentation in ("grow", "stable"):
        policy = LoadingPolicy(presentation=presentation, has_all_tools=False)
        if tool.name in decide_loading(candidates, prices, work, policy).plan.loaded:
            assert tool.name in decide_loading(changed, prices, work, policy).plan.loaded


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK, st.booleans(), st.sampled_from(["0", "0.03", "0.25", "1"]))
def test_loaded_tools_are_likelier_than_all_others(
    candidates: tuple[Candidate, ...],
    prices: Rates,
    work: Workload,
    has_all_tools: bool,
    failure_rate: str,
) -> None:
    policy = LoadingPolicy(has_all_tools=has_all_tools, failure_rate=Decimal(failure_rate))
    names = decide_loading(candidates, prices, work, policy).plan.loaded
    loaded_chances = [tool.chance for tool in candidates if tool.name in names]
    other_chances = [tool.chance for tool in candidates if tool.name not in names]
    if loaded_chances and other_chances:
        assert min(loaded_chances) > max(other_chances)


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK, st.integers(0, 5000))
def test_likelier_tool_is_not_loaded_only_if_it_does_not_fit(
    candidates: tuple[Candidate, ...], prices: Rates, work: Workload, room: int
) -> None:
    policy = LoadingPolicy(has_all_tools=False, room=room)
    names = decide_loading(candidates, prices, work, policy).plan.loaded
    tools = [tool for tool in candidates if tool.name in names]
    assert sum(tool.tokens for tool in tools) <= room
    least_chance = min((tool.chance for tool in tools), default=Decimal(2))
    for tool in candidates:
        if tool.name not in names and tool.chance > least_chance:
            likelier = sum(other.tokens for other in tools if other.chance >= tool.chance)
            assert likelier + tool.tokens > room


@settings(deadline=None)
@given(CANDIDATES, RATES, WORK)
def test_higher_failure_rate_loads_more_tools(candidates: tuple[Candidate, ...], prices: Rates, work: Workload) -> None:
    counts: list[int] = []
    for failure_rate in ("0", "0.1", "0.5", "1"):
        policy = LoadingPolicy(presentation="stable", failure_rate=Decimal(failure_rate))
        counts.append(len(decide_loading(candidates, prices, work, policy).plan.loaded))
    assert counts == sorted(counts)


def test_nearly_certain_tool_is_loaded() -> None:
    assert loaded((*pool(30, chance="0.04"), SURE), UNCACHED) == ("sure",)


def test_small_schema_does_not_precede_a_likelier_tool() -> None:
    unlikely = pool(30, chance="0.04")
    short = Candidate("short", 20, 5, Decimal("0.3"))
    likelier = Candidate("long", 900, 5, Decimal("0.31"))
    equal = Candidate("long", 900, 5, Decimal("0.3"))
    assert loaded((*unlikely, short, likelier)) in ((), ("long",), ("short", "long"))
    assert loaded((*unlikely, short, equal)) in ((), ("short", "long"))
    assert loaded((*unlikely, short)) == ("short",)


def test_all_tools_are_loaded_if_no_plan_with_names_saves() -> None:
    policy = replace(WEAK, prefers_array=True, small_tokens=100)
    presentation, names = decide(text_pool(), CACHED, policy)
    assert (presentation, len(names)) == (PLAIN, 10)


def test_small_set_is_loaded_unless_names_save_a_clear_margin() -> None:
    assert len(loaded(pool(8, tokens=150, chance="0.2"))) == 8
    assert len(loaded(pool(8, tokens=900, chance="0.2"))) == 0
    between = pool(9, tokens=133, chance="0.05")
    assert len(loaded(between, CACHED, LoadingPolicy(small_tokens=1200))) == 9
    assert len(loaded(between, CACHED, LoadingPolicy(small_tokens=1000))) == 0


def test_model_that_fails_with_names_gets_more_schemas() -> None:
    likely = (Candidate(f"likely{n}", 120, 5, Decimal("0.2")) for n in range(5))
    tools = (*pool(20, tokens=120, chance="0.05"), *likely)
    assert len(loaded(tools)) < 5
    assert len(loaded(tools, CACHED, WEAK)) >= 5


def test_weak_model_gets_everything_in_the_tool_array_if_it_fits() -> None:
    native = replace(WEAK, prefers_array=True)
    assert decide(text_pool(), CACHED, native)[0] is PLAIN
    assert decide(text_pool(), CACHED, WEAK)[0] is TEXT
    assert decide(text_pool(), CACHED, replace(native, room=700))[0] is TEXT


@pytest.mark.parametrize(
    ("failure_rate", "tokens", "choices", "has_descriptions"),
    [
        ("0.1", 9, {}, True),
        ("0.001", 9, {}, False),
        ("0.1", 0, {}, False),
        ("0.1", 90, {}, False),
        ("0.1", 9, {"small_tokens": 300}, False),
        ("0.1", 9, {"registration": "names"}, False),
    ],
)
def test_names_have_descriptions_if_these_cost_less_than_failures(
    failure_rate: str, tokens: int, choices: dict[str, Any], has_descriptions: bool
) -> None:
    tools = tuple(replace(tool, description_tokens=tokens) for tool in pool(40, tokens=900, chance="0.06"))
    policy = LoadingPolicy(failure_rate=Decimal(failure_rate), **choices)
    decision = decide_loading(tools, CACHED, Workload(), policy)
    assert decision.plan.has_descriptions is has_descriptions


def test_few_tools_are_all_loaded() -> None:
    presentation, names = decide(pool(5, chance="0.5"), UNCACHED)
    assert presentation is TEXT
    assert len(names) == 5


@pytest.mark.parametrize(("prices", "presentation"), [(UNCACHED, GROW), (CACHED, STABLE)])
def test_many_tools_are_listed_by_name_in_the_presentation_that_caches_best(
    prices: Rates, presentation: Presentation
) -> None:
    assert decide(pool(60, chance="0.04"), prices) == (presentation, ())
    assert decide(pool(20), prices, LoadingPolicy(registration="names"))[0] is presentation


@pytest.mark.parametrize(
    ("choices", "presentation"),
    [
        ({"registration": "all"}, PLAIN),
        ({"registration": "all", "presentation": "stable"}, TEXT),
        ({"registration": "all_text"}, TEXT),
    ],
)
def test_user_can_load_everything_at_any_price(choices: dict[str, Any], presentation: Presentation) -> None:
    result, names = decide(pool(500), UNCACHED, LoadingPolicy(**choices))
    assert (result, len(names)) == (presentation, 500)


def test_user_can_list_all_tools_by_name() -> None:
    policy = LoadingPolicy(registration="names", presentation="stable")
    assert decide(pool(2, chance="0.9"), UNCACHED, policy) == (STABLE, ())


@pytest.mark.parametrize(("name", "presentation"), [("stable", TEXT), ("grow", PLAIN)])
def test_chosen_presentation_decides_the_form_of_all_schemas(name: Any, presentation: Presentation) -> None:
    result, names = decide(pool(3, chance="0.7"), UNCACHED, LoadingPolicy(presentation=name))
    assert (result, len(names)) == (presentation, 3)


def test_shortlist_always_leaves_a_way_to_register() -> None:
    policy = LoadingPolicy(has_all_tools=False)
    assert decide(pool(3), UNCACHED, policy)[0] not in (PLAIN, TEXT)


def test_loaded_schemas_fit_the_context() -> None:
    tools = pool(10, tokens=300, chance="0.8")
    presentation, names = decide(tools, UNCACHED, LoadingPolicy(room=1000))
    assert presentation not in (PLAIN, TEXT)
    assert len(names) == 3


def test_likeliest_tools_are_loaded_first() -> None:
    tools = (*pool(10, tokens=300, chance="0.7"), Candidate("best", 300, 5, Decimal("0.9")))
    assert loaded(tools, UNCACHED, LoadingPolicy(room=400)) == ("best",)


def test_empty_catalog_loads_nothing() -> None:
    assert loaded((), UNCACHED) == ()


def test_free_and_unpriced_models_are_compared_by_tokens() -> None:
    assert rates_of(None, 1000) is TOKEN_WEIGHTS
    assert rates_of(ZERO_PRICE, 1000) is TOKEN_WEIGHTS
    assert rates_of(Price(CACHED), 1000) is CACHED


def test_reasons_name_the_tool_and_its_chance() -> None:
    decision: LoadingDecision = decide_loading((*pool(30), SURE), UNCACHED, Workload(), DEFAULT)
    assert decision.why("sure").startswith("sure, used with a chance of 90%: loaded;")
    assert "name only" in decision.why("tool3")
    assert decision.why("not_there") == decision.summary


@pytest.mark.parametrize("policy", [LoadingPolicy(registration="names"), LoadingPolicy(room=10)])
def test_reason_for_a_likely_tool_that_is_not_loaded(policy: LoadingPolicy) -> None:
    decision = decide_loading((*pool(30), SURE), UNCACHED, Workload(), policy)
    assert "name only, although" in decision.why("sure")


def test_summary_names_the_presentation_and_the_saving() -> None:
    summary = decide_loading(pool(60), CACHED, Workload(), DEFAULT).summary
    assert "stable" in summary
    assert "%" in summary
    few = decide_loading(pool(3, chance="0.7"), CACHED, Workload(), DEFAULT)
    assert "Every tool" in few.summary


def test_candidates_have_the_sizes_of_schema_and_name() -> None:
    schema = ToolSchema("read_file", "Read.", {})
    (candidate,) = candidates_of([schema], {"read_file": 0.25}, lambda texts: [*map(len, texts)])
    entry, text = len(schema.entry), len(schema.as_text())
    name, description = len(", read_file"), len(" (Read)")
    assert candidate == Candidate("read_file", entry, name, Decimal("0.25"), text, description)
    sizes = [sized_for(presentation, [candidate])[0].tokens for presentation in (GROW, STABLE)]
    assert sizes == [entry, text]


CORE_NAMES = ("tool0", "tool1")
NATIVE = LoadingPolicy(array_only=True, core=frozenset(CORE_NAMES))


def test_native_calls_load_a_small_catalog_completely() -> None:
    presentation, names = decide(pool(10), CACHED, NATIVE)
    assert presentation is PLAIN
    assert len(names) == 10


def test_native_calls_load_the_core_set_and_likely_tools() -> None:
    likely = Candidate("tool29", 200, 5, Decimal("0.9"))
    presentation, names = decide((*pool(29), likely), CACHED, NATIVE)
    assert presentation is GROW
    assert names == (*CORE_NAMES, "tool29")
    assert loaded(pool(30), CACHED, NATIVE) == CORE_NAMES


def test_names_have_descriptions_unless_there_are_many() -> None:
    def has_descriptions(count: int) -> bool:
        tools = tuple(replace(tool, description_tokens=10) for tool in pool(count))
        return decide_loading(tools, CACHED, Workload(), NATIVE).plan.has_descriptions

    assert has_descriptions(30)
    assert not has_descriptions(60)


def test_later_turns_load_only_likely_tools() -> None:
    tools = (*pool(10)[2:], Candidate("tool10", 200, 5, Decimal("0.9")))  # The core set is loaded.
    assert loaded(tools, CACHED, NATIVE) == ("tool10",)


def test_native_calls_load_what_fits() -> None:
    names = loaded(pool(30, chance="0.9"), CACHED, replace(NATIVE, room=1000))
    assert len(names) == 7  # The core set always, and five more of 200 tokens.
