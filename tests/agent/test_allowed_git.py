"""An allowed git command runs nothing that the repository names; each repository here would have git run a program."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from ecoshell.agent import NonInteractive
from ecoshell.agent.approval import ApprovalRequest, Approvals
from ecoshell.agent.rules import Rules
from ecoshell.messages import Call
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

STATUS = "git status -s"


def git(root: Path, *arguments: str) -> None:
    given = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *given, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "none"))
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "-b", "main")
    (root / "a.x").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    git(root, "remote", "add", "origin", "https://example.org/a.git")
    (root / "a.x").write_text("two\n")
    return root


def program(root: Path, name: str = "evil") -> Path:
    """A program that leaves a file behind when it runs."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'#!/bin/sh\n: > "{root.parent / "ran"}"\ncat 2>/dev/null\n')
    file.chmod(0o755)
    return file


async def asked(root: Path, command: str, **rules) -> str:
    """Why a command that a rule allows was not run where nobody can be asked; empty when it was run."""
    tools = {tool.schema.name: tool for tool in builtin_tools(Workspace(root))}
    tool = tools["run_command"]
    given = Rules(workspace=root, allow=("run_command:git *",), **rules)
    approvals = Approvals(given, NonInteractive(), granted=(), remember=lambda _: None)
    ruling = await approvals.rule(
        ApprovalRequest(Call("run_command", {"command": command}, "c"), tool, tool.schema), _ignore
    )
    if not ruling.refusal:
        await tool.run(ruling.call.arguments)
    return ruling.refusal


def _ignore(_: object) -> None: ...


async def test_in_an_ordinary_repository_it_runs_without_being_asked_about(repository):
    for command in (STATUS, "git diff", "git log --oneline", "git add a.x"):
        assert await asked(repository, command) == ""


@pytest.mark.parametrize(
    ("settings", "attributes", "command"),
    [
        ({"core.fsmonitor": "{}"}, "", STATUS),
        ({"filter.f.clean": "{}"}, "*.x filter=f", STATUS),
        ({"filter.f.process": "{}"}, "*.x filter=f", STATUS),
        ({"diff.external": "{}"}, "", "git diff"),
        ({"diff.d.textconv": "{}"}, "*.x diff=d", "git diff"),
        ({"diff.d.command": "{}"}, "*.x diff=d", "git diff"),
        ({"alias.statusx": "!{}"}, "", "git statusx"),
        ({"core.hooksPath": "."}, "", "git checkout -f"),
        ({"core.pager": "{}"}, "", "git log"),
        ({"gpg.program": "{}", "log.showSignature": "true"}, "", "git log"),
        ({"core.sshCommand": "{}"}, "", "git fetch"),
        ({"core.worktree": "/"}, "", STATUS),
        ({"include.path": "more"}, "", STATUS),
    ],
)
async def test_a_setting_that_names_a_program_is_asked_about_and_named(repository, settings, attributes, command):
    evil = program(repository)
    (repository / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (repository / ".gitattributes").write_text(f"{attributes}\n")
    for name, value in settings.items():
        git(repository, "config", name, value.format(evil))
    refusal = await asked(repository, command)
    assert any(f"setting {name.lower()}" in refusal.lower() for name in settings)
    assert not (repository.parent / "ran").exists()


async def test_a_submodule_is_asked_about_as_its_own_settings_hold_in_it(repository, tmp_path):
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-b", "main")
    (inner / "b").write_text("b")
    git(inner, "add", ".")
    git(inner, "commit", "-m", "inner")
    git(repository, "add", "inner")
    git(inner, "config", "core.fsmonitor", str(program(tmp_path)))
    assert "submodules" in await asked(repository, STATUS)
    assert not (repository.parent / "ran").exists()


async def test_a_look_runs_no_hook_and_what_would_run_one_is_asked_about(repository):
    program(repository, ".git/hooks/post-index-change")
    (repository / "a.x").touch()
    assert await asked(repository, STATUS) == ""
    assert not (repository.parent / "ran").exists()
    for command in ("git add a.x", "git diff"):
        assert "hook post-index-change" in await asked(repository, command)


async def test_where_git_does_not_answer_it_is_asked_about(tmp_path):
    assert "git did not list" in await asked(tmp_path, STATUS)


async def test_with_yes_a_file_that_is_executed_later_is_written_only_when_a_person_says_so(repository):
    tool = next(tool for tool in builtin_tools(Workspace(repository)) if tool.schema.name == "write_file")
    approvals = Approvals(
        Rules(yes=True, workspace=repository), NonInteractive(), granted=["write_file"], remember=lambda _: None
    )
    call = Call("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}, "c")
    refusal = (await asyncio.wait_for(approvals.rule(ApprovalRequest(call, tool, tool.schema), _ignore), 600)).refusal
    assert "not approved" in refusal
    assert "executed later" in refusal
