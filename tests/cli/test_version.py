import subprocess
import sys
from pathlib import Path

import pytest

import ecoshell
from ecoshell import __version__
from ecoshell.cli import main

LOADED = """
import sys
before = set(sys.modules)
from ecoshell.cli import main
main(["--version"])
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_printed(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    assert capsys.readouterr().out == f"ecoshell {__version__}\n"


def test_version_loads_only_its_module() -> None:
    here = Path(ecoshell.__file__).parents[
        1
    ]  # without the site's packages it is found where it is started
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED], capture_output=True, text=True, check=True, cwd=here
    )
    assert done.stdout.splitlines()[1].split() == ["ecoshell", "ecoshell.cli"]


def test_package_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ecoshell", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"ecoshell {__version__}\n")
