"""Savings of registration by name on recorded runs: the bill of a run and the costs of every policy."""

import dataclasses
import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.budget import Rates
from ecoshell.catalog import GROW, PLAIN, STABLE, Presentation
from ecoshell.messages import ToolSchema, Usage
from ecoshell_bench.ecoact import (
    POLICIES,
    TOKENS_PER_MESSAGE,
    Bill,
    Session,
    Setting,
    decide_for,
    draw_pool,
    measure_pools,
    sessions_of,
)
from ecoshell_bench.reading import RecordedRun, RecordedStep, Tools, read_runs, read_tools

SYSTEM = "Be brief."


def rates(cached: str = "1", written: str = "1") -> Rates:
    return Rates(Decimal(1), Decimal(cached), Decimal(written), Decimal(3), Decimal(3))


SETTING = Setting(rates(), len, lambda _: "Be brief.")


@pytest.fixture
def tools(catalog: Path) -> Tools:
    return read_tools(catalog)


@pytest.fixture
def runs(replay: Path, tools: Tools) -> list[RecordedRun]:
    return read_runs(replay, tools)


def test_each_bucket_of_a_prompt_has_its_price() -> None:
    setting = Setting(rates("0.1", "1.25"), len, lambda _: "")
    usage = Usage(input=1000, output=10, cached=600, cache_write=300)
    assert setting.price(usage) == 100 + 60 + Decimal("375.00") + 30


def test_pool_has_the_used_tools_and_is_reproducible(runs: list[RecordedRun], tools: Tools) -> None:
    pools = {
        seed: [tool.name for tool in draw_pool([runs[0]], tools, 5, seed)] for seed in range(20)
    }
    assert all(len(set(pool)) == 5 and set(runs[0].used) <= set(pool) for pool in pools.values())
    assert pools[3] == [tool.name for tool in draw_pool([runs[0]], tools, 5, 3)]
    assert len({tuple(pool) for pool in pools.values()}) > 1


def test_pool_is_at_most_as_large_as_the_catalog(runs: list[RecordedRun], tools: Tools) -> None:
    assert {tool.name for tool in draw_pool([runs[0]], tools, 500, 0)} == set(tools.schemas)


def test_every_policy_is_measured_at_every_size(runs: list[RecordedRun], tools: Tools) -> None:
    results = list(measure_pools(runs, tools, (3, 8), SETTING))
    assert [result.pool for result in results] == [3, 8]
    assert all(set(result.totals) == set(POLICIES) and result.runs == 2 for result in results)
    assert all(total.usage.input > 0 for result in results for total in result.totals.values())


def test_run_with_more_tools_than_the_pool_is_skipped(
    runs: list[RecordedRun], tools: Tools
) -> None:
    (result,) = measure_pools(runs, tools, (1,), SETTING)
    assert result.runs == 0


def test_oracle_never_costs_more_than_registration_by_name(
    runs: list[RecordedRun], tools: Tools
) -> None:
    for setting in (SETTING, dataclasses.replace(SETTING, rates=rates("0.1", "1.25"))):
        for result in measure_pools(runs, tools, (3, 5, 8), setting):
            for policy in ("grow", "stable", "auto"):
                assert result.saving("oracle", setting) >= result.saving(policy, setting)


def test_decision_does_not_depend_on_the_recorded_steps(
    runs: list[RecordedRun], tools: Tools
) -> None:
    pool = draw_pool([runs[0]], tools, 6, 0)
    (result,) = measure_pools([runs[0]], tools, (6,), SETTING)
    decision = decide_for(runs[0].query, pool, SETTING)
    assert result.presentations == {decision.presentation.name: 1}
    assert result.loaded == len(decision.loaded)


def test_long_unused_schema_raises_the_cost_of_registering_everything(
    runs: list[RecordedRun], tools: Tools
) -> None:
    name = next(name for name in tools.schemas if name not in {*runs[0].used, *runs[1].used})
    long = dataclasses.replace(tools.schemas[name], description="Very long. " * 5000)
    heavier = Tools({**tools.schemas, name: long}, tools.names)
    (short,) = measure_pools(runs, tools, (8,), SETTING)
    (heavy,) = measure_pools(runs, heavier, (8,), SETTING)
    assert heavy.saving("grow", SETTING) > short.saving("grow", SETTING)
    assert heavy.totals["grow"].usage == short.totals["grow"].usage


