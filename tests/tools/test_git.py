"""The state of a repository, read without running its programs."""

import subprocess

import pytest

from ecoshell.tools.git_state import GitState, state_of

SECONDS = 20


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "The first one\n\nwith more below")
    return folder


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def program(folder, mark):
    """Create a program that creates a mark file and copies its input."""
    file = folder / "program.sh"
    file.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    file.chmod(0o755)
    return file


async def test_branch_changes_and_last_subject_are_reported(repository):
    assert await state_of(repository, SECONDS) == GitState("main", 0, "The first one")
    (repository / "a.txt").write_text("two\n")
    (repository / "new").mkdir()
    (repository / "new" / "b.txt").write_text("x")
    git(repository, "mv", "a.txt", "c.txt")
    assert await state_of(repository, SECONDS) == GitState("main", 2, "The first one")


async def test_detached_and_empty_repositories(repository, tmp_path):
    git(repository, "checkout", "--detach")
    assert await state_of(repository, SECONDS) == GitState("", 0, "The first one")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-b", "main")
    assert await state_of(fresh, SECONDS) == GitState("main", 0, "")


async def test_without_a_repository_or_git_there_is_no_state(repository, tmp_path, monkeypatch):
    assert await state_of(tmp_path, SECONDS) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await state_of(repository, SECONDS) is None


async def test_a_hanging_git_is_ended(repository, tmp_path, monkeypatch):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:/bin:/usr/bin")
    assert await state_of(repository, 0.05) is None


@pytest.mark.parametrize("key", ["core.fsmonitor", "filter.own.clean", "gpg.program"])
async def test_no_program_of_the_repository_is_run(repository, tmp_path, key):
    mark = tmp_path / "ran"
    git(repository, "config", key, str(program(tmp_path, mark)))
    git(repository, "config", "log.showSignature", "true")
    (repository / ".gitattributes").write_text("* filter=own\n")
    (repository / "a.txt").write_text("two\n")
    state = await state_of(repository, SECONDS)
    assert state is not None
    assert (state.branch, state.subject) == ("main", "The first one")
    assert (state.changed is None) is key.startswith("filter.")  # not counted if filters would run
    assert not mark.exists()


async def test_no_hook_runs_and_the_index_stays_as_it_is(repository, tmp_path):
    mark, hook = tmp_path / "ran", repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    program(tmp_path, mark).rename(hook)
    index = (repository / ".git" / "index").read_bytes()
    (repository / "a.txt").touch()
    assert await state_of(repository, SECONDS) == GitState("main", 0, "The first one")
    assert (repository / ".git" / "index").read_bytes() == index
    assert not mark.exists()
