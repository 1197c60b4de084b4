import json
import re
from functools import partial
from pathlib import Path

import bench_play
import pytest
from bench_play import written
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.agent.session_settings import SMALL_MODEL_STEPS
from ecoshell.errors import UsageError
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.strategies.react import REACT
from ecoshell.strategies.search import DFSDT, TOT
from ecoshell_bench.btp import Sweep, bar, draw_costs, measure
from ecoshell_bench.btp_replay import (
    MAX_STEPS,
    Action,
    Gated,
    Planned,
    RecordedTools,
    Task,
    ideal,
    leave_one_out,
    read_tasks,
    replay,
)

bench = partial(bench_play.bench, "btp")
WAYS = (REACT, DFSDT, TOT)
COSTS = {"a": 2, "b": 3, "c": 5}


def task(*tools, success=True, gold=(), helpful=True, query="count"):
    """A run that used these tools, each time with different arguments."""
    actions = tuple(
        Action(Call(tool, {"turn": position}, str(position)), Observation("seen"), helpful)
        for position, tool in enumerate(tools)
    )
    return Task(query, success, gold, actions, tuple(dict.fromkeys((*gold, *tools))))


def plan(bound=1, **costs):
    return TaskPlan(
        [Candidate(tool, 0.5, bound, cost) for tool, cost in costs.items()], strict=True
    )


def unplanned(recorded, way):
    return replay(recorded, way.strategy, RecordedTools(recorded, COSTS))


def planned(recorded, way, limits, cap):
    return replay(recorded, way.strategy, Planned(recorded, limits, cap))


def record(query="count", *steps, gold=("a",), success=True):
    return {"query": query, "success": success, "gold_tools": [*gold], "steps": [*steps]}


def step(tool="a", args='{"path": "x"}', observation="all is well"):
    return {"tool": tool, "args": args, "observation": observation}


RUNS = (
    record(
        "count the words of a",
        step("read"),
        step("count"),
        step("count", '{"path": "y"}'),
        gold=("read", "count"),
    ),
    record("count the lines of b", step("read"), step("count"), gold=("read", "count")),
    record("send the lines of b", step("read"), step("send"), success=False, gold=("send",)),
)


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "runs.jsonl", *RUNS)


def printed(capsys, *arguments):
    assert bench(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_successful_run_is_replayed_step_by_step_under_every_strategy(way):
    spent = unplanned(task("a", "b", "a", "c"), way)
    assert (spent.cost, spent.uses, spent.planned_cost) == (12, 4, None)


def test_search_backtracks_in_a_failed_run():
    failed = task("a", "b", "c", success=False)
    assert unplanned(failed, REACT).uses == 3
    assert unplanned(failed, DFSDT).uses > 3
    assert unplanned(failed, TOT).uses > 3


def test_replay_has_the_step_limit_of_the_shell():
    assert SMALL_MODEL_STEPS == MAX_STEPS
    assert unplanned(task(*["a"] * 40), REACT).uses == MAX_STEPS


def test_steps_with_a_forbidden_tool_are_skipped():
    spent = planned(task(*["a"] * MAX_STEPS, "c", "b"), REACT, plan(a=2, b=3, c=50), 20)
    assert (spent.cost, spent.uses) == (5, 2)
    assert (spent.planned_cost, spent.planned_uses) == (5, 2)


def test_forbidden_call_is_refused_and_costs_nothing():
    recorded = task("a", "a")
    tools = Planned(recorded, plan(a=2), cap=20)
    first, second = (tools.act(action.call) for action in recorded.actions)
    assert (first.ok, second.ok, second.refused) == (True, False, "forbidden")
    assert (tools.spent, tools.uses) == (2, 1)


def test_pending_search_step_is_refused_once_its_tool_is_used_up():
    spent = planned(task("a", "b", success=False), TOT, plan(a=2, b=3), 20)
    assert (spent.cost, spent.uses) == (5, 2)


steps_judged = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([True, False, None])), max_size=9
)
four_tools = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 4), st.integers(0, 12)), min_size=4, max_size=4
).map(lambda rows: [Candidate(tool, *figures) for tool, figures in zip("abcd", rows, strict=True)])


@given(steps_judged, four_tools, st.integers(0, 40), st.sampled_from(WAYS), st.data())
def test_planned_run_never_exceeds_the_cap(steps, candidates, cap, way, data):
    actions = tuple(
        Action(Call(tool, {"turn": position}, str(position)), Observation("seen"), helpful)
        for position, (tool, helpful) in enumerate(steps)
    )
    recorded = Task("count", data.draw(st.booleans()), (), actions, tuple("abcd"))
    strict, earned, blacklisting = (data.draw(st.booleans()) for _ in range(3))
    limits = TaskPlan(candidates, strict=strict, earned=earned, blacklisting=blacklisting)
    spent = planned(recorded, way, limits, cap)
    assert spent.cost <= cap
    assert spent.planned_cost <= cap


