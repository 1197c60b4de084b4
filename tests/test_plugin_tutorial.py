"""The tutorial in plugins/README.md works as written."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_play import Command, commands

TUTORIAL = (Path(__file__).parent.parent / "plugins" / "README.md").read_text(encoding="utf-8")


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    return commands(tmp_path, monkeypatch, capsys)


def rows(command: Command, topic: str) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(command(topic, "--json").stdout)["rows"]}


def test_the_plugin_of_the_tutorial_is_written_tested_listed_and_called(
    command: Command, tmp_path: Path
) -> None:
    template, files, end = fences("python")
    project = tmp_path / "workspace" / "ecoshell_words"
    assert command("plugins", "new", "words").returncode == 0
    package = project / "ecoshell_words"
    assert (package / "__init__.py").read_text() == template
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert (
        "1 passed"
        in subprocess.run(test, cwd=project, capture_output=True, text=True, check=True).stdout
    )

    (package / "files.py").write_text(files)
    (package / "__init__.py").write_text(template.partition("@hookimpl")[0] + end)
    own = tmp_path / "home" / "config" / "plugins"
    own.mkdir(parents=True)
    package.rename(own / "ecoshell_words")
    brings = {"tools": ["words_count", "words_in_file"], "slash_commands": ["words"]}
    assert rows(command, "plugins")["words"]["brings"] == brings
    tools = rows(command, "tools")
    assert [tools[name]["source"] for name in brings["tools"]] == ["plugin words"] * 2
    assert (tools["words_in_file"]["effects"], tools["words_count"]["effects"]) == (["read"], [])

    (script,) = fences("json")
    reading = json.dumps({"call": {"name": "words_in_file", "arguments": {"path": "notes.txt"}}})
    (tmp_path / "workspace" / "script.jsonl").write_text(f"{reading}\n{script}")
    (tmp_path / "workspace" / "notes.txt").write_text("one two\nthree\n")
    result = command(
        "ask", "--model", "script:script.jsonl", "--registration", "all", "--json", "How many?"
    )
    events = [json.loads(line) for line in result.stdout.splitlines()]
    results = [event["observation"] for event in events if event["type"] == "call_finished"]
    assert results == ['{"words": 3, "lines": 2}', "4"]
    assert events[-1]["answer"] == "There are 4 words."


def test_the_settings_of_the_tutorial_are_valid(command: Command, tmp_path: Path) -> None:
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "config.toml").write_text(fences("toml")[0])
    assert command("config", "check").returncode == 0
    assert rows(command, "plugins")["git"]["state"] == "on"


@pytest.mark.parametrize("name", ["Words", "my-words", "1st", "", "../words", "ä", "x" * 40])
def test_a_new_plugin_needs_a_name_that_python_can_import(
    name: str, command: Command, tmp_path: Path
) -> None:
    refused = command("plugins", "new", name)
    assert refused.returncode == 2
    assert "is not a valid name" in refused.stderr
    assert list((tmp_path / "workspace").iterdir()) == []


def test_a_new_plugin_replaces_no_folder_and_no_plugin(command: Command, tmp_path: Path) -> None:
    (tmp_path / "workspace" / "ecoshell_words").mkdir(parents=True)
    refused = command("plugins", "new", "words")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "ecoshell: ecoshell_words already exists.",
    )
    assert list((tmp_path / "workspace" / "ecoshell_words").iterdir()) == []
    assert command("plugins", "new", "git").stderr.startswith(
        "ecoshell: The plugin git already exists."
    )
    assert command("plugins", "new", "words", "elsewhere").returncode == 0
    assert (tmp_path / "workspace" / "elsewhere" / "pyproject.toml").is_file()


def test_an_unknown_plugin_name_is_answered_with_the_closest(command: Command) -> None:
    assert "Did you mean git?" in command("plugins", "info", "gti").stderr
    information = command("plugins", "info", "git").stdout
    assert "tool git_status" in information
    information = command("plugins", "info", "train").stdout
    assert "`ecoshell config set plugins.enabled train` enables the rest." in information
