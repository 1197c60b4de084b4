from pathlib import Path
from typing import Any

import pytest
from bench_play import Bench, written

NAMES = (
    "read_file",
    "list_files",
    "count_text",
    "fetch_url",
    "get_weather",
    "send_mail",
    "play_music",
    "book_flight",
)


def step(tool: str, server: str = "home", **changes: Any) -> dict[str, Any]:
    record = {
        "thought": f"I need {tool}.",
        "server": server,
        "tool": tool,
        "args": '{"path": "a"}',
        "observation": "done",
    }
    return record | changes


def recorded(query: str, *steps: dict[str, Any], success: bool = True) -> dict[str, Any]:
    return {
        "id": query,
        "query": query,
        "success": success,
        "steps": list(steps),
        "final": "All is done.",
    }


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Eight tools of one server."""
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where. " * 20}},
    }
    records = [
        {
            "name": name,
            "description": f"Does {name.replace('_', ' ')}. " * (10 + place),
            "parameters": schema,
            "server": "home",
        }
        for place, name in enumerate(NAMES)
    ]
    return written(tmp_path / "catalog.jsonl", *records)


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    """Two successful runs and a failed one."""
    runs = [
        recorded("count the text of a", step("read_file"), step("count_text"), step("count_text")),
        recorded("weather and mail", step("get_weather"), step("send_mail")),
        recorded("never", step("play_music"), success=False),
    ]
    return written(tmp_path / "replay.jsonl", *runs)


@pytest.fixture
def play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return Bench(tmp_path, capsys)
