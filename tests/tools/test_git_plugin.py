"""The tools of ecoshell_git: results, refusals, and that they run no program of a repository."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ecoshell.messages import Observation
from ecoshell.tools import ResultSize, Tool, ToolOptions
from ecoshell.tools.workspace import Workspace
from ecoshell_git import tools

READING = ("git_status", "git_diff", "git_log", "git_show", "git_blame")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"AUTHOR": "Ann", "COMMITTER": "Ann"}.items():
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ann@example.org")
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-b", "main")
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "sub" / "b.txt").write_text("below\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "The first one")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


async def run(folder: Path, name: str, **arguments: Any) -> Observation:
    return await tool(folder, name).run(arguments)


def tool(folder: Path, name: str, **options: Any) -> Tool:
    return {tool.schema.name: tool for tool in tools(Workspace(folder), ToolOptions(**options))}[
        name
    ]


def arguments(name: str) -> dict[str, Any]:
    return {"path": "a.txt"} if name == "git_blame" else {}


async def test_log_and_show_include_merges_and_empty_commits(repository: Path) -> None:
    git(repository, "switch", "-q", "-c", "side")
    git(repository, "commit", "--allow-empty", "-m", "Nothing changed")
    git(repository, "switch", "-q", "main")
    git(repository, "merge", "--no-ff", "-m", "Merge the side", "side")
    lines = (await run(repository, "git_log")).text.split("\n")
    subjects = {line.split(": ")[1] for line in lines}
    assert subjects == {"Merge the side", "Nothing changed", "The first one"}
    assert "Nothing changed" in (await run(repository, "git_show", revision="side")).text
    below = await run(repository / "sub", "git_log")
    assert below.text.count("\n") == 0
    assert "The first one" in below.text


async def test_status_and_diff_show_changes(repository: Path) -> None:
    (repository / "a.txt").write_text("one\nTWO\n")
    (repository / "new.txt").write_text("new\n")
    git(repository, "add", "new.txt")
    assert (await run(repository, "git_status")).text == "## main\n M a.txt\nA  new.txt"
    assert "-two\n+TWO" in (await run(repository, "git_diff")).text
    assert "+new" in (await run(repository, "git_diff", staged=True)).text
    assert (await run(repository, "git_diff", path="sub")).text == "There is nothing to show."


async def test_file_names_are_not_quoted(repository: Path) -> None:
    (repository / "café.txt").write_text("one\n")
    assert "?? café.txt" in (await run(repository, "git_status")).text
    assert (
        "create mode 100644 café.txt"
        in (await run(repository, "git_commit", message="é", paths=["café.txt"])).text
    )
    assert "+++ b/café.txt" in (await run(repository, "git_show")).text


async def test_log_show_and_blame_read_the_history(repository: Path) -> None:
    (repository / "a.txt").write_text("one\nTWO\n")
    git(repository, "commit", "-am", "The second one")
    log = (await run(repository, "git_log")).text.splitlines()
    assert [line.partition(" Ann: ")[2] for line in log] == ["The second one", "The first one"]
    assert len((await run(repository, "git_log", count=1)).text.splitlines()) == 1
    commit = (await run(repository, "git_show", revision="HEAD~1")).text
    assert "The first one" in commit
    assert "+two" in commit
    assert "+TWO" in (await run(repository, "git_show", revision=" ")).text
    blame = (await run(repository, "git_blame", path="a.txt", first=2)).text
    assert "2) TWO" in blame
    assert "one" not in blame


async def test_commit_refuses_files_staged_outside_the_workspace(repository: Path) -> None:
    (repository / "a.txt").write_text("changed\n")
    (repository / "sub" / "b.txt").write_text("changed\n")
    git(repository, "add", "sub")
    assert (await run(repository / "sub", "git_commit", message="Below")).ok
    git(repository, "add", "a.txt")
    refused = await run(repository / "sub", "git_commit", message="All")
    assert "Files outside the workspace are staged" in refused.text
    assert git(repository, "log", "--format=%s").split() == ["Below", "The", "first", "one"]


async def test_commit_contains_only_the_named_files(repository: Path) -> None:
    (repository / "a.txt").write_text("changed\n")
    (repository / "new.txt").write_text("new\n")
    (repository / "other.txt").write_text("other\n")
    git(repository, "add", "other.txt")
    done = await run(repository, "git_commit", message="Add new", paths=["new.txt"])
    assert done.ok
    assert git(repository, "show", "--name-only", "--format=%s").split("\n")[:3] == [
        "Add new",
        "",
        "new.txt",
    ]
    assert git(repository, "status", "--short") == " M a.txt\nA  other.txt\n"


async def test_commit_contains_a_link_and_not_its_target(repository: Path) -> None:
    (repository / "sub" / "link").symlink_to("../a.txt")
    (repository / "a.txt").write_text("changed\n")
    (repository / "away").symlink_to("/etc/hostname")
    assert (await run(repository, "git_commit", message="A link", paths=["sub/link"])).ok
    assert git(repository, "show", "--format=", "--name-only") == "sub/link\n"
    assert (
        "outside the workspace"
        in (await run(repository, "git_commit", message="Away", paths=["away"])).text
    )


async def test_deleted_and_renamed_files_can_be_committed(repository: Path) -> None:
    git(repository, "mv", "a.txt", "new.txt")
    assert (await run(repository, "git_commit", message="Renamed", paths=["a.txt", "new.txt"])).ok
    git(repository, "rm", "-r", "sub")
    assert (await run(repository, "git_commit", message="Removed", paths=["sub"])).ok
    (repository / "new.txt").unlink()
    assert (await run(repository, "git_commit", message="Gone", paths=["new.txt"])).ok
    assert git(repository, "status", "--short") == git(repository, "ls-files") == ""
    assert (
        "did not match"
        in (await run(repository, "git_commit", message="None", paths=["never"])).text
    )


def test_only_git_commit_has_effects(repository: Path) -> None:
    assert all(tool(repository, name).effects == {"read"} for name in READING)
    assert tool(repository, "git_commit").effects == {"read", "write", "execute"}


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize(
    "key",
    [
        "core.fsmonitor",
        "filter.own.clean",
        "diff.own.textconv",
        "diff.external",
        "core.pager",
        "gpg.program",
    ],
)
async def test_programs_of_the_repository_are_not_run(
    name: str, key: str, repository: Path, tmp_path: Path
) -> None:
    mark, program = tmp_path / "ran", tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    git(repository, "config", key, str(program))
    git(repository, "config", "log.showSignature", "true")
    (repository / ".gitattributes").write_text("* filter=own diff=own\n")
    (repository / "a.txt").write_text("one\nTWO\n")
    result = await run(repository, name, **arguments(name))
    assert not mark.exists()
    assert not result.ok
    assert f"{name.replace('_', ' ')} was not run: the repository setting" in result.text


@pytest.mark.parametrize("name", READING)
async def test_reading_runs_no_hook_and_keeps_the_index(
    name: str, repository: Path, tmp_path: Path
) -> None:
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    hook.chmod(0o755)
    (repository / "sub" / "b.txt").write_text("changed\n")
    os.utime(repository / "a.txt", (1, 1))
    index = (repository / ".git" / "index").read_bytes()
    result = await run(repository, name, **arguments(name))
    assert result.ok
    assert (repository / ".git" / "index").read_bytes() == index
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("git_diff", {"path": "../other"}, "outside the workspace"),
        ("git_blame", {"path": "/etc/passwd"}, "outside the workspace"),
        ("git_commit", {"message": "m", "paths": ["../other"]}, "outside the workspace"),
        ("git_commit", {"message": " "}, "The commit message is empty."),
        ("git_show", {"revision": "HEAD:a.txt"}, "is not a revision"),
        ("git_log", {"revision": "--output=stolen"}, "--output=stolen"),
        ("git_diff", {"revision": "--output=stolen"}, "--output=stolen"),
        ("git_show", {"revision": "--output=stolen"}, "--output=stolen"),
    ],
)
async def test_paths_outside_and_options_are_refused(
    name: str, words: dict[str, Any], why: str, repository: Path
) -> None:
    result = await run(repository, name, **words)
    assert (result.ok, why in result.text) == (False, True), result.text
    assert "stolen" not in git(repository, "status", "--short")


async def test_workspace_inside_a_repository_sees_only_its_files(repository: Path) -> None:
    (repository / "a.txt").write_text("secret\n")
    (repository / "sub" / "b.txt").write_text("mine\n")
    outputs = [
        (await run(repository / "sub", name)).text
        for name in ("git_status", "git_diff", "git_show")
    ]
    assert "mine" in outputs[1]
    assert not any("a.txt" in text or "secret" in text for text in outputs)


async def test_repository_elsewhere_is_read_only_for_its_worktrees(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert (await run(tmp_path / "tree", "git_status")).text == "## tree"
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / ".git").write_text(f"gitdir: {repository / '.git'}\n")
    assert "is kept elsewhere" in (await run(stranger, "git_log")).text
    assert "is not in a readable git repository" in (await run(tmp_path, "git_log")).text


@pytest.mark.parametrize(
    "way", ["commondir", "objects", "alternates", "objects/pack", "one object", ".git"]
)
async def test_repository_with_data_elsewhere_is_refused(
    way: str, repository: Path, tmp_path: Path
) -> None:
    private, head = repository / ".git", git(repository, "rev-parse", "HEAD").strip()
    stranger = tmp_path / "stranger"
    git(tmp_path, "init", "-q", "-b", "main", str(stranger))
    if way == "commondir":
        (stranger / ".git" / "commondir").write_text(f"{private}\n")
    elif way == "alternates":
        (stranger / ".git" / "objects" / "info" / "alternates").write_text(
            f"{private / 'objects'}\n"
        )
    elif way == "one object":
        (stranger / ".git" / "objects" / head[:2]).mkdir()
        (stranger / ".git" / "objects" / head[:2] / head[2:]).symlink_to(
            private / "objects" / head[:2] / head[2:]
        )
    else:
        link = stranger / ".git" / ("" if way == ".git" else way)
        shutil.rmtree(link)
        link.symlink_to(private / ("" if way == ".git" else way))
    if way != ".git":
        (stranger / ".git" / "refs" / "heads" / "main").write_text(f"{head}\n")
    for name in READING:
        result = await run(stranger, name, **arguments(name))
        assert "elsewhere" in result.text, (name, result.text)


async def test_output_is_bounded(repository: Path) -> None:
    (repository / "a.txt").write_text("changed\n" * 10_000)
    result = await tool(repository, "git_diff", result=ResultSize(2_000)).run({})
    assert result.truncated
    assert len(result.text) <= 2_000
