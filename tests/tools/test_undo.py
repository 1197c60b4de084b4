"""Undo of a turn's writes: content, mode and existence, except for files changed by others."""

import json
import os
import subprocess
import sys

import pytest
from full_disk import fill, no_file_over, tiny_disk

from ecoshell.tools.restore import restore
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace

SESSION = "k3f9-2q"


@pytest.fixture
def log(tmp_path):
    return UndoLog(tmp_path / "undo", turns=3, file_bytes=1_000, total_bytes=2_500)


@pytest.fixture
def ground(tmp_path, log):
    root = tmp_path / "ground"
    root.mkdir()
    log.enter(SESSION, 1)
    return Workspace(root, undo=log)


def all_paths(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_content_and_mode_of_a_changed_file_are_restored(ground, log):
    file = ground.root / "a.sh"
    file.write_bytes(b"old\r\n\xff")
    file.chmod(0o750)
    ground.write_text("a.sh", "new")
    ground.write_text("a.sh", "newer")
    file.chmod(0o600)
    done = restore(log, SESSION, "1")
    assert (done.restored, done.kept) == (("a.sh",), ())
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"old\r\n\xff", 0o750)


def test_a_created_file_is_removed_with_its_new_folders(ground, log):
    (ground.root / "there").mkdir()
    ground.write_text("there/new/deep/a.txt", "x")
    ground.write_text("there/new/b.txt", "y")
    assert restore(log, SESSION, "1").restored == ("there/new/deep/a.txt", "there/new/b.txt")
    assert all_paths(ground.root) == {"there"}


def test_a_new_folder_with_other_content_stays(ground, log):
    ground.write_text("new/a.txt", "x")
    (ground.root / "new" / "mine.txt").write_text("mine")
    assert restore(log, SESSION, "1").restored == ("new/a.txt",)
    assert all_paths(ground.root) == {"new", "new/mine.txt"}


def test_a_file_changed_after_the_turn_is_not_restored(ground, log):
    ground.write_text("a.txt", "of the turn")
    (ground.root / "a.txt").write_text("of the user")
    done = restore(log, SESSION, "1")
    assert (done.restored, done.kept) == ((), ("a.txt",))
    assert (ground.root / "a.txt").read_text() == "of the user"


def test_a_file_changed_between_two_writes_is_restored_only_on_confirmation(ground, log):
    (ground.root / "a.txt").write_text("old\n")
    ground.write_text("a.txt", "of the turn\n")
    (ground.root / "a.txt").write_text("of the user\n")
    ground.write_text("a.txt", "of the user, and of the turn\n")
    done = restore(log, SESSION, "1")
    assert ([change.path for change in done.changed], done.restored) == (["a.txt"], ())
    assert (ground.root / "a.txt").read_text() == "of the user, and of the turn\n"
    assert restore(log, SESSION, "1", over="a.txt").restored == ("a.txt",)
    assert (ground.root / "a.txt").read_text() == "old\n"


def test_a_file_deleted_after_the_turn_stays_deleted(ground, log):
    (ground.root / "a.txt").write_text("old")
    ground.write_text("a.txt", "new")
    (ground.root / "a.txt").unlink()
    assert restore(log, SESSION, "1").kept == ("a.txt",)
    assert all_paths(ground.root) == set()


def test_a_file_replaced_by_a_link_or_a_folder_is_not_restored(ground, log, tmp_path):
    ground.write_text("a.txt", "new")
    ground.write_text("b.txt", "new")
    (tmp_path / "outside.txt").write_text("new")
    (ground.root / "a.txt").unlink()
    (ground.root / "a.txt").symlink_to(tmp_path / "outside.txt")
    (ground.root / "b.txt").unlink()
    (ground.root / "b.txt").mkdir()
    assert restore(log, SESSION, "1").kept == ("a.txt", "b.txt")
    assert (tmp_path / "outside.txt").read_text() == "new"


