from pathlib import Path

import pytest
from command_play import Command, commands


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one command after another in a home and in folders of the test's own."""
    return commands(tmp_path, monkeypatch, capsys)
