import json
from functools import partial

import bench_play
import pytest
from bench_play import written
from hostile_server import hostile_server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecoshell.errors import ModelBroken, UsageError
from ecoshell.paths import user_paths
from ecoshell_bench.umi.asking import view_of
from ecoshell_bench.umi.metrics import (
    METRICS,
    Prediction,
    arguments_f1,
    common_subsequence,
    gold,
    rouge_l,
    score_step,
    summarise,
)
from ecoshell_train.trajectories import SPLITS, is_held, read_trajectories

bench = partial(bench_play.bench, "umi")
FORECAST = {
    "name": "forecast",
    "description": "The weather of a day.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CLOCK = {
    "name": "clock",
    "description": "The time.",
    "parameters": {"type": "object", "properties": {}},
}


def call(tool="forecast", observation="rain", **arguments):
    return {
        "thought": "I look it up.",
        "decision": "call",
        "tool": tool,
        "arguments": arguments,
        "observation": observation,
    }


def end(decision="finish"):
    return {
        "thought": "",
        "decision": decision,
        "tool": None,
        "arguments": None,
        "observation": None,
    }


def task(name="a", *steps, final="It will rain in Oslo."):
    steps = steps or (call(city="Oslo"), end())
    return {
        "id": name,
        "tools": [FORECAST, CLOCK],
        "query": "Rain in Oslo?",
        "steps": [*steps],
        "final": final,
    }


TASKS = (
    task("a"),
    task("b", call("clock"), call(city="Bergen"), end()),
    task("c", end("give_up"), final=None),
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def data(tmp_path):
    return written(tmp_path / "data.jsonl", *TASKS)


@pytest.fixture
def trajectory(data):
    return read_trajectories(data)[1]


@pytest.fixture
def script(tmp_path):
    """Writes the script of a model with these replies."""

    def make(*replies):
        return f"script:{written(tmp_path / 'script.jsonl', *replies)}"

    return make


def printed(capsys, *arguments):
    capsys.readouterr()
    assert bench(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def call_line(name, **arguments):
    return {"call": {"name": name, "arguments": arguments}}


RIGHT = (
    call_line("forecast", city="Oslo"),
    call_line("finish", answer="It will rain in Oslo."),
    call_line("clock"),
    call_line("forecast", city="Bergen"),
    call_line("finish", answer="It will rain in Oslo."),
    call_line("finish", answer="No tool can do it.", give_up=True),
)


# The reference scored against itself


def test_the_reference_scores_a_hundred(data, capsys):
    record = printed(capsys, "--data", data, "--model", "gold")
    assert list(record) == ["n", *METRICS, "intervals"]
    assert [record[metric] for metric in METRICS] == [100, 100, 0, 100, 100]
    assert record["n"] == 6
    assert record["intervals"]["plan_acc"] == [100, 100]
    assert record["intervals"]["hallucination"] == [0, 0]


def test_the_table_names_every_figure(data, capsys):
    assert bench("--data", data, "--model", "gold") == 0
    table = capsys.readouterr().out
    for name in METRICS:
        assert name in table
    assert "6 steps of 3 tasks" in table


def test_a_metric_without_applicable_steps_is_unknown(tmp_path, capsys):
    file = written(tmp_path / "calls.jsonl", task("a", call(city="Oslo")))
    record = printed(capsys, "--data", file, "--model", "gold")
    assert record["rouge_l"] is None
    assert record["intervals"]["rouge_l"] is None
    assert record["action_em"] == 100


# Metrics


def scored(trajectory, number, *arguments, **fields):
    return score_step(trajectory, number, Prediction(*arguments, **fields))


def test_a_call_instead_of_an_answer_fails_plan_and_answer(trajectory):
    score = scored(trajectory, 2, "call", "clock")
    assert (score.plan_acc, score.rouge_l) == (0, 0)
    assert score.action_em is None
    assert score.argument_f1 is None


def test_an_answer_instead_of_a_call_fails_plan_and_action(trajectory):
    score = scored(trajectory, 0, "finish", answer="noon")
    assert (score.plan_acc, score.action_em, score.hallucination, score.argument_f1) == (0, 0, 0, 0)
    assert score.rouge_l is None


def test_an_unlisted_tool_is_a_hallucination_at_any_step(trajectory):
    assert [scored(trajectory, number, "call", "radar").hallucination for number in range(3)] == [
        1,
        1,
        1,
    ]
    assert scored(trajectory, 0, "call", "forecast").hallucination == 0
    assert scored(trajectory, 0, "finish", "radar").hallucination == 0


def test_a_missing_reply_fails_without_hallucination(trajectory):
    score = scored(trajectory, 0, None)
    assert (score.plan_acc, score.action_em, score.hallucination, score.argument_f1) == (0, 0, 0, 0)


def test_arguments_of_another_tool_score_zero(trajectory):
    assert scored(trajectory, 1, "call", "clock", {"city": "Bergen"}).argument_f1 == 0
    assert scored(trajectory, 1, "call", "forecast", {"city": "Bergen"}).argument_f1 == 1
    assert scored(trajectory, 1, "call", "forecast", {"city": "Oslo"}).argument_f1 == 0.5
    assert scored(trajectory, 0, "call", "clock").argument_f1 == 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {}, 1),
        ({}, {"a": 1}, 0),
        ({"a": 1}, {"a": 2}, 0.5),
        ({"a": 1, "b": 2}, {"a": 1}, 2 / 3),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, 0.75),
        ({"a": 1}, {"a": 1.0}, 1),
        ({"a": 1}, {"a": True}, 0.5),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}, 1),
    ],
)
def test_an_argument_scores_half_for_its_name_and_half_for_its_value(first, second, expected):
    assert arguments_f1(first, second) == pytest.approx(expected)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.text(max_size=2), st.lists(st.integers(0, 1))
)
ARGUMENTS = st.dictionaries(st.sampled_from("abcd"), VALUES)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # the first text draws a table of all characters
@given(ARGUMENTS, ARGUMENTS)
def test_the_overlap_of_arguments_is_symmetric_and_between_zero_and_one(first, second):
    assert arguments_f1(first, second) == arguments_f1(second, first)
    assert 0 <= arguments_f1(first, second) <= 1
    assert arguments_f1(first, first) == 1
    has_no_common_key = bool(first or second) and not first.keys() & second.keys()
    assert (arguments_f1(first, second) == 0) == has_no_common_key