def test_a_failed_write_needs_no_restoring(ground, log, monkeypatch):
    (ground.root / "a.txt").write_text("old")
    monkeypatch.setattr(
        "os.replace", lambda *args, **kwargs: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(Exception, match="full"):
        ground.write_text("a.txt", "new")
    monkeypatch.undo()
    done = restore(log, SESSION, "1")
    assert (done.restored, done.kept) == ((), ())
    assert (ground.root / "a.txt").read_text() == "old"


def test_turns_are_undone_one_after_another(ground, log):
    ground.write_text("a.txt", "1")
    log.enter(SESSION, 2)
    ground.write_text("a.txt", "2")
    assert restore(log, SESSION, "2").restored == ("a.txt",)
    assert (ground.root / "a.txt").read_text() == "1"
    assert restore(log, SESSION, "1").restored == ("a.txt",)
    assert all_paths(ground.root) == set()


def test_undoing_twice_changes_nothing(ground, log):
    ground.write_text("a.txt", "x")
    restore(log, SESSION, "1")
    assert restore(log, SESSION, "1").restored == ()


def test_another_process_undoes_a_killed_turn_despite_damaged_lines(ground, log, tmp_path):
    (ground.root / "a.txt").write_text("old")
    ground.write_text("a.txt", "new")
    index = tmp_path / "undo" / SESSION / "1" / "index.jsonl"
    odd = (
        "[" * 5_000,
        "5",
        "{}",
        '{"root": 5}',
        index.read_text().replace('"a.txt"', "5"),
        "\\ud800",
        "9" * 5_000,
    )
    index.write_bytes("\n".join([*odd, index.read_text()]).encode() + b'\xff\xfe\n{"path": "b')
    assert restore(UndoLog(tmp_path / "undo"), SESSION, "1").restored == ("a.txt",)
    assert (ground.root / "a.txt").read_text() == "old"


def test_a_file_too_large_to_copy_is_reported_once_and_not_restored(ground, log):
    (ground.root / "a.txt").write_text("x" * 1_001)
    ground.write_text("a.txt", "new")
    ground.write_text("a.txt", "newer")
    assert log.take_lost() == ["/undo will not restore a.txt: it was larger than 1,000 bytes."]
    assert log.take_lost() == []
    assert restore(log, SESSION, "1").kept == ("a.txt",)


def test_the_oldest_turns_are_removed_for_new_ones(ground, log, tmp_path):
    for turn in range(1, 6):
        log.enter(SESSION, turn)
        ground.write_text("a.txt", str(turn))
    assert sorted(path.name for path in (tmp_path / "undo" / SESSION).iterdir()) == ["3", "4", "5"]


def test_copies_stay_within_the_limit_of_a_session(ground, log, tmp_path):
    for turn in range(1, 4):
        log.enter(SESSION, turn)
        (ground.root / f"{turn}.txt").write_text(str(turn) * 1_000)
        ground.write_text(f"{turn}.txt", "new")
    assert sorted(path.name for path in (tmp_path / "undo" / SESSION).iterdir()) == ["2", "3"]
    size = sum(
        file.stat().st_size for file in (tmp_path / "undo" / SESSION).rglob("*") if file.is_file()
    )
    assert size <= 2_500 + 1_000  # plus the lines of the indexes


def test_a_turn_that_exceeds_the_limit_reports_lost_files(ground, log):
    for name in ("a", "b", "c"):
        (ground.root / name).write_text(name * 1_000)
        ground.write_text(name, "new")
    assert [text.partition(":")[0] for text in log.take_lost()] == ["/undo will not restore c"]
    done = restore(log, SESSION, "1")
    assert (done.restored, done.kept) == (("a", "b"), ("c",))


def test_a_copy_that_cannot_be_written_does_not_stop_the_write(tmp_path):
    (tmp_path / "undo").write_text("a file instead of the folder")
    log = UndoLog(tmp_path / "undo")
    log.enter(SESSION, 1)
    Workspace(tmp_path, undo=log).write_text("a.txt", "x")
    assert (tmp_path / "a.txt").read_text() == "x"
    assert log.take_lost()[0].startswith("/undo will not restore a.txt: no copy could be made")


def test_a_file_that_a_full_disk_could_not_copy_is_never_restored(ground, log):
    (ground.root / "a.txt").write_text("x" * 900)
    with no_file_over(600):
        for text in ("new", "newer"):
            ground.write_text("a.txt", text)
    assert [message.partition(":")[0] for message in log.take_lost()] == [
        "/undo will not restore a.txt"
    ]
    done = restore(log, SESSION, "1")
    assert (done.restored, done.kept) == ((), ("a.txt",))
    assert (ground.root / "a.txt").read_text() == "newer"


def test_writes_after_a_full_disk_can_be_undone(ground, log, tmp_path):
    ground.write_text("a.txt", "x")
    index = tmp_path / "undo" / SESSION / "1" / "index.jsonl"
    with no_file_over(index.stat().st_size + 20):  # half a line fits
        ground.write_text("b.txt", "x")
    ground.write_text("c.txt", "x")
    assert [message.partition(":")[0] for message in log.take_lost()] == [
        "/undo will not restore b.txt"
    ]
    assert restore(log, SESSION, "1").restored == ("a.txt", "c.txt")
    assert all_paths(ground.root) == {"b.txt"}


def test_a_full_disk_for_copies_does_not_stop_writes(ground, log, tmp_path):
    with tiny_disk(tmp_path / "undo", 64 * 1024) as disk:
        fill(disk, 0)
        ground.write_text("a.txt", "x")
        assert log.take_lost()
    assert all_paths(ground.root) == {"a.txt"}


def test_copies_are_private_and_removed_with_the_session(ground, log, tmp_path):
    ground.write_text("a.txt", "x")
    assert (tmp_path / "undo").stat().st_mode & 0o077 == 0
    log.forget(SESSION)
    assert list((tmp_path / "undo").iterdir()) == []


def test_every_write_is_recorded_in_advance(ground, log, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "os.replace", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        ground.write_text("a.txt", "x")
    (line,) = (tmp_path / "undo" / SESSION / "1" / "index.jsonl").read_text().strip().splitlines()
    assert json.loads(line)["path"] == "a.txt"


def test_two_shells_in_one_session_undo_their_own_writes(ground, tmp_path):
    first, second = (UndoLog(tmp_path / "undo", owner=owner) for owner in ("one", "two"))
    copies = [log.enter(SESSION, 2) for log in (first, second)]
    (ground.root / "a.txt").write_text("old")
    (ground.root / "b.txt").write_text("old")
    Workspace(ground.root, undo=first).write_text("a.txt", "of one")
    Workspace(ground.root, undo=second).write_text("b.txt", "of two")
    assert restore(first, SESSION, copies[0]).restored == ("a.txt",)
    assert [(ground.root / name).read_text() for name in ("a.txt", "b.txt")] == ["old", "of two"]
    assert restore(UndoLog(tmp_path / "undo"), SESSION, copies[1]).restored == ("b.txt",)


def test_a_file_changed_by_another_shell_is_restored_only_on_confirmation(ground, tmp_path):
    first, second = (UndoLog(tmp_path / "undo", owner=owner) for owner in ("one", "two"))
    copies = [log.enter(SESSION, 2) for log in (first, second)]
    (ground.root / "a.txt").write_text("old\n")
    Workspace(ground.root, undo=first).write_text("a.txt", "of one\n")
    Workspace(ground.root, undo=second).write_text("a.txt", "of two\n")
    done = restore(first, SESSION, copies[0])
    assert (done.restored, done.kept, [changed.path for changed in done.changed]) == (
        (),
        ("a.txt",),
        ["a.txt"],
    )
    assert "-of two\n+old" in done.changed[0].changes
    assert (ground.root / "a.txt").read_text() == "of two\n"
    assert restore(first, SESSION, copies[0], over="a.txt").restored == ("a.txt",)
    assert (ground.root / "a.txt").read_text() == "old\n"


def test_copies_are_private_with_any_umask(ground, log, tmp_path):
    umask = os.umask(0)
    try:
        (ground.root / "a.txt").write_text("secret")
        ground.write_text("a.txt", "new")
    finally:
        os.umask(umask)
    modes = [file.stat().st_mode & 0o777 for file in (tmp_path / "undo" / SESSION / "1").iterdir()]
    assert modes == [0o600, 0o600]


_KILLED = """
import os, signal, sys
from pathlib import Path
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace
log = UndoLog(Path(sys.argv[1]))
log.enter("k3f9-2q", 1)
os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
Workspace(Path(sys.argv[2]), undo=log).write_text("sub/a.txt", "new")
"""


def test_only_temporary_files_of_killed_processes_are_swept(ground, log, tmp_path):
    subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "undo"), str(ground.root)], check=False
    )
    (temporary,) = (ground.root / "sub").iterdir()
    assert temporary.name.endswith(".part")
    with log.writing(ground.root, ".0123456789abcdef.part"):
        (ground.root / ".0123456789abcdef.part").write_text("half")
        UndoLog(tmp_path / "undo").sweep()
        assert all_paths(ground.root) == {"sub", ".0123456789abcdef.part"}
        assert [note.name for note in (tmp_path / "undo").glob(".*")] == [".0123456789abcdef.part"]
    assert list((tmp_path / "undo").glob(".*")) == []
