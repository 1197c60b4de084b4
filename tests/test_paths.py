"""Permissions of ecoshell's folders, which are private, and of other folders, which are unchanged."""

import os
import stat

import pytest
from unprivileged import read_only_folder

from ecoshell.paths import make_private, user_paths

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")


@pytest.fixture
def default_paths(tmp_path, monkeypatch):
    """Default folders of platformdirs in a temporary home with the default umask."""
    monkeypatch.delenv("ECOSHELL_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    previous = os.umask(0o022)
    yield user_paths()
    os.umask(previous)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_are_private(default_paths, tmp_path):
    make_private(tmp_path / "a" / "b")
    assert [mode(folder) for folder in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]


def test_a_readable_default_folder_becomes_private(default_paths):
    for folder in (default_paths.data, default_paths.config):
        folder.mkdir(parents=True)
        assert mode(folder) == 0o755
        make_private(folder)
        assert mode(folder) == 0o700


def test_an_existing_folder_elsewhere_keeps_its_permissions(default_paths, tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    make_private(tmp_path / "shared")
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    paths = user_paths()
    paths.data.mkdir(parents=True)
    make_private(paths.data)
    assert [mode(folder) for folder in (tmp_path / "shared", tmp_path / "home", paths.data)] == [
        0o755
    ] * 3


def test_a_folder_of_another_user_keeps_its_permissions(default_paths, monkeypatch):
    default_paths.data.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    make_private(default_paths.data)
    assert mode(default_paths.data) == 0o755


def test_an_unchangeable_folder_is_used_and_an_uncreatable_one_is_an_error(default_paths):
    with read_only_folder() as folder:
        make_private(folder)
        with pytest.raises(OSError, match="denied"):
            make_private(folder / "data")


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "data")