def test_schemas_as_text_cost_less_than_in_the_array(runs: list[RecordedRun], tools: Tools) -> None:
    (result,) = measure_pools(runs, tools, (8,), SETTING)
    assert 0 < result.saving("all_text", SETTING) < 1
    assert result.totals["all_text"].calls == result.totals["all"].calls
    assert result.totals["all_text"].schemas == result.totals["all"].schemas == 16


def test_run_loses_if_it_costs_more_than_the_cheaper_form_of_everything(
    runs: list[RecordedRun], tools: Tools
) -> None:
    (result,) = measure_pools([runs[0]], tools, (8,), SETTING)
    cost = {policy: SETTING.price(total.usage) for policy, total in result.totals.items()}
    assert result.excess == [cost["auto"] / min(cost["all"], cost["all_text"]) - 1]
    result.excess = [Decimal("-0.3"), Decimal("0.05"), Decimal("0"), Decimal("0.11")]
    assert (result.losing, result.worst) == (0.5, 0.11)
    result.excess = [Decimal("-0.3")]
    assert (result.losing, result.worst) == (0, 0)


def test_wrong_registration_costs_only_policies_that_register(
    runs: list[RecordedRun], tools: Tools
) -> None:
    (right,) = measure_pools(runs, tools, (8,), SETTING)
    (wrong,) = measure_pools(runs, tools, (8,), dataclasses.replace(SETTING, wrong=1.0))
    for policy in ("all", "all_text", "oracle"):
        assert wrong.totals[policy].usage == right.totals[policy].usage
    for policy in ("grow", "stable"):
        assert wrong.totals[policy].calls == right.totals[policy].calls + len(runs)
        assert wrong.totals[policy].schemas == right.totals[policy].schemas + len(runs)


def test_wrong_registrations_follow_their_probability(
    runs: list[RecordedRun], tools: Tools
) -> None:
    def extra(chance: float) -> int:
        setting = dataclasses.replace(SETTING, wrong=chance)
        renamed = [dataclasses.replace(runs[0], id=str(number)) for number in range(40)]
        (result,) = measure_pools(renamed, tools, (8,), setting)
        return result.totals["stable"].calls

    assert extra(0) < extra(0.5) < extra(1)
    assert extra(0.5) == extra(0.5)


def test_session_keeps_registrations_and_lists_names_once(
    runs: list[RecordedRun], tools: Tools
) -> None:
    twice = [runs[0], dataclasses.replace(runs[0], id="again")]
    (apart,) = measure_pools(twice, tools, (8,), SETTING)
    (together,) = measure_pools(twice, tools, (8,), dataclasses.replace(SETTING, questions=2))
    assert together.runs == 2
    used = len(runs[0].used)
    for policy in ("grow", "stable"):
        assert together.totals[policy].calls == 2 * (apart.totals[policy].calls - used)
        assert together.totals[policy].schemas == 2 * used


def test_each_run_starts_a_session_without_repetitions(runs: list[RecordedRun]) -> None:
    setting = dataclasses.replace(SETTING, questions=2)
    assert [session[0] for session in sessions_of(runs, setting)] == runs
    assert all(len({run.id for run in session}) == 2 for session in sessions_of(runs, setting))
    assert [len(session) for session in sessions_of(runs[:1], setting)] == [1]
    assert sessions_of(runs, SETTING) == [(run,) for run in runs]


def test_names_are_listed_only_with_registration_by_name(
    runs: list[RecordedRun], tools: Tools
) -> None:
    longer = dataclasses.replace(
        SETTING, system=lambda form: "Be brief. Names." if form.registers else "Be brief."
    )
    (short,) = measure_pools(runs, tools, (8,), SETTING)
    (long,) = measure_pools(runs, tools, (8,), longer)
    for policy in ("all", "all_text"):
        assert long.totals[policy].usage == short.totals[policy].usage
    for policy in ("grow", "stable"):
        more = long.totals[policy].usage.input - short.totals[policy].usage.input
        assert more == len(" Names.") * long.totals[policy].calls


# One run, request by request


@pytest.fixture
def run(runs: list[RecordedRun]) -> RecordedRun:
    return runs[0]


def pool(tools: Tools) -> list[ToolSchema]:
    return list(tools.schemas.values())


def replayed(presentation: Presentation, run: RecordedRun, tools: Tools, *upfront: str) -> Bill:
    schemas = [tools.schemas[name] for name in upfront]
    session = Session(presentation, SYSTEM, len, pool(tools))
    session.ask(run, schemas)
    return session.bill


