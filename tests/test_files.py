"""Atomic replacement of files, and removal of temporary files left by killed processes."""

import os
import time

from ecoshell.paths import replacement


def test_leftovers_of_killed_processes_are_removed_and_files_in_use_stay(tmp_path):
    file = tmp_path / "config.toml"
    leftover = tmp_path / ".config.toml.0123456789ab"
    leftover.write_text("half")
    os.utime(leftover, (time.time() - 60,) * 2)
    with replacement(file) as first:
        first.write(b"first")
        assert not leftover.exists()
        (temporary,) = tmp_path.glob(".config.toml.*")
        os.utime(temporary, (time.time() - 60,) * 2)
        with replacement(file) as second:
            second.write(b"second")
        assert temporary.exists()
    assert file.read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
