from dataclasses import replace
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from ecoshell.budget import (
    NANO,
    UNBOUNDED,
    ZERO_PRICE,
    Price,
    Rates,
    Tier,
)
from ecoshell.budget.price import price_from_json, price_to_json
from ecoshell.messages import Usage


def rates(*figures: str) -> Rates:
    return Rates(*map(Decimal, figures))


PRICE = Price(
    rates("3", "0.3", "3.75", "15", "20"),
    (Tier(200_000, rates("6", "0.6", "7.5", "22.5", "30")),),
)

rate = st.decimals(0, 500, places=6)
all_rates = st.builds(Rates, rate, rate, rate, rate, rate)
prices = st.builds(
    Price,
    all_rates,
    st.lists(st.builds(Tier, st.integers(0, 400_000), all_rates), max_size=3).map(tuple),
    request=st.decimals(0, 1, places=4),
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    cached = draw(st.integers(0, 300_000))
    write = draw(st.integers(0, 200_000))
    fresh = draw(st.integers(0, 200_000))
    reasoning = draw(st.integers(0, 20_000))
    text = draw(st.integers(0, 20_000))
    return Usage(fresh + cached + write, text + reasoning, cached, write, reasoning)


def test_each_token_is_charged_in_exactly_one_bucket() -> None:
    usage = Usage(input=1000, output=100, cached=600, cache_write=300, reasoning=40)
    # 100 × 3 + 600 × 0.3 + 300 × 3.75 + 60 × 15 + 40 × 20 = 3305 dollars per million
    assert PRICE.cost(usage) == 3_305_000


def test_a_prompt_over_the_threshold_is_charged_completely_in_its_tier() -> None:
    assert PRICE.cost(Usage(input=200_000)) == 200_000 * 3_000
    assert PRICE.cost(Usage(input=200_001)) == 200_001 * 6_000
    assert PRICE.cost(Usage(input=200_001, output=10)) == 200_001 * 6_000 + 10 * 22_500


def test_the_worst_case_uses_the_highest_rates() -> None:
    assert PRICE.worst(1000, 10) == 1000 * 3_750 + 10 * 20_000
    assert PRICE.worst(200_001, 10) == 200_001 * 7_500 + 10 * 30_000


def test_the_worst_case_without_cache_writes_ignores_their_rate() -> None:
    price = replace(PRICE, cache_writes=False)
    assert price.worst(1000, 10) == 1000 * 3_000 + 10 * 20_000
    assert price.worst(200_001, 10) == 200_001 * 6_000 + 10 * 30_000
    assert price.affordable_output(1000, price.worst(1000, 10)) == 10
    assert (
        price.cost(Usage(input=1000, cache_write=1000)) == 3_750_000
    )  # reported cache writes are billed anyway
    assert price_from_json(price_to_json(price)) == price


def test_the_cost_of_reasoning_is_a_part_of_the_cost() -> None:
    usage = Usage(input=1000, output=100, reasoning=40)
    assert PRICE.reasoning_cost(usage) == 40 * 20_000
    assert replace(PRICE, request=Decimal(1)).reasoning_cost(usage) == 40 * 20_000


def test_the_cost_is_rounded_up_once() -> None:
    tiny = Price(rates("0.0004", "0.0004", "0.0004", "0.0004", "0.0004"))
    assert tiny.cost(Usage(input=1, output=1)) == 1
    assert tiny.cost(Usage(input=3, output=1)) == 2


def test_a_fee_per_request_is_part_of_cost_and_worst_case() -> None:
    price = Price(rates("1", "1", "1", "1", "1"), request=Decimal("0.005"))
    assert price.cost(Usage(input=1000)) == 5_000_000 + 1_000_000
    assert price.worst(1000, 0) == 6_000_000


@given(prices, usages(), st.integers(0, 100_000), st.integers(0, 10_000))
def test_no_usage_within_the_bounds_costs_more_than_the_worst_case(
    price: Price, usage: Usage, more_input: int, more_output: int
) -> None:
    assert (
        0 <= price.cost(usage) <= price.worst(usage.input + more_input, usage.output + more_output)
    )


@given(prices, st.integers(0, 500_000), st.integers(0, 100 * NANO))
@example(Price(rates("0", "0", "0.000001", "0", "0.000001")), 1, 1)
def test_the_affordable_output_is_the_maximum_that_fits(
    price: Price, prompt: int, nano: int
) -> None:
    output = price.affordable_output(prompt, nano)
    if output == -1:
        assert price.worst(prompt, 0) > nano
    elif output == UNBOUNDED:
        assert price.worst(prompt, 1_000_000) == price.worst(prompt, 0) <= nano
    else:
        assert price.worst(prompt, output) <= nano < price.worst(prompt, output + 1)


@given(prices)
def test_a_stored_price_is_read_unchanged(price: Price) -> None:
    assert price_from_json(price_to_json(price)) == price


def test_the_arithmetic_lists_each_bucket_and_the_total() -> None:
    usage = Usage(input=1000, output=100, cached=600, cache_write=300, reasoning=40)
    assert PRICE.arithmetic(PRICE.parts(usage)) == (
        "100 fresh input × $3/M = $0.0003",
        "600 cached input × $0.30/M = $0.00018",
        "300 cache write × $3.75/M = $0.001125",
        "60 output text × $15/M = $0.0009",
        "40 reasoning × $20/M = $0.0008",
        "total $0.003305",
    )
    assert PRICE.arithmetic(PRICE.worst_parts(1000, 10))[-1] == "total $0.00395"


def test_a_local_model_is_always_free() -> None:
    assert ZERO_PRICE.cost(Usage(10**6, 10**6)) == 0
    assert ZERO_PRICE.affordable_output(10**6, 0) == UNBOUNDED
    assert ZERO_PRICE.summary() == "free"
    assert PRICE.summary() == "$3 in, $0.30 cached, $15 out per million tokens"