def test_costs_are_in_range_and_depend_on_tool_and_seed_only():
    costs = draw_costs(map(str, range(500)), (1, 10), seed=3)
    assert set(costs.values()) == set(range(1, 11))
    assert draw_costs(["7", "400"], (1, 10), seed=3) == {"7": costs["7"], "400": costs["400"]}
    assert draw_costs(costs, (1, 10), seed=4) != costs


def test_evidence_comes_from_runs_of_other_questions_only():
    first, repeat, other = (
        task("a", "a"),
        task("a", success=False),
        task("a", "b", query="count the lines"),
    )
    inputs = leave_one_out([first, repeat, other], gold=False)
    assert [each.evidence["a"].uses for each in inputs] == [1, 1, 3]
    assert inputs[2].evidence["b"].uses == 0


def test_unhelpful_results_lower_the_value_for_the_next_task():
    useful, useless = (
        leave_one_out([task("a"), task("a", query="count the lines", helpful=helpful)], gold=False)[
            0
        ].candidates(0.15, COSTS, strict=True)
        for helpful in (True, False)
    )
    assert useful[0].value > 0.15 > useless[0].value
    assert (useful[0].bound, useless[0].bound) == (1, 0)


def test_gold_trajectory_calls_each_needed_tool_once():
    recorded = task("a", "a", "a", gold=("b", "a"), success=False)
    sweep = Sweep(WAYS, ("off",), (20,), (0.15,), (0,), costs=(4, 4))
    rows = list(measure(leave_one_out([recorded], gold=True), sweep))
    assert [(row.average_cost, row.uses) for row in rows] == [(8, 2)] * 3


def test_strict_plan_reuses_an_unhelpful_tool_only_without_the_blacklist():
    useless = task("a", "a", helpful=False)
    other_runs = [task("a", "a", "a", query=f"count {number}") for number in range(3)]
    costs = []
    for blacklisting in (True, False):
        sweep = Sweep(
            [REACT], ("strict",), (20,), (0.15,), (0,), costs=(4, 4), blacklisting=blacklisting
        )
        (row,) = measure(leave_one_out([useless, *other_runs], gold=False)[:1], sweep)
        costs.append(row.average_cost)
    assert costs == [4, 8]


def test_helpful_use_grants_another_only_with_earned():
    uses = []
    for earned in (False, True):
        sweep = Sweep([REACT], ("strict",), (20,), (0.15,), (0,), costs=(4, 4), earned=earned)
        (row,) = measure(leave_one_out([task(*["a"] * 9)], gold=False), sweep)
        uses.append(row.uses)
    assert uses == [1, 5]


def test_results_are_judged_by_the_rules_of_the_shell(tmp_path):
    failed = "meta=None content=[TextContent(type='text', text='it broke', annotations=None)] isError=True"
    steps = [step(), step(observation=""), step(observation=failed), step("enter", None, None)]
    (read,) = read_tasks(written(tmp_path / "runs.jsonl", record("q", *steps)))
    assert [action.observation.ok for action in read.actions] == [True, True, False, True]
    assert [action.helpful for action in read.actions[:3]] == [True, False, False]
    assert read.tools == ("a", "enter")


def test_arguments_may_be_an_object_its_json_text_or_another_value(tmp_path):
    steps = [step(args={"path": "x"}), step(args='{"path": "x"}'), step(args="x"), step(args=None)]
    (read,) = read_tasks(written(tmp_path / "runs.jsonl", record("q", *steps)))
    assert [dict(action.call.arguments) for action in read.actions] == [
        {"path": "x"},
        {"path": "x"},
        {"": "x"},
        {"": None},
    ]


def test_line_separator_inside_a_text_does_not_end_the_line(tmp_path):
    (read,) = read_tasks(written(tmp_path / "runs.jsonl", record("one\u2028two\x85three", step())))
    assert read.query == "one\u2028two\x85three"


