"""Files that are replaced whole: what a killed process leaves goes with the next replacement."""

import os
import time

from ecoshell.paths import replacement


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_stays(tmp_path):
    file = tmp_path / "config.toml"
    left = tmp_path / ".config.toml.0123456789ab"
    left.write_text("half")
    os.utime(left, (time.time() - 60,) * 2)
    with replacement(file) as first:
        first.write(b"first")
        assert not left.exists()
        (writing,) = tmp_path.glob(".config.toml.*")
        os.utime(writing, (time.time() - 60,) * 2)
        with replacement(file) as second:
            second.write(b"second")
        assert writing.exists()
    assert file.read_bytes() == b"first"
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]
