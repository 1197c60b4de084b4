"""Tokens of UMI compared with one model, counted on recorded turns without a model."""

import asyncio
import json
import os
import re
from decimal import Decimal
from functools import partial
from pathlib import Path

import bench_play
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecoshell.budget import Price, Rates
from ecoshell.messages import Message, ToolSchema, Usage
from ecoshell.models import Request, estimate
from ecoshell.modes.base import CALLER, PLANNER, SINGLE, SUMMARIZER
from ecoshell.paths import user_paths
from ecoshell_bench.umi.reference import convert
from ecoshell_bench.umi.tokens import RecordedModel, measures, replay, spending
from ecoshell_train.trajectories import ReferenceStep, Trajectory

bench = partial(bench_play.bench, "umi", "--tokens")
_SHARED = Path(__file__).parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("ECOSHELL_DATA", _SHARED))
PRICE = Price(Rates(*map(Decimal, ("1", "0.1", "1", "4", "4"))))
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Where. " * 40}}}
TOOLS = tuple(
    ToolSchema(name, f"Reports the {name}. " * 10, CITY) for name in ("weather", "time", "traffic")
)


def call(city, observation="It rains."):
    return ReferenceStep("I look it up.", "call", "weather", {"city": city}, observation)


def end(decision="finish"):
    return ReferenceStep("That is all.", decision, "", {}, "")


def trajectory(*steps, name="a"):
    return Trajectory(name, TOOLS, "Where does it rain?", steps, "In Oslo.")


TURN = trajectory(call("Oslo"), call("Bergen", "It snows. " * 30), end())


TOKENS = estimate


def turns(*trajectories, form="native"):
    return asyncio.run(replay(trajectories, TOKENS, form, lambda: None))


def part_of(model, role, number):
    """The text and the call of a role in a step."""
    model.number = number
    reply = reply_of(model, Request((Message("user", "?"),), role=role))
    return reply.text, reply.call


def reply_of(model, request):
    async def ask():
        (reply,) = [reply async for reply in model.stream(request)]
        return reply

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "data.jsonl"
    records = [TURN.as_record(), trajectory(call("Rome"), end("give_up"), name="b").as_record()]
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return file


# The model that repeats the reference


def test_each_role_repeats_its_part_of_the_reference():
    model = RecordedModel(TURN, TOKENS, "native")
    assert part_of(model, PLANNER, 0) == ("I look it up. Next: caller.", None)
    assert part_of(model, CALLER, 0)[1].arguments == {"city": "Oslo"}
    assert part_of(model, SINGLE, 0)[0] == "I look it up."
    assert part_of(model, PLANNER, 2) == ("That is all. Next: conclusion.", None)
    assert part_of(model, SUMMARIZER, 2) == ("In Oslo.", None)
    assert part_of(model, SINGLE, 2)[1].arguments == {"answer": "In Oslo."}
    hopeless = RecordedModel(trajectory(end("give_up")), TOKENS, "native")
    assert part_of(hopeless, PLANNER, 0) == ("That is all. Next: give up.", None)
    assert part_of(hopeless, SINGLE, 0)[1].arguments == {"answer": "That is all.", "give_up": True}


TEXTS = st.lists(st.text("ab ", max_size=6), min_size=1, max_size=4)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_the_cached_part_is_the_longest_prefix_sent_before(prompts):
    model, sent = RecordedModel(trajectory(end()), len, "native"), []
    for texts in prompts:
        usage = reply_of(model, Request(tuple(Message("user", text) for text in texts))).usage
        is_sent = [
            any(earlier[: n + 1] == texts[: n + 1] for earlier in sent) for n in range(len(texts))
        ]
        assert usage.cached <= usage.input
        assert (usage.cached == usage.input) == all(is_sent)
        assert usage.cached >= sum(
            len(text) for text, is_cached in zip(texts, is_sent, strict=True) if is_cached
        )
        assert bool(usage.cached) == bool(sent)  # all prompts start with the same speaker
        sent.append(texts)


# Turns


@pytest.mark.parametrize("form", ["native", "text"])
def test_umi_makes_two_calls_per_step_and_few_of_its_tokens_are_fresh(form):
    (turn,) = turns(TURN, form=form)
    assert (len(turn["single"]), len(turn["umi"])) == (3, 6)
    single, umi = (sum(turn[mode], Usage()) for mode in ("single", "umi"))
    assert umi.input > 1.9 * single.input
    schemas = sum(TOKENS(tool.as_text()) for tool in TOOLS)
    assert single.input - single.cached > schemas
    assert umi.input - umi.cached < single.input - single.cached + schemas


