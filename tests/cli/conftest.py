from pathlib import Path

import pytest
from command_play import Command, commands


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run commands in a temporary home and workspace."""
    return commands(tmp_path, monkeypatch, capsys)
