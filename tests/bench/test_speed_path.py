"""`bench speed --path`: the counts of one question with one tool call."""

from pathlib import Path

import pytest
from bench_play import bench, printed

import ecoshell
from ecoshell_bench.speed.path import CallCounter


def test_path_counts_files_functions_and_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "not counted")
    record = printed(capsys, "speed", "--path")
    rows = record["rows"]
    # The path must not grow. A busy machine writes the events in more batches, which adds up to 300 calls.
    assert 5 < record["files"] <= 86
    assert record["files"] < record["functions"] <= 530
    assert record["functions"] < record["calls"] <= 4_500
    assert record["files"] == len(rows)
    assert record["functions"] == sum(row["functions"] for row in rows)
    for part in (rows, record["by_function"]):
        assert record["calls"] == sum(row["calls"] for row in part)
    assert all((Path(ecoshell.__file__).parent / row["file"]).is_file() for row in rows)
    assert {"agent/shell.py", "models/script.py"} <= {row["file"] for row in rows}


def test_path_is_printed_as_a_table_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("speed", "--path") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["files", "functions", "calls"]


def test_counter_counts_named_functions_of_the_package_while_active(tmp_path: Path) -> None:
    code = "def f():\n    return [g() for _ in range(3)]\ndef g():\n    class C: ...\n    return (lambda: C)()\n"
    (tmp_path / "package").mkdir()
    namespace: dict[str, object] = {}
    counter = CallCounter(tmp_path / "package")
    for folder in ("package", "elsewhere"):
        exec(compile(code, str(tmp_path / folder / "m.py"), "exec"), namespace)
        f = namespace["f"]
        assert callable(f)
        with counter.counting():
            f()
        f()
    assert counter.record() == {
        "files": 1,
        "functions": 2,
        "calls": 4,
        "rows": [{"file": "m.py", "functions": 2, "calls": 4}],
        "by_function": [
            {"file": "m.py", "function": "g", "calls": 3},
            {"file": "m.py", "function": "f", "calls": 1},
        ],
    }
