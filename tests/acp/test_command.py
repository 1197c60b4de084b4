"""`ecoshell acp` without its extra, and how much the plugin imports."""

import subprocess
import sys

import pytest

import ecoshell_acp.command
from ecoshell.cli import main


def test_the_error_without_the_extra_names_the_install_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(ecoshell_acp.command, "find_spec", lambda name: None)
    assert main(["acp"]) == 2
    assert "pip install 'ecoshell[acp]'" in capsys.readouterr().err


def test_the_protocol_is_imported_only_when_serving():
    code = "import sys, ecoshell_acp.plugin as p; p.cli_commands(); print({'acp', 'pydantic'} & {*sys.modules})"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )
