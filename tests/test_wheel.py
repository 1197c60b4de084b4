"""The wheel: its list of members, and that it works outside the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ecoshell import __version__

ROOT = Path(__file__).parent.parent
DATA = (".csv", ".json", ".jsonl", ".log", ".md", ".sql", ".tcss", ".toml", ".txt")
PACKAGED = (".py", ".gguf", *DATA)
TYPED = "ecoshell/py.typed"
PLUGINS = (
    "ecoshell_acp",
    "ecoshell_bench",
    "ecoshell_data",
    "ecoshell_gateway",
    "ecoshell_git",
    "ecoshell_team",
    "ecoshell_train",
    "ecoshell_web",
)
STRAY = (
    ".env",
    "ecoshell/.env",
    "plugins/ecoshell_bench/.env",
    "ecoshell/modes/.env",
    "themes/.env",
    "ecoshell/__pycache__/old.pyc",
)
"""Files that may exist in a checkout and that git ignores."""
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
READ_EVERYTHING = """
import sys
from importlib.resources import files
from pathlib import Path
from ecoshell.modes.requests import prompt
from ecoshell.paths import user_paths
from ecoshell.tui.themes import load_themes
import ecoshell.modes.umi

themes = load_themes(user_paths())
assert {theme.name for theme in themes.all} >= {"dark", "light"}, themes
assert not themes.complaints, themes.complaints
assert prompt("single") and prompt("conclude")
root = Path(str(files("ecoshell"))).parent
assert all((root / name).read_text(encoding="utf-8").strip() for name in sys.argv[1:])
print(root)
"""


@pytest.fixture(scope="module")
def sources():
    """The files of this checkout that git does not ignore."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in listed if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    """A wheel built without network from a copy of the sources with stray files."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in sources:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    for name in STRAY:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("SECRET=1\n")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (built,) = (copy / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(folder, *arguments):
    """Output of this interpreter with the unpacked wheel first on its path."""
    env = {**os.environ, "PYTHONPATH": str(folder), "ECOSHELL_HOME": str(folder / "home")}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout


def test_the_wheel_contains_exactly_the_package_plugins_data_and_themes(sources, wheel):
    package = packaged(sources) | {TYPED}
    themes = {
        f"ecoshell/_{name}"
        for name in sources
        if name.startswith("themes/") and name.endswith(".toml")
    }
    metadata = {f"ecoshell-{__version__}.dist-info/{name}" for name in METADATA}
    assert {"ecoshell/_themes/dark.toml", "ecoshell/_themes/light.toml"} <= themes
    assert {
        "ecoshell/plugins.py",
        "ecoshell_bench/plugin.py",
        "ecoshell_git/__init__.py",
    } <= package
    assert {Path(name).suffix for name in package} == {".typed", *PACKAGED}
    assert sorted(zipfile.ZipFile(wheel).namelist()) == sorted(package | themes | metadata)


def packaged(sources, suffixes=PACKAGED):
    """The modules or data of the program and its plugins, by their paths in the wheel."""
    names = {
        name.removeprefix("plugins/")
        for name in sources
        if name.startswith(("ecoshell/", "plugins/"))
    }
    members = {name for name in names if name.endswith(suffixes) and "/" in name}
    return {name for name in members if not name.endswith("/pyproject.toml")}  # examples in plugins


def test_the_source_distribution_contains_exactly_the_tracked_files(sources, wheel):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", "source"]
    subprocess.run(command, cwd=wheel.parent.parent, check=True, capture_output=True)
    (built,) = (wheel.parent.parent / "source").iterdir()
    with tarfile.open(built) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()} - {
            "PKG-INFO"
        }
    excluded = {
        name for name in sources if name.startswith((".ci/", ".pre-commit", ".editorconfig"))
    }
    assert names == {*sources} - excluded


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_can_be_built_as_a_separate_package(plugin, wheel, tmp_path):
    folder = wheel.parent.parent / "plugins" / plugin
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (own,) = map(zipfile.ZipFile, tmp_path.iterdir())
    both = zipfile.ZipFile(wheel)
    assert {name for name in own.namelist() if "dist-info" not in name} == {
        name for name in both.namelist() if name.startswith(f"{plugin}/")
    }
    (entry,) = (own.read(name) for name in own.namelist() if name.endswith("entry_points.txt"))
    of_both = both.read(f"ecoshell-{__version__}.dist-info/entry_points.txt").splitlines()
    assert {*entry.split(b"\n")} - {b""} <= {*of_both}


def test_the_wheel_prints_its_version_outside_the_checkout(unpacked):
    assert python(unpacked, "-m", "ecoshell", "--version") == f"ecoshell {__version__}\n"


def test_the_wheel_reads_its_themes_and_prompts_outside_the_checkout(unpacked, sources):
    assert python(unpacked, "-c", READ_EVERYTHING, *packaged(sources, DATA)).strip() == str(
        unpacked
    )


def test_the_wheel_has_the_benchmarks_outside_the_checkout(unpacked):
    where = "import ecoshell_bench.plugin, sys; sys.stdout.write(ecoshell_bench.plugin.__file__)"
    assert python(unpacked, "-c", where) == str(unpacked / "ecoshell_bench" / "plugin.py")
    assert "usage: ecoshell bench btp" in python(
        unpacked, "-m", "ecoshell", "bench", "btp", "--help"
    )
