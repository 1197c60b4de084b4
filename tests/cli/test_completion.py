"""`ecoshell completion`: what real shells complete after reading its script."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshell.cli import main
from ecoshell.events import Notice
from ecoshell.sessions import SessionStore

PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -m ecoshell "$@"\n'
BASH = """
source <(ecoshell completion bash)
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete ecoshell
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = "ecoshell completion fish | source; complete --do-complete $argv[1]"
ZSH = """
autoload -U compinit; compinit -u -D
eval "$(ecoshell completion zsh)"
_describe() { print -l -- ${(P)2} }
words=(${(z)1}); BUFFER=$1; CURSOR=${#1}
_python_argcomplete
"""

Complete = Callable[[str, str], list[str]]


@pytest.fixture
def complete(tmp_path: Path) -> Complete:
    """Return the proposals of a shell at the end of a line, in a temporary home."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/ecoshell"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ECOSHELL_")
    }
    environ = {**inherited, "PATH": path, "ECOSHELL_HOME": str(tmp_path / "home"), "TERM": "dumb"}

    def complete(shell: str, line: str) -> list[str]:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        program = {"bash": [BASH, "bash"], "zsh": [ZSH, "zsh"], "fish": [FISH]}[shell]
        done = subprocess.run(
            [shell, "-c", *program, line],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return [
            line.split("\t")[0].split(":")[0].strip()
            for line in done.stdout.splitlines()
            if line.strip()
        ]

    return complete


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completes_commands_options_and_choices(complete: Complete, shell: str) -> None:
    assert {"ask", "doctor", "config", "bench"} <= {*complete(shell, "ecoshell ")}
    assert complete(shell, "ecoshell scr") == ["screenshot"]
    assert complete(shell, "ecoshell ask --strat") == ["--strategy"]
    assert sorted(complete(shell, "ecoshell ask --strategy ")) == ["dfsdt", "graph", "react", "tot"]


def test_names_of_sessions_settings_tools_models_servers_and_plugins_are_completed(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def bash(line: str) -> list[str]:
        return complete("bash", line)

    store = SessionStore(tmp_path / "home/data/sessions.sqlite")
    session = store.create(workspace=str(tmp_path), model="embedded")
    store.append(session, [Notice("Something happened.")])
    store.close()
    assert bash("ecoshell config set budget.d") == ["budget.day"]
    assert {"dark", "mono"} <= {*bash("ecoshell config set tui.theme ")}
    assert bash("ecoshell config set agent.strategy d") == ["dfsdt"]
    assert bash("ecoshell tools read") == ["read_file"]
    assert bash("ecoshell ask --model emb") == ["embedded"]
    assert "gpt-4o-mini" in bash("ecoshell ask --model gpt-4o-min")
    assert bash("ecoshell bench bt") == ["btp"]
    assert bash("ecoshell sessions show ") == [session]
    assert main(["mcp", "add", "time", "--no-test", "--", "run"]) == 0
    assert bash("ecoshell mcp test ") == bash("ecoshell mcp remove t") == ["time"]
    assert "web" in bash("ecoshell plugins info ")


PLUGIN = """
from ecoshell.plugins import hookimpl
from ecoshell.strategies import StrategySpec

@hookimpl
def strategies():
    return [StrategySpec("parrot", print, "says it loudly")]

@hookimpl
def judges():
    return {"strict": print}
"""


def test_names_from_plugins_are_completed(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "home/config/plugins").mkdir(parents=True)
    (tmp_path / "home/config/plugins/loud.py").write_text(PLUGIN, encoding="utf-8")
    assert complete("bash", "ecoshell config set agent.strategy p") == ["parrot"]
    assert complete("bash", "ecoshell config set plan.judge s") == ["strict"]
    assert complete("bash", "ecoshell ask --strategy p") == ["parrot"]


def test_interactive_bash_completes_with_tab(tmp_path: Path, complete: Complete) -> None:
    pexpect = pytest.importorskip("pexpect")
    environ = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
    }
    environ |= {"ECOSHELL_HOME": str(tmp_path / "home"), "PS1": "ready> "}
    bash = pexpect.spawn(
        "bash", ["--norc", "--noprofile", "-i"], env=environ, cwd=str(tmp_path), timeout=600
    )
    bash.expect_exact("ready> ")
    bash.sendline('eval "$(ecoshell completion bash)"; echo read')
    bash.expect("\nread")
    bash.expect_exact("ready> ")
    bash.send("ecoshell conf\t")
    bash.expect_exact("ecoshell config ")
    bash.send("pa\t")
    bash.expect_exact("path ")
    bash.sendline("")
    bash.expect_exact("config.toml")
    bash.close(force=True)


def test_invalid_settings_complete_nothing_without_an_error(
    complete: Complete, tmp_path: Path
) -> None:
    (tmp_path / "home/config").mkdir(parents=True)
    (tmp_path / "home/config/config.toml").write_text("not TOML", encoding="utf-8")
    assert complete("bash", "ecoshell ask --model emb") == []


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
