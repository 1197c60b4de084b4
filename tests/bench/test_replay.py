import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.catalog.presentation import GROW, PLAIN, STABLE, Presentation
from ecoshell.messages import ToolDocument, Usage
from ecoshell_bench.ecoact import PER_MESSAGE, Bill, Session
from ecoshell_bench.reading import RecordedRun, RecordedStep, Tools, read_runs, read_tools

SYSTEM = "Be brief."


@pytest.fixture
def tools(catalog: Path) -> Tools:
    return read_tools(catalog)


@pytest.fixture
def run(replay: Path, tools: Tools) -> RecordedRun:
    return read_runs(replay, tools)[0]


def pool(tools: Tools) -> list[ToolDocument]:
    return list(tools.documents.values())


def replayed(presentation: Presentation, run: RecordedRun, tools: Tools, *upfront: str) -> Bill:
    documents = [tools.documents[name] for name in upfront]
    session = Session(presentation, SYSTEM, len, pool(tools))
    session.ask(run, documents)
    return session.bill


def test_a_prompt_that_continues_the_one_before_is_read_from_the_cache() -> None:
    bill = Bill()
    bill.call(array=100, messages=50, output=5)
    bill.call(array=100, messages=70, output=5)
    assert bill.usage == Usage(input=320, output=10, cached=150, cache_write=170)


def test_behind_an_array_that_has_grown_nothing_is_found_in_the_cache() -> None:
    bill = Bill()
    bill.call(array=100, messages=50, output=5)
    bill.call(array=130, messages=70, output=5)
    assert bill.usage == Usage(input=350, output=10, cached=100, cache_write=250)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_what_is_cached_is_the_longest_common_prefix_of_the_prompts(growth: list[tuple[int, int]]) -> None:
    bill, array, messages = Bill(), "", ""
    before, common = "", 0
    for more_array, more_messages in growth:
        array, messages = array + "a" * more_array, messages + "m" * more_messages
        prompt = f"[{array}" + f"]{messages}"
        if before:
            common += next((n for n, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), len(before))
        bill.call(len(array) + 1, len(messages) + 1, 0)
        before = prompt
    assert bill.usage.cached == common


def test_registering_everything_takes_a_call_for_each_step_and_one_for_the_answer(
    run: RecordedRun, tools: Tools
) -> None:
    assert replayed(PLAIN, run, tools, *tools.documents).calls == len(run.steps) + 1


def test_registering_by_name_takes_one_more_call_for_each_tool_that_is_used(run: RecordedRun, tools: Tools) -> None:
    for presentation in (GROW, STABLE):
        assert replayed(presentation, run, tools).calls == len(run.steps) + 1 + len(run.used)


def test_what_is_registered_up_front_needs_no_call(run: RecordedRun, tools: Tools) -> None:
    for presentation in (GROW, STABLE):
        assert replayed(presentation, run, tools, *run.used).calls == len(run.steps) + 1
        assert replayed(presentation, run, tools, "play_music").calls == len(run.steps) + 1 + len(run.used)


def test_a_stable_run_finds_the_whole_prompt_before_in_the_cache(run: RecordedRun, tools: Tools) -> None:
    usage = replayed(STABLE, run, tools).usage
    last_prompt = usage.cache_write
    assert usage.cached + last_prompt == usage.input
    assert last_prompt < replayed(GROW, run, tools).usage.cache_write


def test_a_tool_outside_the_catalog_is_never_registered(tools: Tools) -> None:
    foreign = RecordedStep(None, "dig", "", "{}", "earth")
    run = RecordedRun("r", "dig", (foreign,), "done")
    assert replayed(GROW, run, tools).calls == 2


def test_the_first_request_is_counted_to_the_last_token(run: RecordedRun, tools: Tools) -> None:
    first = RecordedRun("r", run.query, (), "done")
    array = sum(len(document.as_entry()) for document in GROW.array((), finish=False))
    opening = f"{GROW.opening(list(tools.documents))}\n\n{run.query}"
    usage = replayed(GROW, first, tools).usage
    assert usage.input == array + len(SYSTEM) + PER_MESSAGE + len(opening) + PER_MESSAGE
    assert usage.output == len("done")


def test_a_stable_call_carries_the_tool_as_an_argument(tools: Tools) -> None:
    step = RecordedStep("read_file", "read_file", "", '{"path": "a"}', "text")
    run = RecordedRun("r", "read", (step,), "done")
    difference = (
        replayed(STABLE, run, tools, "read_file").usage.output - replayed(GROW, run, tools, "read_file").usage.output
    )
    wrapped = {"name": "tool_call", "arguments": {"name": "read_file", "arguments": {"path": "a"}}}
    assert difference == len(json.dumps(wrapped)) - len(json.dumps(wrapped["arguments"]))


def test_registering_everything_has_no_names_and_no_meta_tool(run: RecordedRun, tools: Tools) -> None:
    assert [document.name for document in PLAIN.array(pool(tools), finish=False)] == [*tools.documents]
    first = RecordedRun("r", run.query, (), "done")
    array = sum(len(document.as_entry()) for document in PLAIN.array(pool(tools), finish=False))
    usage = replayed(PLAIN, first, tools, *tools.documents).usage
    assert usage.input == array + len(SYSTEM) + len(run.query) + 2 * PER_MESSAGE
