import contextlib
import os
import socket
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ecoshell.errors import ToolError, UsageError
from ecoshell.tools.workspace import Workspace

LIMIT = 1_000_000


def refusal(workspace: Workspace, path: str) -> str:
    with pytest.raises(ToolError) as caught:
        workspace.read_text(path, LIMIT)
    return str(caught.value)


def test_a_workspace_that_is_not_a_folder_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="--workspace"):
        Workspace(tmp_path / "missing")


def test_relative_and_absolute_paths_inside_are_the_same_file(workspace: Workspace):
    (workspace.root / "a.txt").write_text("hello")
    assert workspace.read_text("a.txt", LIMIT).text == "hello"
    assert workspace.read_text(str(workspace.root / "a.txt"), LIMIT).name == "a.txt"
    assert workspace.read_text("sub/../a.txt", LIMIT).name == "a.txt"


@pytest.mark.parametrize(
    "path", ["../outside/secret.txt", "/etc/passwd", "a/../../outside/secret.txt", "..", "/"]
)
def test_paths_that_leave_the_workspace_are_refused(workspace: Workspace, outside: Path, path: str):
    assert "outside the workspace" in refusal(workspace, path)


def test_a_sibling_with_the_same_name_prefix_is_outside(workspace: Workspace):
    sibling = workspace.root.with_name("workspace-2")
    sibling.mkdir()
    assert "outside the workspace" in refusal(workspace, str(sibling / "a.txt"))


def test_links_to_the_outside_are_refused(workspace: Workspace, outside: Path):
    (workspace.root / "file").symlink_to(outside / "secret.txt")
    (workspace.root / "folder").symlink_to(outside)
    (workspace.root / "dangling").symlink_to(outside / "new.txt")
    for path in ("file", "folder/secret.txt", "folder/new.txt", "dangling"):
        assert "outside the workspace" in refusal(workspace, path)
        with pytest.raises(ToolError, match="outside the workspace"):
            workspace.write_text(path, "overwritten")
    assert (outside / "secret.txt").read_text() == "do not read me"
    assert not (outside / "new.txt").exists()


def test_links_inside_the_workspace_are_followed_and_stay_links(workspace: Workspace):
    (workspace.root / "real.txt").write_text("one")
    (workspace.root / "link").symlink_to("real.txt")
    assert workspace.read_text("link", LIMIT).text == "one"
    workspace.write_text("link", "two")
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "real.txt").read_text() == "two"


def test_circular_links_are_an_error(workspace: Workspace):
    (workspace.root / "a").symlink_to("b")
    (workspace.root / "b").symlink_to("a")
    assert "symbolic link" in refusal(workspace, "a")


def test_a_folder_replaced_by_a_link_after_the_check_is_not_followed(
    workspace: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch
):
    inner = workspace.root / "inner"
    inner.mkdir()
    (inner / "secret.txt").write_text("harmless")
    checked = workspace.resolve("inner/secret.txt")
    (inner / "secret.txt").unlink()
    inner.rmdir()
    inner.symlink_to(outside)
    monkeypatch.setattr(workspace, "resolve", lambda path: checked)
    assert "do not read me" not in refusal(workspace, "inner/secret.txt")
    with pytest.raises(ToolError):
        workspace.write_text("inner/secret.txt", "overwritten")
    assert (outside / "secret.txt").read_text() == "do not read me"


@pytest.mark.parametrize(
    ("kind", "words"),
    [("fifo", "pipe"), ("socket", "socket"), ("folder", "folder"), ("device", "device")],
)
def test_special_files_are_refused_by_kind(
    workspace: Workspace, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(workspace.root)  # a socket's path may not be long
    with contextlib.ExitStack() as stack:
        path, opened = "it", workspace
        if kind == "fifo":
            os.mkfifo("it")
        elif kind == "folder":
            Path("it").mkdir()
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind("it")
        else:
            path, opened = "null", Workspace(Path("/dev"))
        assert words in refusal(opened, path)
        with pytest.raises(ToolError, match=words):
            opened.write_text(path, "x")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc does not exist")
def test_files_that_report_no_size_are_bounded():
    with pytest.raises(ToolError, match="too large"):
        Workspace(Path("/proc/self")).read_text("status", 10)


def test_a_huge_file_is_refused_without_being_read(workspace: Workspace):
    with (workspace.root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert f"{1 << 40} bytes" in refusal(workspace, "huge")


@pytest.mark.parametrize(("data", "words"), [(b"a\0b", "binary"), (b"caf\xe9", "not UTF-8")])
def test_binary_files_are_refused(workspace: Workspace, data: bytes, words: str):
    (workspace.root / "file").write_bytes(data)
    assert words in refusal(workspace, "file")


def test_a_missing_file_is_an_error_with_similar_names(workspace: Workspace):
    (workspace.root / "docs").mkdir()
    for name in ("README.md", "docs/notes.txt"):
        (workspace.root / name).write_text("")
    assert "Nearest: README.md" in refusal(workspace, "readme")
    assert "Nearest: docs/notes.txt" in refusal(workspace, "note.txt")
    assert "Nearest" not in refusal(workspace, "zzz")
    (workspace.root / "gone.txt").symlink_to("nowhere")
    assert refusal(workspace, "gone.txt").endswith("Nearest: docs/notes.txt.")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a\0b", "NUL"),
        ("x" * 5000, "too long"),
        ("a.txt/b", "not a folder"),
        ("\ud800", "surrogate"),
    ],
)
def test_impossible_paths_are_explained(workspace: Workspace, path: str, words: str):
    (workspace.root / "a.txt").write_text("")
    assert words in refusal(workspace, path)


