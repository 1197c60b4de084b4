"""A look at a repository: what git says in time, with nothing run that the repository names."""

import subprocess

import pytest

from ecoshell.tools.git_state import GitState, state_of

PATIENCE = 20


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
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True
    )


def program(folder, mark):
    """A program that leaves a mark when it is run, and passes on what it reads."""
    file = folder / "program.sh"
    file.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    file.chmod(0o755)
    return file


async def test_branch_changes_and_the_last_subject_are_told(repository):
    assert await state_of(repository, PATIENCE) == GitState("main", 0, "The first one")
    (repository / "a.txt").write_text("two\n")
    (repository / "new").mkdir()
    (repository / "new" / "b.txt").write_text("x")
    git(repository, "mv", "a.txt", "c.txt")
    assert await state_of(repository, PATIENCE) == GitState("main", 2, "The first one")


async def test_a_repository_without_a_commit_and_one_without_a_branch_say_so(repository, tmp_path):
    git(repository, "checkout", "--detach")
    assert await state_of(repository, PATIENCE) == GitState("", 0, "The first one")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-b", "main")
    assert await state_of(fresh, PATIENCE) == GitState("main", 0, "")


async def test_where_there_is_no_repository_or_no_git_nothing_is_said(repository, tmp_path, monkeypatch):
    assert await state_of(tmp_path, PATIENCE) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await state_of(repository, PATIENCE) is None


async def test_a_git_that_does_not_end_is_ended(repository, tmp_path, monkeypatch):
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
    state = await state_of(repository, PATIENCE)
    assert state is not None
    assert (state.branch, state.subject) == ("main", "The first one")
    assert (state.changed is None) is key.startswith("filter.")  # what cannot be counted safely is not counted
    assert not mark.exists()


async def test_no_hook_runs_and_the_index_stays_as_it_is(repository, tmp_path):
    mark, hook = tmp_path / "ran", repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    program(tmp_path, mark).rename(hook)
    index = (repository / ".git" / "index").read_bytes()
    (repository / "a.txt").touch()
    assert await state_of(repository, PATIENCE) == GitState("main", 0, "The first one")
    assert (repository / ".git" / "index").read_bytes() == index
    assert not mark.exists()