def test_json_has_a_row_for_each_strategy_plan_cap_threshold_and_seed(file, capsys):
    plans = ("btp", "gate", "oracle", "off", "strict")
    arguments = ("--cap", "5,20", "--tau", "0,0.15", "--seeds", "2", "--plan", ",".join(plans))
    record = printed(capsys, "--replay", file, *arguments)
    rows = record["rows"]
    keys = [(row["strategy"], row["plan"], row["cap"], row["tau"], row["seed"]) for row in rows]
    assert len(keys) == len(set(keys)) == 3 * 5 * 2 * 2 * 2
    assert {key[0] for key in keys} == {"react", "dfsdt", "tot"}
    assert all(row["over_budget"] == 0 for row in rows if row["plan"] != "off")
    assert all(
        row["average_cost"] <= row["planned_cost"] <= row["cap"]
        for row in rows
        if row["plan"] == "strict"
    )
    assert all(
        (row["planned_cost"] is None) == (row["plan"] not in {"btp", "strict"}) for row in rows
    )
    assert all(0 <= row[share] <= 1 for row in rows for share in ("useful_allowed", "tasks_whole"))
    best = {
        (row["cap"], row["seed"]): row["useful_allowed"] for row in rows if row["plan"] == "oracle"
    }
    assert all(
        row["useful_allowed"] <= best[row["cap"], row["seed"]]
        for row in rows
        if row["plan"] != "off"
    )
    assert (record["runs"], record["costs"], record["steps"]) == (3, [1, 10], "recorded")


def test_without_a_plan_spending_is_counted_but_not_limited(file, capsys):
    options = "--costs 4..4 --cap 9 --seeds 1 --strategy react --plan off"
    (row,) = printed(capsys, "--replay", file, *options.split())["rows"]
    assert row["uses"] == pytest.approx(7 / 3, abs=1e-4)
    assert row["average_cost"] == pytest.approx(28 / 3, abs=1e-4)
    assert row["over_budget"] == pytest.approx(1 / 3, abs=1e-4)


def test_figures_are_reproducible(file, capsys):
    assert printed(capsys, "--replay", file) == printed(capsys, "--replay", file)


def test_table_compares_each_setting_with_no_plan(file, capsys):
    bench("--replay", file, "--costs", "4..4", "--seeds", "1", "--strategy", "react")
    header, planned, gated, oracle, off, *notes = capsys.readouterr().out.splitlines()
    assert header.split()[:5] == ["strategy", "plan", "cap", "tau", "average_cost"]
    assert planned.split()[:4] == ["react", "btp", "20", "0.15"]
    assert [line.split()[:4] for line in (gated, oracle)] == [
        ["react", "gate", "20", "–"],
        ["react", "oracle", "20", "–"],
    ]
    assert off.split() == [
        "react",
        "off",
        "20",
        "–",
        "9.333",
        "2.333",
        "0",
        "1",
        "1",
        "–",
        "–",
        "–",
    ]
    assert "recorded runs: 3" in notes[0]
    assert "│" not in "".join(notes)


def mixed(*helpful):
    """A run that uses each tool once; `helpful` has the judgement of each result."""
    tools = "abcdefgh"[: len(helpful)]
    actions = tuple(
        Action(Call(tool, {}, str(position)), Observation("seen"), is_helpful)
        for position, (tool, is_helpful) in enumerate(zip(tools, helpful, strict=True))
    )
    return Task("count", True, (), actions, tuple(tools))


def test_gate_allows_calls_in_order_while_they_fit_the_cap():
    recorded = mixed(True, False, True, True)
    spent = replay(
        recorded, REACT.strategy, Gated(recorded, {"a": 4, "b": 3, "c": 5, "d": 2}, cap=10)
    )
    assert (spent.cost, spent.uses, spent.useful) == (9, 3, 2)


def test_oracle_makes_as_many_useful_calls_as_fit_and_no_other():
    spent = ideal(mixed(True, False, True, True), {"a": 9, "b": 1, "c": 5, "d": 4}, cap=10)
    assert (spent.cost, spent.uses, spent.useful) == (9, 2, 2)


def test_repeated_useful_call_counts_once():
    failed = task("a", "b", success=False)
    spent = unplanned(failed, DFSDT)
    assert (spent.uses > 2, spent.useful) == (True, 2)


def test_shares_are_relative_to_all_useful_calls_and_all_tasks():
    tasks = [task(*"aaaa"), task("b", query="send the lines")]
    sweep = Sweep([REACT], ("gate", "off"), (8,), (0.15,), (0,), costs=(4, 4))
    gate, off = measure(leave_one_out(tasks, gold=False), sweep)
    assert (gate.useful_allowed, gate.tasks_whole) == (3 / 5, 1 / 2)
    assert (off.useful_allowed, off.tasks_whole) == (1, 1)


def test_halves_restrict_evidence_to_the_other_half_of_the_runs():
    tasks = [task("a", query=f"count {number}") for number in range(6)]
    all_runs, half = leave_one_out(tasks, gold=False), leave_one_out(tasks, gold=False, halves=True)
    assert [each.evidence["a"].uses for each in all_runs] == [5] * 6
    assert [each.evidence["a"].uses for each in half] == [3] * 6
    assert [each.task for each in half] == tasks