def test_missing_permissions_are_reported(
    workspace: Workspace, unprivileged: Callable[[], AbstractContextManager[None]]
):
    (workspace.root / "closed.txt").write_text("x")
    (workspace.root / "closed.txt").chmod(0)
    (workspace.root / "folder").mkdir(mode=0o500)
    with unprivileged():
        assert "permission denied" in refusal(workspace, "closed.txt")
        for path in ("closed.txt", "folder/new.txt"):
            with pytest.raises(ToolError, match="permission denied"):
                workspace.write_text(path, "y")


def test_writing_creates_folders_and_keeps_the_mode(workspace: Workspace):
    assert workspace.write_text("a/b/run.sh", "one") == "a/b/run.sh"
    script = workspace.root / "a/b/run.sh"
    script.chmod(0o754)
    workspace.write_text("a/b/run.sh", "two")
    assert script.read_text() == "two"
    assert stat.S_IMODE(script.stat().st_mode) == 0o754


def test_a_new_file_has_the_mode_of_the_umask(workspace: Workspace):
    umask = os.umask(0o027)
    try:
        workspace.write_text("new.txt", "x")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((workspace.root / "new.txt").stat().st_mode) == 0o640


def test_a_failed_write_keeps_the_old_file_only(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    (workspace.root / "a.txt").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="disk is full"):
        workspace.write_text("a.txt", "new")
    assert (workspace.root / "a.txt").read_text() == "old"
    assert [entry.name for entry in workspace.root.iterdir()] == ["a.txt"]


def test_a_hard_link_to_the_outside_is_replaced_not_written_through(
    workspace: Workspace, outside: Path
):
    (workspace.root / "linked").hardlink_to(outside / "secret.txt")
    workspace.write_text("linked", "new")
    assert (outside / "secret.txt").read_text() == "do not read me"


@pytest.mark.parametrize("path", [".", ""])
def test_the_workspace_itself_cannot_be_written(workspace: Workspace, path: str):
    with pytest.raises(ToolError):
        workspace.write_text(path, "x")


PARTS = st.sampled_from(
    ["..", ".", "", "a", "up", "out", "loop", "deep", "~", "\\", "a.txt", "/", "\0", "é", "\ud800"]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(PARTS | st.text(max_size=5), max_size=8), absolute=st.booleans())
@example(parts=["deep", "up", "..", "outside", "secret.txt"], absolute=False)
def test_no_path_resolves_to_the_outside(
    workspace: Workspace, outside: Path, parts: list[str], absolute: bool
):
    root = workspace.root
    (root / "deep/down").mkdir(parents=True, exist_ok=True)
    for link, target in {
        "up": "..",
        "out": str(outside),
        "loop": "loop",
        "deep/up": "../..",
        "deep/in": ".",
    }.items():
        if not (root / link).is_symlink():
            (root / link).symlink_to(target)
    path = ("/" if absolute else "") + "/".join(parts)
    with contextlib.suppress(ToolError):
        real = workspace.resolve(path)
        assert real == root or root in real.parents
        assert os.path.realpath(real) == str(real)
    with contextlib.suppress(ToolError):
        assert "do not read me" not in workspace.read_text(path, LIMIT).text


def test_a_private_file_stays_private_while_it_is_rewritten(tmp_path, monkeypatch):
    (tmp_path / "key").write_text("old")
    (tmp_path / "key").chmod(0o600)
    modes = []
    synced = os.fsync
    monkeypatch.setattr(
        "os.fsync", lambda file: (modes.append(os.fstat(file).st_mode & 0o777), synced(file))
    )
    umask = os.umask(0)
    try:
        Workspace(tmp_path).write_text("key", "new")
    finally:
        os.umask(umask)
    assert modes == [0o600]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_rewriting_keeps_owner_and_group(tmp_path):
    (tmp_path / "shared").write_text("old")
    os.chown(tmp_path / "shared", 65534, 12345)
    (tmp_path / "shared").chmod(0o640)
    Workspace(tmp_path).write_text("shared", "new")
    status = (tmp_path / "shared").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (65534, 12345, 0o640)


def test_group_rights_are_removed_if_the_group_cannot_be_kept(tmp_path, monkeypatch):
    (tmp_path / "shared").write_text("old")
    (tmp_path / "shared").chmod(0o640)
    stat_of = os.stat

    def of_another_group(*args, **kwargs):
        status = stat_of(*args, **kwargs)
        return (
            os.stat_result((*status[:5], status.st_gid + 1, *status[6:]))
            if "dir_fd" in kwargs
            else status
        )

    def refused(*_):
        raise PermissionError

    monkeypatch.setattr("os.stat", of_another_group)
    monkeypatch.setattr("os.fchown", refused)
    Workspace(tmp_path).write_text("shared", "new")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o600