TEXTS = st.lists(st.sampled_from(("rain", "Oslo", "the", "雨", "3", "…"))).map(" ".join)


@given(TEXTS, TEXTS)
def test_the_overlap_of_texts_is_symmetric_and_between_zero_and_one(first, second):
    assert rouge_l(first, second) == rouge_l(second, first)
    assert 0 <= rouge_l(first, second) <= 1
    assert rouge_l(first, first.upper()) == 1


def by_table(first, second):
    """The length of the longest common subsequence by dynamic programming."""
    row = [0] * (len(second) + 1)
    for word in first:
        above = row
        row = [0]
        for place, another in enumerate(second):
            row.append(above[place] + 1 if word == another else max(above[place + 1], row[-1]))
    return row[-1]


WORDS = st.lists(st.sampled_from("abcd"), max_size=30)


@given(WORDS, WORDS)
def test_the_common_subsequence_has_the_length_of_the_table(first, second):
    assert common_subsequence(first, second) == by_table(first, second)


def test_words_are_compared_without_case_and_punctuation_and_chinese_by_character():
    assert rouge_l("It will rain!", "it WILL snow") == pytest.approx(2 / 3)
    assert rouge_l("今天下雨", "明天下雨") == pytest.approx(3 / 4)
    assert rouge_l("", "rain") == 0
    assert rouge_l("", "…") == 1


# Intervals


def test_intervals_contain_the_mean_and_are_reproducible(data):
    trajectories = read_trajectories(data)
    right = [
        [score_step(t, number, gold(t, number)) for number in range(len(t.steps))]
        for t in trajectories
    ]
    mixed = [*right, [score_step(trajectories[0], 0, Prediction("call", "radar"))]]
    result = summarise(mixed)
    assert result == summarise(mixed)
    for metric in METRICS:
        low, high = result.intervals[metric]
        assert 0 <= low <= result.percent[metric] <= high <= 100
    low, high = result.intervals["action_em"]
    assert low < high


def test_a_single_task_is_resampled_by_step(trajectory):
    steps = [
        score_step(trajectory, 0, gold(trajectory, 0)),
        score_step(trajectory, 1, Prediction("finish")),
    ]
    low, high = summarise([steps]).intervals["plan_acc"]
    assert (low, high) == (0, 100)