def test_prompt_that_extends_the_previous_one_is_read_from_the_cache() -> None:
    bill = Bill()
    bill.call(array=100, messages=50, output=5)
    bill.call(array=100, messages=70, output=5)
    assert bill.usage == Usage(input=320, output=10, cached=150, cache_write=170)


def test_grown_tool_array_invalidates_the_cache_behind_it() -> None:
    bill = Bill()
    bill.call(array=100, messages=50, output=5)
    bill.call(array=130, messages=70, output=5)
    assert bill.usage == Usage(input=350, output=10, cached=100, cache_write=250)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_cached_part_is_the_longest_common_prefix(growth: list[tuple[int, int]]) -> None:
    bill, array, messages = Bill(), "", ""
    previous, common = "", 0
    for more_array, more_messages in growth:
        array, messages = array + "a" * more_array, messages + "m" * more_messages
        prompt = f"[{array}" + f"]{messages}"
        if previous:
            common += next(
                (n for n, (a, b) in enumerate(zip(previous, prompt, strict=False)) if a != b),
                len(previous),
            )
        bill.call(len(array) + 1, len(messages) + 1, 0)
        previous = prompt
    assert bill.usage.cached == common


def test_registering_everything_needs_one_call_per_step_and_answer(
    run: RecordedRun, tools: Tools
) -> None:
    assert replayed(PLAIN, run, tools, *tools.schemas).calls == len(run.steps) + 1


def test_registration_by_name_needs_one_more_call_per_used_tool(
    run: RecordedRun, tools: Tools
) -> None:
    for presentation in (GROW, STABLE):
        assert replayed(presentation, run, tools).calls == len(run.steps) + 1 + len(run.used)


def test_loaded_tools_need_no_registration_call(run: RecordedRun, tools: Tools) -> None:
    for presentation in (GROW, STABLE):
        assert replayed(presentation, run, tools, *run.used).calls == len(run.steps) + 1
        assert replayed(presentation, run, tools, "play_music").calls == len(run.steps) + 1 + len(
            run.used
        )


def test_stable_run_reads_the_complete_previous_prompt_from_the_cache(
    run: RecordedRun, tools: Tools
) -> None:
    usage = replayed(STABLE, run, tools).usage
    last_prompt = usage.cache_write
    assert usage.cached + last_prompt == usage.input
    assert last_prompt < replayed(GROW, run, tools).usage.cache_write


def test_tool_outside_the_catalog_is_not_registered(tools: Tools) -> None:
    foreign = RecordedStep(None, "dig", "", "{}", "earth")
    run = RecordedRun("r", "dig", (foreign,), "done")
    assert replayed(GROW, run, tools).calls == 2


def test_first_request_is_counted_exactly(run: RecordedRun, tools: Tools) -> None:
    first = RecordedRun("r", run.query, (), "done")
    array = sum(len(schema.entry) for schema in GROW.array((), finish=False))
    opening = f"{GROW.opening(list(tools.schemas))}\n\n{run.query}"
    usage = replayed(GROW, first, tools).usage
    assert (
        usage.input == array + len(SYSTEM) + TOKENS_PER_MESSAGE + len(opening) + TOKENS_PER_MESSAGE
    )
    assert usage.output == len("done")


def test_stable_call_has_the_tool_as_an_argument(tools: Tools) -> None:
    step = RecordedStep("read_file", "read_file", "", '{"path": "a"}', "text")
    run = RecordedRun("r", "read", (step,), "done")
    difference = (
        replayed(STABLE, run, tools, "read_file").usage.output
        - replayed(GROW, run, tools, "read_file").usage.output
    )
    wrapped = {"name": "tool_call", "arguments": {"name": "read_file", "arguments": {"path": "a"}}}
    assert difference == len(json.dumps(wrapped)) - len(json.dumps(wrapped["arguments"]))


def test_registering_everything_lists_no_names_and_no_meta_tool(
    run: RecordedRun, tools: Tools
) -> None:
    assert [schema.name for schema in PLAIN.array(pool(tools), finish=False)] == [*tools.schemas]
    first = RecordedRun("r", run.query, (), "done")
    array = sum(len(schema.entry) for schema in PLAIN.array(pool(tools), finish=False))
    usage = replayed(PLAIN, first, tools, *tools.schemas).usage
    assert usage.input == array + len(SYSTEM) + len(run.query) + 2 * TOKENS_PER_MESSAGE
