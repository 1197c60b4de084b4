"""`ecoshell bench gateway`: every figure is measured, with the direct connection as the baseline."""

import json

import pytest

from ecoshell.cli import main


def test_the_gateway_is_compared_with_the_direct_connection(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "gateway", "--requests", "20", "--streams", "100", "--json"]) == 0
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {"latency", "added_latency", "throughput", "throughput_streamed"} <= set(rows)
    assert all(row["value"] > 0 for name, row in rows.items() if name != "added_latency")
    assert rows["latency"]["baseline"] > 0
    assert rows["throughput"]["baseline"] > 0
    if "memory_after_100" in rows:
        assert rows["memory_after_100"]["ratio"] < 1.5