# Asking a model


def test_a_model_that_follows_the_reference_scores_a_hundred(data, script, capsys):
    record = printed(capsys, "--data", data, "--model", script(*RIGHT))
    assert [record[metric] for metric in METRICS] == [100, 100, 0, 100, 100]


def test_a_model_that_answers_too_early_loses_points(data, script, capsys):
    replies = (
        call_line("finish", answer="Rain."),
        call_line("finish", answer="It will rain."),
        *RIGHT[2:],
    )
    record = printed(capsys, "--data", data, "--model", script(*replies))
    assert record["plan_acc"] == pytest.approx(100 * 5 / 6, abs=1e-3)
    assert record["action_em"] == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert 50 < record["rouge_l"] < 100


def test_plain_text_is_an_answer_and_empty_text_is_no_decision(data, script, capsys):
    assert (
        bench(
            "--data",
            data,
            "--limit",
            2,
            "--json",
            "--model",
            script({"text": "Dry."}, call_line("finish")),
        )
        == 0
    )
    output = capsys.readouterr()
    assert json.loads(output.out)["plan_acc"] == 50
    assert "usable" not in output.err
    assert (
        bench(
            "--data",
            data,
            "--limit",
            2,
            "--json",
            "--model",
            script(call_line("clock"), {"text": ""}),
        )
        == 0
    )
    output = capsys.readouterr()
    assert json.loads(output.out)["plan_acc"] == 50
    assert "1 of 2 steps have no usable reply" in output.err
    assert "step 2 of a" in output.err


def test_each_step_continues_the_reference_with_all_tools_registered(trajectory):
    view = view_of(trajectory, 2)
    assert [step.call.name for step in view.path.steps] == ["clock", "forecast"]
    assert view.path.steps[1].observation.text == "rain"
    assert [tool.name for tool in view.registered] == ["forecast", "clock"]
    assert view.opening == "Rain in Oslo?"


# UMI


def plans(following="caller"):
    return {"text": f"So it is. Next: {following}."}


TRIO = (
    *(plans(), RIGHT[0], plans("conclusion"), {"text": "It will rain in Oslo."}),
    *(plans(), RIGHT[2], plans(), RIGHT[3], plans("conclusion"), {"text": "It will rain in Oslo."}),
    plans("give up"),
)


def test_umi_that_follows_the_reference_scores_a_hundred(data, script, capsys):
    record = printed(capsys, "--data", data, "--mode", "umi", "--model", script(*TRIO))
    assert [record[metric] for metric in METRICS] == [100, 100, 0, 100, 100]


def test_umi_scores_the_planners_decision_and_the_callers_call(data, script, capsys):
    lines = (plans(), call_line("radar"), plans(), call_line("clock"), *TRIO[4:])
    record = printed(capsys, "--data", data, "--mode", "umi", "--model", script(*lines))
    assert record["plan_acc"] == pytest.approx(
        100 * 5 / 6, abs=1e-3
    )  # one call instead of an answer
    assert record["action_em"] == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert record["hallucination"] == pytest.approx(100 / 6, abs=1e-3)
    assert record["rouge_l"] == 50


def test_the_planners_decision_counts_without_usable_replies_of_other_roles(data, script, capsys):
    lines = (plans(), {"text": "Hm."}, {"text": "Hm."}, plans("conclusion"), {"text": ""})
    assert (
        bench("--data", data, "--limit", 2, "--json", "--mode", "umi", "--model", script(*lines))
        == 0
    )
    output = capsys.readouterr()
    record = json.loads(output.out)
    assert [record[metric] for metric in METRICS] == [100, 0, 0, 0, 0]
    assert "1 of 2 steps have no usable reply" in output.err


