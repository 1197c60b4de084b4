import subprocess

import pytest

from ecoshell.agent import workspace
from ecoshell.agent.workspace import files_of, top_of


@pytest.fixture
def tree(tmp_path):
    for name in ("a.py", "docs/b.md", "node_modules/x.js", ".venv/y.py", ".hidden", "out.log"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    return tmp_path


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=folder,
        check=True,
        capture_output=True,
    )


async def test_hidden_and_installed_files_are_omitted_outside_a_repository(tree):
    assert await files_of(tree) == ["a.py", "docs/", "docs/b.md", "out.log"]


async def test_files_ignored_by_git_are_omitted_in_a_repository(tree):
    (tree / ".gitignore").write_text("*.log\nnode_modules\n.venv\n")
    git(tree, "init")
    git(tree, "add", ".")
    (tree / "new.txt").write_text("not added yet")
    (tree / "a.py").unlink()
    assert await files_of(tree) == [".gitignore", ".hidden", "docs/", "docs/b.md", "new.txt"]


async def test_a_folder_of_a_repository_lists_only_its_own_files(tree):
    git(tree, "init")
    assert await files_of(tree / "docs") == ["b.md"]


async def test_listing_runs_no_program_of_the_repository(tree):
    git(tree, "init")
    program = tree / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {tree}/ran\n")
    program.chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(program))
    assert "a.py" in await files_of(tree)
    assert not (tree / "ran").exists()


async def test_without_git_the_folders_are_walked(tree, monkeypatch):
    monkeypatch.setenv("PATH", str(tree))
    assert "a.py" in await files_of(tree)


async def test_the_list_has_a_size_limit(tree, monkeypatch):
    monkeypatch.setattr(workspace, "MAX_FILES", 1)
    assert await files_of(tree) == ["a.py"]


async def test_a_name_with_a_line_break_is_omitted(tree):
    (tree / "two\nlines").write_text("x")
    assert "two\nlines" not in await files_of(tree)


async def test_the_overview_has_two_levels_without_hidden_files(tree):
    (tree / "docs" / "deep").mkdir()
    (tree / "docs" / "deep" / "c.md").write_text("x")
    (tree / "empty").mkdir()
    assert await top_of(tree, 20) == {
        "a.py": [],
        "docs/": ["b.md", "deep/"],
        "empty/": [],
        "out.log": [],
    }


async def test_the_overview_of_a_repository_omits_ignored_files(tree):
    (tree / ".gitignore").write_text("*.log\nnode_modules\n.venv\n")
    git(tree, "init")
    (tree / "docs" / "deep").mkdir()
    (tree / "docs" / "deep" / "c.md").write_text("x")
    assert await top_of(tree, 20) == {"a.py": [], "docs/": ["b.md", "deep/"]}


async def test_an_overview_without_time_is_empty(tree, tmp_path):
    assert await top_of(tree, 0) == {}
    assert await top_of(tmp_path / "gone", 20) == {}
