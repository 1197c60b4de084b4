"""The intervals of quotes hold 85 to 95 % of bills that they have not seen."""

import json
from random import Random

import pytest

from ecoshell.cli.parser import run
from ecoshell.planning.btp.evidence import Figure
from ecoshell.planning.quote import Part, quote
from ecoshell_bench.quote import generated, measured


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_intervals_hold_about_nine_tenths_of_generated_bills(seed):
    figures = measured(*generated(400, Random(seed)))
    assert 0.85 <= figures["price"]["within"] <= 0.95
    assert 0.85 <= figures["time"]["within"] <= 0.95


def test_command_prints_the_calibration(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path))
    assert run(["bench", "quote", "--runs", "20", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["interval"] == 0.9
    assert record["generated"]["price"]["runs"] == 20


def test_quote_adds_prices_and_working_times_and_takes_the_longest_path():
    exact = Figure(1000, 2.0, 0.0)
    parts = [Part("a", exact, exact), Part("b", exact, exact), Part("c", exact, exact, ("a",))]
    costs = quote(parts)
    assert costs.price.expected == pytest.approx(6.0, rel=0.02)
    assert costs.seconds.expected == pytest.approx(4.0, rel=0.05)
    assert costs.working_seconds.expected == pytest.approx(6.0, rel=0.02)
    assert costs.price.low < costs.price.expected < costs.price.high
    assert costs == quote(parts)


@pytest.mark.parametrize("count", [0, 1, 5, 50])
def test_less_experience_means_a_wider_interval(count):
    def width(samples):
        interval = quote([Part("a", Figure(samples, 1.0, 0.1), None)]).price
        return interval.high - interval.low

    assert width(count) > width(2 * count + 100)


def test_unknown_costs_have_no_interval():
    costs = quote([Part("a", None, Figure(3, 1.0)), Part("b", Figure(), None)])
    assert (costs.price, costs.seconds) == (None, None)
    free = quote([Part("a", Figure(), Figure(3, 1.0))])
    assert (free.price.low, free.price.high) == (0.0, 0.0)