def test_roles_of_one_model_share_cached_prefixes():
    (turn,) = turns(TURN)
    planner, caller, *_, last, summarizer = turn["umi"]
    assert planner.cached == 0
    assert caller.cached > 0.8 * planner.input
    assert summarizer.cached > 0.8 * last.input


def test_a_turn_that_gives_up_ends_with_the_planner():
    (turn,) = turns(trajectory(call("Oslo"), end("give_up")))
    assert len(turn["umi"]) == 3


# Figures


def test_the_interval_contains_the_ratio_of_the_means():
    def usages(tokens, calls):
        return (Usage(input=tokens, output=10, cached=tokens // 2),) * calls

    pairs = [{"single": usages(100 * n, 1), "umi": usages(100 * n, n)} for n in (1, 2, 3)]
    figures = spending(pairs, measures(PRICE))
    assert [figures["calls"][mode]["mean"] for mode in ("single", "umi")] == [1, 2]
    assert figures["input"]["ratio"] == pytest.approx(1400 / 600, abs=1e-4)
    assert figures["raw"]["single"]["mean"] == 210
    assert [figures["fresh"][mode]["median"] for mode in ("single", "umi")] == [110, 220]
    assert figures["price"]["single"]["mean"] == pytest.approx(
        (100 + 0.1 * 100 + 40) / 1_000_000, abs=1e-8
    )
    low, high = figures["input"]["interval"]
    assert 1 <= low < figures["input"]["ratio"] < high <= 3
    assert figures == spending(pairs, measures(PRICE))


def test_the_ratio_to_zero_is_unknown():
    free = {"single": (Usage(input=1),), "umi": (Usage(input=2),)}
    assert spending([free], measures(PRICE))["output"] == {
        "single": {"mean": 0, "median": 0},
        "umi": {"mean": 0, "median": 0},
        "ratio": None,
        "interval": None,
    }


# The command


def test_figures_are_printed_as_json_and_as_a_table(data, capsys):
    assert bench("--data", data, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert list(record) == ["n", "native", "text", "tokenizer", "prices"]
    assert record["n"] == 2
    assert list(record["native"]) == ["calls", "input", "cached", "output", "raw", "fresh", "price"]
    assert list(record["text"]["fresh"]) == ["single", "umi", "ratio", "interval"]
    assert record["native"]["calls"]["umi"] == {"mean": 4.5, "median": 4.5}
    assert record["prices"]["cached_input"] < record["prices"]["input"]
    assert bench("--data", data) == 0
    table = capsys.readouterr().out
    assert "single.mean" in table
    assert "without cached prompt prefixes" in table
    assert re.search(r"^n +2$", table, re.M)


def test_the_limit_counts_turns_and_prices_follow_the_model(data, capsys):
    user_paths().settings_file.parent.mkdir(parents=True)
    priced = '[models."my/own".price]\ninput = 10\ncached_input = 0\noutput = 0\n'
    user_paths().settings_file.write_text(priced, encoding="utf-8")
    assert bench("--data", data, "--limit", 1, "--json", "--model", "my/own") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["n"] == 1
    assert record["prices"] == {"model": "my/own", "input": 10, "cached_input": 0, "output": 0}
    native = record["native"]
    fresh_tokens = native["input"]["single"]["mean"] - native["cached"]["single"]["mean"]
    assert native["price"]["single"]["mean"] == pytest.approx(fresh_tokens * 10 / 1_000_000)


# Targets


@pytest.mark.skipif(
    not (DATA / "livemcp").is_dir(), reason="no recorded runs: set ECOSHELL_DATA to their folder"
)
@pytest.mark.parametrize("form", ["native", "text"])
@pytest.mark.parametrize("kind", ["livemcp", "bfcl"])
def test_umi_needs_at_most_a_quarter_more_fresh_tokens_on_recorded_runs(kind, form):
    recorded = convert(kind, DATA / kind / "replay.jsonl", None, 20)[:24]
    fresh = spending(turns(*recorded, form=form), measures(PRICE))["fresh"]
    assert fresh["interval"][1] <= 1.25
