from ecoshell_bench.reserve import measure_reserve_settle


def test_the_benchmark_says_what_ten_thousand_rows_cost_beside_none() -> None:
    measured = measure_reserve_settle(rows=20, repeat=5)
    assert (measured.what, measured.unit) == ("reserve_settle", "s")
    assert 0 < measured.value < 1
    assert measured.ratio == measured.value / measured.baseline
