"""The folders ecoshell keeps its files in are for their owner alone, and what others made is left as it is."""

import os
import stat

import pytest
from unprivileged import read_only_folder

from ecoshell.paths import make_private, user_paths

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")


@pytest.fixture
def usual(tmp_path, monkeypatch):
    """Folders as platformdirs gives them, in a home of the test's own, under the usual umask."""
    monkeypatch.delenv("ECOSHELL_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    before = os.umask(0o022)
    yield user_paths()
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_those_above_it_are_made_for_their_owner_alone(usual, tmp_path):
    make_private(tmp_path / "a" / "b")
    assert [mode(folder) for folder in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]


def test_a_folder_of_ecoshells_own_that_others_can_read_is_closed(usual):
    for folder in (usual.data, usual.config):
        folder.mkdir(parents=True)
        assert mode(folder) == 0o755
        make_private(folder)
        assert mode(folder) == 0o700


def test_a_folder_that_somebody_made_elsewhere_is_left_as_it_is(usual, tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    make_private(tmp_path / "theirs")
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "given"))
    given = user_paths()
    given.data.mkdir(parents=True)
    make_private(given.data)
    assert [mode(folder) for folder in (tmp_path / "theirs", tmp_path / "given", given.data)] == [0o755] * 3


def test_a_folder_that_belongs_to_somebody_else_is_used_as_it_is(usual, monkeypatch):
    usual.data.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    make_private(usual.data)
    assert mode(usual.data) == 0o755


def test_a_folder_that_cannot_be_changed_is_used_and_one_that_cannot_be_made_is_an_error(usual):
    with read_only_folder() as folder:
        make_private(folder)
        with pytest.raises(OSError, match="denied"):
            make_private(folder / "data")


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "data")
