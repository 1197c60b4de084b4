"""An allowed git command never runs a program that the repository configures."""

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
    options = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *options, *arguments], cwd=root, check=True, capture_output=True)


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
    """Create a program that writes the file `ran` when it runs."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'#!/bin/sh\n: > "{root.parent / "ran"}"\ncat 2>/dev/null\n')
    file.chmod(0o755)
    return file


async def run_allowed(root: Path, command: str, **rules) -> str:
    """Run a command that a rule allows, without a user; return why it was refused, or an empty string."""
    tools = {tool.schema.name: tool for tool in builtin_tools(Workspace(root))}
    tool = tools["run_command"]
    rule_set = Rules(workspace=root, allow=("run_command:git *",), **rules)
    approvals = Approvals(rule_set, NonInteractive(), granted=(), remember=lambda _: None)
    ruling = await approvals.rule(
        ApprovalRequest(Call("run_command", {"command": command}, "c"), tool, tool.schema), _ignore
    )
    if not ruling.refusal:
        await tool.run(ruling.call.arguments)
    return ruling.refusal


def _ignore(_: object) -> None: ...


async def test_an_ordinary_repository_needs_no_approval(repository):
    for command in (STATUS, "git diff", "git log --oneline", "git add a.x"):
        assert await run_allowed(repository, command) == ""


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
async def test_a_git_setting_that_names_a_program_needs_approval(
    repository, settings, attributes, command
):
    evil = program(repository)
    (repository / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (repository / ".gitattributes").write_text(f"{attributes}\n")
    for name, value in settings.items():
        git(repository, "config", name, value.format(evil))
    refusal = await run_allowed(repository, command)
    assert any(f"setting {name.lower()}" in refusal.lower() for name in settings)
    assert not (repository.parent / "ran").exists()


async def test_a_submodule_needs_approval_because_its_own_settings_apply(repository, tmp_path):
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-b", "main")
    (inner / "b").write_text("b")
    git(inner, "add", ".")
    git(inner, "commit", "-m", "inner")
    git(repository, "add", "inner")
    git(inner, "config", "core.fsmonitor", str(program(tmp_path)))
    assert "submodules" in await run_allowed(repository, STATUS)
    assert not (repository.parent / "ran").exists()


async def test_status_runs_no_hook_and_commands_that_run_one_need_approval(repository):
    program(repository, ".git/hooks/post-index-change")
    (repository / "a.x").touch()
    assert await run_allowed(repository, STATUS) == ""
    assert not (repository.parent / "ran").exists()
    for command in ("git add a.x", "git diff"):
        assert "hook post-index-change" in await run_allowed(repository, command)


async def test_a_folder_where_git_fails_needs_approval(tmp_path):
    assert "git did not list" in await run_allowed(tmp_path, STATUS)


async def test_writing_a_file_that_git_executes_later_needs_a_user_even_with_yes(repository):
    tool = next(
        tool for tool in builtin_tools(Workspace(repository)) if tool.schema.name == "write_file"
    )
    approvals = Approvals(
        Rules(yes=True, workspace=repository),
        NonInteractive(),
        granted=["write_file"],
        remember=lambda _: None,
    )
    call = Call("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}, "c")
    refusal = (
        await asyncio.wait_for(
            approvals.rule(ApprovalRequest(call, tool, tool.schema), _ignore), 600
        )
    ).refusal
    assert "not approved" in refusal
    assert "executed later" in refusal
