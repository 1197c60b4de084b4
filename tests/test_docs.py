"""What the README and the docs show is what the program takes."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ecoshell.agent.command_list import COMMANDS
from ecoshell.cli.parser import build_parser
from ecoshell.models.script import ScriptModel
from ecoshell.settings import read_settings
from ecoshell.tui.commands import CHAT_COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "plugins" / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command line shown, without what is said about it."""
    shown = [line for page in PAGES for block in blocks(page, "console") for line in block.splitlines()]
    lines = [line.removeprefix("$ ").partition("#")[0].partition(";")[0].strip() for line in shown]
    return sorted({line for line in lines if line.startswith("ecoshell")})


def test_every_command_line_shown_can_be_parsed():
    lines = commands()
    assert len(lines) > 30
    for line in lines:
        assert build_parser().parse_args(shlex.split(line)[1:]) is not None, line


def test_every_slash_command_shown_exists():
    overview = (*COMMANDS.overview(), *CHAT_COMMANDS.overview())
    known = {name.split()[0].removeprefix("/") for name, _ in overview}
    shown = {name for page in PAGES for block in blocks(page, "text") for name in re.findall(r"(?<!\S)/(\w+)", block)}
    assert shown
    assert shown <= known


def test_the_settings_shown_are_settings(tmp_path):
    (example,) = blocks(ROOT / "docs" / "configuration.md", "toml")
    file = tmp_path / "config.toml"
    file.write_text(example, encoding="utf-8")
    loaded, problems = read_settings(file, {})
    assert problems == ()
    assert loaded is not None
    assert loaded.settings.models["openai/my-model"].native_tools is True


def test_the_script_shown_is_a_script(tmp_path):
    script = blocks(ROOT / "docs" / "json.md", "json")[-1]
    file = tmp_path / "script.jsonl"
    file.write_text(script, encoding="utf-8")
    assert ScriptModel(file).traits.local


def test_the_program_shown_runs(tmp_path):
    (example,) = blocks(ROOT / "docs" / "python.md", "python")
    (tmp_path / "script.jsonl").write_text(
        '{"call": {"name": "stock", "arguments": {"item": "apples"}}}\n{"text": "There are 12."}\n', encoding="utf-8"
    )
    program = example.replace("openai/gpt-4o-mini", "script:script.jsonl")
    assert program != example
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == "There are 12. 0\n"
    assert (tmp_path / "state/data/ledger.sqlite").is_file()


def test_every_page_linked_to_is_there():
    links = [
        (page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    ]
    missing = [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the local extra is not installed")
def test_the_pictures_show_what_the_program_shows(tmp_path):
    subprocess.run([sys.executable, ROOT / "docs" / "screen.py", tmp_path], check=True, timeout=600)
    made = sorted(picture.name for picture in tmp_path.glob("*.svg"))
    assert made == sorted(picture.name for picture in (ROOT / "docs").glob("*.svg"))
    for name in made:
        assert words(tmp_path / name) == words(ROOT / "docs" / name), f"{name}: `make docs` makes it anew"


def test_the_reference_tells_of_every_part_of_the_program(tmp_path):
    subprocess.run([sys.executable, ROOT / "docs" / "reference.py", tmp_path], check=True, timeout=600)
    made = {f"reference/{page.name}": page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    assert "| `agent.max_steps` | `auto` |" in made["reference/settings.md"]
    assert "`/budget [SCOPE] [AMOUNT\\|off]`" in made["reference/slash-commands.md"]
    assert "#### `ecoshell mcp add`" in made["reference/command-line.md"]
    assert "## turn_finished" in made["reference/events.md"]
    assert "def cli_commands(" in made["reference/hooks.md"]
    assert "@hookimpl" in made["reference/plugins.md"]
    told = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")} | made
    outside = {name: re.findall(r"\]\(\.\./[\w.-]+/[\w./-]+\)", text) for name, text in told.items()}
    assert not any(outside.values()), f"the site has no such pages: {outside}"
    nav = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert nav == {page.name for page in (ROOT / "docs").glob("*.md")} | made.keys()


def words(picture: Path) -> set[str]:
    """The words in a picture; figures, and what turns or moves with them, differ from run to run."""
    said = " ".join(re.findall(r">([^<]+)</text>", picture.read_text(encoding="utf-8")))
    return set(re.findall(r"[^\W\d_]{3,}", said.replace("&#160;", " "))) - {"min"}