def test_swept_settings_are_drawn_as_bars(file, capsys):
    bench(
        "--replay",
        file,
        "--costs",
        "4..4",
        "--seeds",
        "1",
        "--strategy",
        "react",
        "--cap",
        "4,8",
        "--tau",
        "0,1",
    )
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("Cost by cap with the plan (τ 0)")
    assert lines[start + 1] == "react, 9.33 without"
    assert [line.split() for line in lines[start + 2 : start + 4]] == [
        ["4", "│" + "█" * 20, "4.00"],
        ["8", "│" + "█" * 40, "8.00"],
    ]
    assert "Cost by τ with the plan (cap 8)" in lines


@given(st.floats(0, 1), st.floats(0, 1))
def test_bars_grow_with_the_share(first, second):
    short, long = sorted((first, second))
    assert len(bar(short)) <= len(bar(long)) <= 40
    assert (bar(0), bar(1)) == ("", "█" * 40)


def test_free_tools_and_a_cap_of_zero_are_measured(file, capsys):
    for arguments in (("--costs", "0..0"), ("--cap", "0"), ("--costs", "1..1000000000")):
        rows = printed(capsys, "--replay", file, *arguments, "--seeds", "1")["rows"]
        assert all(row["over_budget"] == 0 for row in rows if row["plan"] == "btp")
    assert any(row["over_budget"] == 1 for row in rows if row["plan"] == "off")


def test_single_run_of_one_tool_is_measured(tmp_path, capsys):
    file = written(tmp_path / "runs.jsonl", record("count", step()))
    rows = printed(capsys, "--replay", file, "--costs", "4..4", "--seeds", "1")["rows"]
    assert [(row["average_cost"], row["uses"]) for row in rows] == [(4, 1)] * 12


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        (("--costs", "10..1"), "has the maximum first", r"1\.\.10"),
        (("--costs=-1..4",), "'-1' is not a number", "whole"),
        (("--costs", "5"), "not a range", r"1\.\.10"),
        (("--costs", "1..99999999999"), "is not a number", "whole"),
        (("--cap", "ten"), "'ten' is not a number", "whole"),
        (("--cap", "5,,10"), "'' is not a number", "whole"),
        (("--seeds", "0"), "from 1 to 1000", "draws"),
        (("--tau", "1.1"), "'1.1' is not a threshold", "0 to 1"),
        (("--tau", "nan"), "not a threshold", "0 to 1"),
        (("--strategy", "dfs"), "Unknown strategy 'dfs'", "Did you mean dfsdt?"),
        (("--strategy", "%"), "Unknown strategy", "Available: react, dfsdt, tot"),
        (("--plan", "prompt"), "Unknown plan 'prompt'", "btp, gate, oracle, off, strict"),
        (("--plan", ""), "Unknown plan ''", "btp"),
    ],
)
def test_invalid_option_is_refused_with_a_fix(file, arguments, message, fix):
    with pytest.raises(UsageError, match=message) as refused:
        bench("--replay", file, *arguments)
    assert re.search(fix, refused.value.fix)


GOOD = json.dumps(RUNS[0]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no recorded run"),
        (GOOD + "[1]", r"runs.jsonl:2 is not a JSON object"),
        (GOOD + "[" * 100_000, r"runs.jsonl:2 is not JSON"),
        ('{"name": "read", "description": ""}', "runs.jsonl:1: `query`: "),
        ('{"query": "q", "gold_tools": []}', "runs.jsonl:1: `steps`: "),
        ('{"query": "q", "gold_tools": "a", "steps": []}', "`gold_tools`: "),
        ('{"query": "q", "gold_tools": [1], "steps": []}', "`gold_tools.1`: "),
        ('{"query": "q", "gold_tools": [], "steps": [[]]}', "`steps.1`: "),
        (
            '{"query": "q", "gold_tools": [], "steps": [{"tool": "a", "args": {}}]}',
            "`steps.1.observation`: ",
        ),
        (
            '{"query": "q", "gold_tools": [], "steps": [{"tool": "", "observation": ""}]}',
            "`steps.1.tool`: it is empty",
        ),
        ('{"query": "q", "gold_tools": [], "steps": [], "success": "yes"}', "`success`: "),
    ],
)
def test_invalid_run_is_reported_with_its_line(tmp_path, text, message):
    path = tmp_path / "runs.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        bench("--replay", path)


def test_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(f"{json.dumps(run)}\n" for run in RUNS), encoding="utf-8-sig")
    assert [run.query for run in read_tasks(path)] == [run["query"] for run in RUNS]


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        bench("--replay", Path(tmp_path, "nowhere.jsonl"))
