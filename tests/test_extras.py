"""Commands whose extra is not installed."""

import sys

import pytest

from ecoshell.cli import main


@pytest.mark.parametrize(
    ("library", "arguments", "extra"),
    [
        ("acp", ["acp"], "acp"),
        ("argcomplete", ["completion", "bash"], "completion"),
        ("uvicorn", ["gateway", "--port", "0"], "gateway"),
        ("uvicorn", ["run", "--", "true"], "gateway"),
    ],
)
def test_the_error_without_a_library_names_the_install_command(
    library: str,
    arguments: list[str],
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(arguments) != 0
    errors = capsys.readouterr().err
    assert "not installed" in errors
    assert f"ecoshell[{extra}]" in errors
