"""README and docs show what the program accepts and prints."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ecoshell.agent.slash_commands import COMMANDS
from ecoshell.cli.parser import build_parser
from ecoshell.models.script import ScriptModel
from ecoshell.settings import read_settings
from ecoshell.tui.commands import CHAT_COMMANDS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FILE_NAME = re.compile(
    r"\b(?:agent|assembly|budget|cli|events|models|modes|planning|plugins|settings|tests|tools|tui)/[a-z_/]+\.py\b"
)
PAGES = (README, ROOT / "plugins" / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def command_lines() -> list[str]:
    lines = [
        line for page in PAGES for block in blocks(page, "console") for line in block.splitlines()
    ]
    commands = {
        line.removeprefix("$ ").partition("#")[0].partition(";")[0].strip() for line in lines
    }
    return sorted(command for command in commands if command.startswith("ecoshell "))


def words(text: str) -> list[str]:
    """Words without figures, which differ between machines."""
    return re.findall(r"[^\W\d_]{3,}", text)


def test_every_command_line_can_be_parsed():
    lines = command_lines()
    assert len(lines) > 30
    for line in lines:
        assert build_parser().parse_args(shlex.split(line)[1:]) is not None, line


def test_every_slash_command_exists():
    overview = (*COMMANDS.overview(), *CHAT_COMMANDS.overview())
    names = {name.split()[0].removeprefix("/") for name, _ in overview}
    pattern = re.compile(r"(?<!\S)/(\w+)")
    documented = {
        name for page in PAGES for block in blocks(page, "text") for name in pattern.findall(block)
    }
    assert documented
    assert documented <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_examples_are_valid(page: Path, tmp_path: Path):
    for example in blocks(page, "toml"):
        file = tmp_path / "config.toml"
        file.write_text(example, encoding="utf-8")
        loaded, problems = read_settings(file, {})
        assert problems == (), example
        assert loaded is not None


def test_the_example_script_can_be_loaded(tmp_path: Path):
    script = blocks(ROOT / "docs" / "python.md", "json")[1]
    file = tmp_path / "script.jsonl"
    file.write_text(script, encoding="utf-8")
    assert ScriptModel(file).traits.local


def test_the_example_program_runs(tmp_path: Path):
    (example,) = blocks(ROOT / "docs" / "python.md", "python")
    (tmp_path / "script.jsonl").write_text(
        '{"call": {"name": "stock", "arguments": {"item": "apples"}}}\n{"text": "There are 12."}\n',
        encoding="utf-8",
    )
    program = example.replace("openai/gpt-4o-mini", "script:script.jsonl")
    assert program != example
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert result.stdout == "There are 12. 0\n"
    assert (tmp_path / "state/data/ledger.sqlite").is_file()


def test_the_readme_quotes_current_output(tmp_path: Path):
    file = tmp_path / "README.md"
    subprocess.run([sys.executable, ROOT / "docs" / "readme.py", file], check=True, timeout=300)
    current = file.read_text(encoding="utf-8")
    assert "--budget 0.015; echo $?\n!! limit reached | " in current
    assert re.search(r"^3$", current, re.MULTILINE), "the cap does not end with status 3"
    quoted = README.read_text(encoding="utf-8").splitlines()
    assert [words(line) for line in quoted] == [words(line) for line in current.splitlines()], (
        "run `make docs`"
    )


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_every_linked_page_exists():
    links = [
        (page, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    ]
    missing = [
        f"{page.name}: {target}"
        for page, target in links
        if not target.startswith("reference/") and not (page.parent / target).exists()
    ]
    assert missing == []


def test_every_source_and_test_file_named_exists():
    pages = (*PAGES, ROOT / "CONTRIBUTING.md")
    names = {name for page in pages for name in FILE_NAME.findall(page.read_text(encoding="utf-8"))}
    missing = [
        name
        for name in names
        if not any((folder / name).exists() for folder in (ROOT, ROOT / "ecoshell"))
    ]
    assert len(names) > 40
    assert missing == []


def test_the_pictures_of_scripted_sessions_show_the_current_screen(tmp_path: Path):
    check_pictures(tmp_path, "approval.svg", "session.svg")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the local extra is not installed")
def test_the_pictures_of_the_embedded_model_show_the_current_screen(tmp_path: Path):
    check_pictures(tmp_path, "screen.svg", "narrow.svg", "branches.svg")


def test_every_picture_is_checked():
    assert sorted(picture.name for picture in (ROOT / "docs").glob("*.svg")) == [
        "approval.svg",
        "branches.svg",
        "narrow.svg",
        "screen.svg",
        "session.svg",
    ]


def test_the_reference_covers_every_part_of_the_program(tmp_path: Path):
    subprocess.run(
        [sys.executable, ROOT / "docs" / "reference.py", tmp_path], check=True, timeout=600
    )
    reference = {
        f"reference/{page.name}": page.read_text(encoding="utf-8") for page in tmp_path.iterdir()
    }
    assert "| `agent.max_steps` | `auto` |" in reference["reference/settings.md"]
    assert "`/budget [SCOPE] [AMOUNT\\|off]`" in reference["reference/slash-commands.md"]
    assert "#### `ecoshell mcp add`" in reference["reference/command-line.md"]
    assert "## turn_finished" in reference["reference/events.md"]
    assert "def cli_commands(" in reference["reference/hooks.md"]
    assert "@hookimpl" in reference["reference/plugins.md"]
    pages = {
        page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")
    } | reference
    outside = {
        name: re.findall(r"\]\(\.\./[\w.-]+/[\w./-]+\)", text) for name, text in pages.items()
    }
    assert not any(outside.values()), f"the site has no such pages: {outside}"
    nav = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert nav == pages.keys()


def check_pictures(folder: Path, *names: str) -> None:
    """Draw the pictures again, and compare their words with those in `docs/`."""
    command = [sys.executable, ROOT / "docs" / "screen.py", folder, *names]
    subprocess.run(command, check=True, timeout=600)
    for name in names:
        assert picture_words(folder / name) == picture_words(ROOT / "docs" / name), (
            f"{name}: run `make docs`"
        )


def picture_words(picture: Path) -> set[str]:
    """Words in a picture; figures and spinners differ between runs."""
    text = " ".join(re.findall(r">([^<]+)</text>", picture.read_text(encoding="utf-8")))
    return set(words(text.replace("&#160;", " "))) - {"min"}