@pytest.fixture
def stranger(home, monkeypatch):
    """A remote model that always calls `rm_rf`, an unknown tool."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    with hostile_server() as server:
        address = f'[models."openai/stranger"]\nbase_url = "{server.openai}"\nnative_tools = true\n'
        user_paths().settings_file.parent.mkdir(parents=True)
        user_paths().settings_file.write_text(address, encoding="utf-8")
        yield "openai/stranger"


@pytest.mark.parametrize("mode", ["single", "umi"])
def test_an_unknown_tool_called_twice_counts_as_written(data, script, stranger, mode, capsys):
    roles = () if mode == "single" else ("--role", f"caller={stranger}")
    model = script(plans()) if roles else stranger
    assert (
        bench("--data", data, "--limit", 1, "--json", "--mode", mode, "--model", model, *roles) == 0
    )
    record = json.loads(capsys.readouterr().out)
    assert [record[metric] for metric in METRICS] == [100, 0, 100, 0, None]


def test_roles_can_have_different_models(data, script, tmp_path, capsys):
    planner = f"script:{written(tmp_path / 'planner.jsonl', plans(), plans('conclusion'))}"
    model = script(RIGHT[0], {"text": "It will rain in Oslo."})
    assert (
        bench("--data", data, "--model", model, "--role", f"planner={planner}", "--limit", 2) == 0
    )
    table = capsys.readouterr().out
    assert "100 to 100" in table
    assert f"planner {planner}, mode umi" in table


# Splits


def test_splits_depend_only_on_ids_and_do_not_overlap(tmp_path, capsys):
    ids = [f"t{number}" for number in range(300)]
    held_ids = [task_id for task_id in ids if is_held(task_id)]
    assert 60 < len(held_ids) < 140
    assert [
        is_held(name) for name in ("live-0", "live-1", "multi_turn_base_0", "multi_turn_base_2")
    ] == [0, 1, 0, 1]
    file = written(tmp_path / "many.jsonl", *map(task, ids))
    counts = {
        split: printed(capsys, "--data", file, "--model", "gold", "--split", split)["n"]
        for split in SPLITS
    }
    assert counts == {"held": 2 * len(held_ids), "rest": 600 - 2 * len(held_ids), "all": 600}


def test_the_limit_counts_steps_of_the_split(tmp_path, capsys):
    names = [name for name in map(str, range(30)) if is_held(name)]
    file = written(tmp_path / "many.jsonl", *(task(str(name)) for name in range(30)))
    assert bench("--data", file, "--model", "gold", "--split", "held", "--limit", 3) == 0
    assert f"3 steps of {min(2, len(names))} tasks" in capsys.readouterr().out


def test_an_empty_split_is_refused(tmp_path):
    name = next(name for name in map(str, range(30)) if not is_held(name))
    with pytest.raises(UsageError, match="split 'held'"):
        bench(
            "--data",
            written(tmp_path / "one.jsonl", task(name)),
            "--model",
            "gold",
            "--split",
            "held",
        )


def test_stored_answers_are_reused_for_every_split(tmp_path, script, capsys):
    names = sorted("abcdefgh", key=is_held)
    assert len({is_held(name) for name in names}) == 2
    file, out = written(tmp_path / "some.jsonl", *map(task, names)), tmp_path / "answers.jsonl"
    right, wrong = RIGHT[:2], (call_line("clock"), call_line("clock"))
    model = script(*(line for name in names for line in (right if is_held(name) else wrong)))
    total = printed(capsys, "--data", file, "--model", model, "--out", out)
    script()
    held_split = printed(capsys, "--data", file, "--model", model, "--out", out, "--split", "held")
    assert (held_split["plan_acc"], held_split["n"]) == (100, 2 * sum(map(is_held, names)))
    assert total["plan_acc"] < 100


# Resuming


def test_interrupted_run_resumes_with_the_missing_steps(data, script, tmp_path, capsys):
    out = tmp_path / "answers.jsonl"
    model = script(*RIGHT[:4])
    with pytest.raises(ModelBroken, match="another one was requested"):
        bench("--data", data, "--model", model, "--out", out)
    assert f"4 of 6 steps are kept in {out}" in capsys.readouterr().err
    script(*RIGHT[4:])  # a repeated step would get the reply of another
    record = printed(capsys, "--data", data, "--model", model, "--out", out)
    assert [record[metric] for metric in METRICS] == [100, 100, 0, 100, 100]
    script()
    assert printed(capsys, "--data", data, "--model", model, "--out", out) == record


def test_a_truncated_line_is_measured_again(data, script, tmp_path, capsys):
    out = tmp_path / "answers.jsonl"
    model = script(*RIGHT)
    record = printed(capsys, "--data", data, "--model", model, "--out", out)
    out.write_bytes(out.read_bytes()[:-20])
    script(RIGHT[-1])
    assert printed(capsys, "--data", data, "--model", model, "--out", out) == record
    assert len(out.read_text(encoding="utf-8").splitlines()) == 7


def test_an_interrupted_run_is_kept_until_it_is_complete_by_default(data, script, home, capsys):
    model = script(*RIGHT[:2])
    with pytest.raises(ModelBroken):
        bench("--data", data, "--model", model)
    assert len(list((home / "data" / "bench").iterdir())) == 1
    script(*RIGHT[2:])
    assert printed(capsys, "--data", data, "--model", model)["plan_acc"] == 100
    assert list((home / "data" / "bench").iterdir()) == []


def test_results_of_other_data_are_refused_and_kept(data, script, tmp_path):
    out = tmp_path / "answers.jsonl"
    model = script(*RIGHT)
    bench("--data", data, "--model", model, "--out", out)
    content = out.read_bytes()
    written(data, TASKS[0])
    with pytest.raises(UsageError, match="has results with data"):
        bench("--data", data, "--model", model, "--out", out)
    assert out.read_bytes() == content


def test_results_of_another_mode_or_other_roles_are_refused(data, script, tmp_path):
    out, model = tmp_path / "answers.jsonl", script(*RIGHT)
    bench("--data", data, "--model", model, "--out", out)
    with pytest.raises(UsageError, match="has results with mode"):
        bench("--data", data, "--model", model, "--mode", "umi", "--out", out)
    out.unlink()
    script(*TRIO)
    bench("--data", data, "--model", model, "--mode", "umi", "--out", out)
    with pytest.raises(UsageError, match="has results with roles"):
        bench(
            "--data",
            data,
            "--model",
            model,
            "--mode",
            "umi",
            "--role",
            "caller=embedded",
            "--out",
            out,
        )


def test_damaged_result_is_reported_with_its_line(data, script, tmp_path):
    out = tmp_path / "answers.jsonl"
    model = script(*RIGHT)
    bench("--data", data, "--model", model, "--out", out)
    head = out.read_text(encoding="utf-8").splitlines()[0]
    out.write_text(f'{head}\n{{"id": "a"}}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"answers\.jsonl:2: "):
        bench("--data", data, "--model", model, "--out", out)


# Bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "`id`: it is empty"),
        ({"id": "a"}, "also has the ID 'a'"),
        ({"tools": None}, "`tools`: "),
        ({"tools": [FORECAST, FORECAST]}, "occurs twice"),
        ({"tools": [FORECAST, CLOCK, {**CLOCK, "name": "finish"}]}, "'finish' is not a tool name"),
        ({"tools": [FORECAST, {**CLOCK, "parameters": []}]}, "`tools.2.parameters`: "),
        ({"query": " "}, "`query`: it is empty"),
        ({"steps": []}, "has no steps"),
        ({"steps": [end(), call(city="Oslo")]}, "continues after step 1"),
        ({"steps": [end("stop")]}, "`steps.1.decision`: "),
        ({"steps": [call("radar"), end()]}, "step 1 calls 'radar', which is not among its tools"),
        ({"steps": [{**call(), "arguments": "{}"}, end()]}, "`steps.1.arguments`: "),
        (
            {"steps": [{**end(), "tool": "clock"}]},
            "`steps.1`: it ends the trajectory (finish) and calls a tool",
        ),
    ],
)
def test_invalid_line_is_reported_with_its_number_and_error(tmp_path, fields, message):
    file = written(tmp_path / "data.jsonl", task("a"), {**task("b"), **fields})
    with pytest.raises(UsageError) as refused:
        bench("--data", file, "--model", "gold")
    assert f"{file}:2" in refused.value.message
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "gold"), "needs --data and --model"),
        (
            ("--data", "DATA", "--model", "embedded", "--mode", "quartet"),
            "mode 'quartet' cannot be measured",
        ),
        (("--data", "DATA", "--model", "gold", "--out", "x.jsonl"), "--model gold asks no model"),
        (("--data", "DATA", "--model", "gold", "--limit", "0"), "not a number"),
        (("--data", "DATA", "--model", "gold", "--role", "cook=embedded"), "is not ROLE=MODEL"),
        (
            ("--data", "DATA", "--model", "gold", "--mode", "single", "--role", "caller=x"),
            "--model gold asks no model",
        ),
        (
            ("--data", "DATA", "--model", "x", "--mode", "single", "--role", "caller=x"),
            "has no roles",
        ),
        (("--tokens",), "--tokens needs --data"),
        (("--tokens", "--data", "DATA", "--mode", "umi"), "--tokens counts both modes"),
        (("--tokens", "--data", "DATA", "--out", "x.jsonl"), "--tokens counts both modes"),
        (("--tokens", "--data", "DATA", "--model", "some/model"), "price of some/model is unknown"),
        (("--convert", "webshop", "a", "b"), "'webshop' cannot be converted"),
        (("--convert", "generated", "many", "b"), "many is not a number of tasks"),
        (("--convert", "generated", "0", "b"), "0 is not a number of tasks"),
    ],
)
def test_invalid_combination_of_options_is_refused(data, arguments, message):
    with pytest.raises(UsageError, match=message):
        bench(*(data if argument == "DATA" else argument for argument in arguments))


# Converting


def test_recorded_runs_with_a_catalog_become_trajectories(catalog, replay, tmp_path, capsys):
    out = tmp_path / "live.jsonl"
    assert bench("--convert", "livemcp", replay, out, "--documents", catalog, "--pool", 4) == 0
    first, second = read_trajectories(out)
    assert capsys.readouterr().out == f"{out}: 7 steps of 2 tasks.\n"
    assert [step.decision for step in first.steps] == ["call", "call", "call", "finish"]
    assert first.steps[0].arguments == {"path": "a"}
    assert {"read_file", "count_text"} < first.names
    assert (len(first.tools), len(second.tools)) == (4, 4)
    assert first.final == "All is done."


def test_conversations_become_trajectories_with_named_parameters(tmp_path, capsys):
    folder = tmp_path / "multi_turn_func_doc"
    folder.mkdir()
    properties = {"file": {"type": "string"}, "size": {"type": "float"}}
    schema = {
        "name": "sort",
        "description": "Sorts.",
        "parameters": {"type": "dict", "properties": properties},
    }
    written(folder / "files.json", schema)
    steps = [[{"tool": "sort", "call": "sort('a', size=2)", "observation": "{}"}], []]
    runs = written(
        tmp_path / "r.jsonl",
        {"id": "m", "turns": ["Sort.", "Thanks."], "tools": ["sort"], "steps": steps},
    )
    assert bench("--convert", "bfcl", runs, tmp_path / "out.jsonl") == 0
    (converted,) = read_trajectories(tmp_path / "out.jsonl")
    assert converted.query == "Sort.\nThanks."
    assert converted.steps[0].arguments == {"file": "a", "size": 2}
    assert converted.tools[0].parameters["properties"]["size"] == {"type": "number"}
    assert converted.tools[0].parameters["type"] == "object"
    assert printed(capsys, "--data", tmp_path / "out.jsonl", "--model", "gold")["rouge_l"] == 100


def test_questions_with_one_call_become_trajectories_with_further_tools(tmp_path):
    schema = {"type": "dict", "properties": {"n": {"type": "float"}, "unit": {"type": "any"}}}
    tools = [
        {"name": name, "description": f"Does {name}.", "parameters": schema}
        for name in ("halve", "twice", "add")
    ]
    rows = [
        {
            "id": f"one-{at}",
            "question": [[{"role": "user", "content": f"Please {tool['name']} 4"}]],
            "function": [tool],
        }
        for at, tool in enumerate(tools)
    ]
    runs = tmp_path / "simple.jsonl"
    runs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "possible_answer").mkdir()
    truth = [
        {
            "id": row["id"],
            "ground_truth": [{row["function"][0]["name"]: {"n": [4, 4.0], "unit": ["", "m"]}}],
        }
        for row in rows
    ]
    truth[1]["ground_truth"] *= 2  # questions with two calls are skipped
    (tmp_path / "possible_answer" / runs.name).write_text(
        "".join(f"{json.dumps(row)}\n" for row in truth)
    )
    assert bench("--convert", "bfcl", runs, tmp_path / "out.jsonl", "--pool", 2) == 0
    first, last = read_trajectories(tmp_path / "out.jsonl")
    assert (first.query, last.query) == ("Please halve 4", "Please add 4")
    assert [(step.tool, step.arguments) for step in first.steps] == [("halve", {"n": 4})]
    assert (len(first.tools), len(last.tools)) == (2, 2)
    assert first.tools[0].parameters["properties"] == {
        "n": {"type": "number"},
        "unit": {"type": "string"},
    }
    assert (
        bench("--convert", "bfcl", runs, tmp_path / "more.jsonl", "--pool", 20) == 0
    )  # more than available
    runs.write_text('{"id": "lost", "function": []}\n')
    with pytest.raises(UsageError, match=r"simple\.jsonl:1 is not a question with an answer"):
        bench("--convert", "bfcl", runs, tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_tool_schemas_become_tasks_without_example_values_in_the_schemas(tmp_path):
    text = 'This is the subfunction for tool "maps", you can use this tool.The description of this function is: "{}"'
    parameters = {
        "type": "object",
        "properties": {"cityName": {"type": "string", "example_value": "Oslo"}},
    }
    parameters["required"] = ["cityName"]
    about = {
        "name": "height_for_maps",
        "description": text.format("Returns the height of a city."),
        "category": "Maps",
    }
    vague = {**about, "name": "health_for_maps", "description": text.format("Health")}
    other = {
        **about,
        "name": "area_for_maps",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }
    tools = (
        {**about, "api": "cityHeight", "parameters": parameters},
        {**vague, "parameters": parameters},
        other,
    )
    catalog = tmp_path / "catalog.jsonl"
    catalog.write_text("".join(f"{json.dumps(tool)}\n" for tool in tools))
    assert bench("--convert", "toolbench", catalog, tmp_path / "out.jsonl", "--pool", 40) == 0
    (converted,) = read_trajectories(tmp_path / "out.jsonl")
    assert [(step.tool, step.arguments) for step in converted.steps] == [
        ("height_for_maps", {"cityName": "Oslo"})
    ]
    assert "Oslo" in converted.query
    assert "city height" in converted.query or "Returns the height of a city" in converted.query
    assert "height_for_maps" in converted.names
    assert "area_for_maps" in converted.names
    assert "Oslo" not in repr(converted.tools)
    assert "subfunction" not in repr(converted.tools)


def test_generated_tasks_held_back_from_training_become_trajectories(
    tmp_path, capsys, embedded_model
):
    out = tmp_path / "held.jsonl"
    assert bench("--convert", "generated", "6", out) == 0
    tasks = read_trajectories(out)
    steps = [step for trajectory in tasks for step in trajectory.steps if step.decision == "call"]
    assert (
        capsys.readouterr().out
        == f"{out}: {len(steps) + len(tasks)} steps of {len(tasks)} tasks.\n"
    )
    assert {"read_file", "run_command", "calculate"} < tasks[0].names
    assert len(steps) > 3
    assert all(step.thought and step.observation for step in steps)
    assert printed(capsys, "--data", out, "--model", "gold")["argument_f1"] == 100


def test_local_models_see_tools_as_in_the_shell(tmp_path):
    (reference,) = read_trajectories(written(tmp_path / "one.jsonl", task("a")))
    view = view_of(reference, 0, direct=True)
    assert view.presentation.name == "direct"
    assert "forecast" not in view.opening
    assert {"forecast", "clock"} < {tool.name for tool in view.presentation.array(view.registered)}


@pytest.mark.parametrize("text", ["sort(open('a'))", "sort(", "sort('a', 'b')", "sort"])
def test_an_invalid_recorded_call_is_reported_with_its_line(tmp_path, text):
    folder = tmp_path / "multi_turn_func_doc"
    folder.mkdir()
    written(
        folder / "files.json",
        {"name": "sort", "description": "", "parameters": {"properties": {"file": {}}}},
    )
    step = {"tool": "sort", "call": text, "observation": ""}
    runs = written(
        tmp_path / "r.jsonl", {"id": "m", "turns": ["Sort."], "tools": ["sort"], "steps": [[step]]}
    )
    with pytest.raises(UsageError, match=r"r\.jsonl:1"):
        bench("--convert", "bfcl", runs, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_an_existing_file_is_not_overwritten(catalog, replay, tmp_path):
    out = written(tmp_path / "live.jsonl", {"mine": True})
    with pytest.raises(UsageError, match="exists"):
        bench("--convert", "livemcp", replay, out, "--documents", catalog)
    assert out.read_text(encoding="utf-8") == '{"mine": true}\n'
