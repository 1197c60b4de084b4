import io
import itertools
import os
import signal
import tracemalloc
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecoshell.errors import ToolError
from ecoshell.tools import ResultSize, ToolOptions, limits_of
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.builtin import files as files_module
from ecoshell.tools.builtin.files import FileTools
from ecoshell.tools.running import contained
from ecoshell.tools.workspace import Workspace
from ecoshell.worker import in_worker


@pytest.fixture
def files(workspace: Workspace) -> FileTools:
    return FileTools(workspace, ToolOptions(result=ResultSize(1_000), file_bytes=10_000))


def write(workspace: Workspace, **texts: str) -> None:
    for name, text in texts.items():
        path = workspace.root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def refusal(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ToolError) as caught:
        function(*arguments, **options)
    return str(caught.value)


def test_a_listing_shows_shallow_entries_first_and_hides_git(
    files: FileTools, workspace: Workspace
):
    write(workspace, a__b__c_txt="deep", a__x_txt="12", z_txt="123", empty="")
    for folder in (".git", ".venv"):
        (workspace.root / folder).mkdir()
        (workspace.root / folder / "inner.txt").write_text("")
    (workspace.root / "link").symlink_to("z.txt")
    os.mkfifo(workspace.root / "pipe")
    assert files.list_files().text.splitlines() == [
        ".venv/  (not entered)",
        "a/",
        "empty  0 bytes",
        "link -> z.txt",
        "pipe  (not a file)",
        "z.txt  3 bytes",
        "a/b/",
        "a/x.txt  2 bytes",
    ]
    assert "a/b/c.txt" in files.list_files(depth=3).text
    assert files.list_files("a", depth=1).text.splitlines() == ["b/", "x.txt  2 bytes"]


def test_a_listing_does_not_follow_links_to_folders(files: FileTools, workspace: Workspace):
    (workspace.root / "inner").mkdir()
    (workspace.root / "loop").symlink_to(".")
    assert files.list_files(depth=50).text.splitlines() == ["inner/", "loop -> ."]


def test_a_long_listing_is_truncated_with_its_length(files: FileTools, workspace: Workspace):
    for number in range(250):
        (workspace.root / f"{number}.txt").touch()
    listing = files.list_files()
    assert listing.truncated
    assert listing.text.endswith("[truncated: 200 of 250 entries shown]")


@pytest.mark.parametrize(
    ("path", "words"),
    [("missing", "no such file"), ("a.txt/b", "not a folder"), ("..", "outside the workspace")],
)
def test_invalid_folders_are_errors(files: FileTools, workspace: Workspace, path: str, words: str):
    write(workspace, a_txt="")
    assert words in refusal(files.list_files, path)


def test_listing_a_file_describes_the_file(files: FileTools, workspace: Workspace):
    write(workspace, a_txt="one\n")
    assert files.list_files("a.txt").text == "a.txt  4 bytes; it is a file, not a folder"


def test_an_empty_folder_is_reported(files: FileTools):
    assert files.list_files().text == "The folder . is empty."
    assert "`depth`" in refusal(files.list_files, depth=0)


def test_names_that_are_not_utf8_are_listed(files: FileTools, workspace: Workspace):
    try:
        (workspace.root / os.fsdecode(b"caf\xe9")).touch()
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    assert "caf" in files.list_files().text


@pytest.mark.skipif(os.name == "nt", reason="names on Windows have no control characters")
def test_a_name_with_a_line_break_is_one_entry(files: FileTools, workspace: Workspace):
    (workspace.root / "a\nsecret.txt  9 bytes").touch()
    assert files.list_files().text.splitlines() == [r"'a\nsecret.txt  9 bytes'  0 bytes"]


def test_a_file_is_read_completely_or_by_lines(files: FileTools, workspace: Workspace):
    write(workspace, a_txt="one\ntwo\x0c\u2028still two\r\nthree")
    assert files.read_file("a.txt").text == "one\ntwo\x0c\u2028still two\r\nthree"
    page = files.read_file("a.txt", 2, 2).text
    assert page == "two\x0c\u2028still two\r\n[lines 2 to 2 of 3; continue with start_line=3]"
    assert files.read_file("a.txt", 3, 99).text == "three"
    assert "lines 1 to 3" in refusal(files.read_file, "a.txt", 4)
    assert "lines 1 to 3" in refusal(files.read_file, "a.txt", 0)
    assert "before" in refusal(files.read_file, "a.txt", 2, 1)


def test_an_empty_file_is_reported(files: FileTools, workspace: Workspace):
    write(workspace, a_txt="")
    assert files.read_file("a.txt").text == "The file a.txt is empty."


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lengths=st.lists(st.integers(0, 700), min_size=1, max_size=12))
def test_following_the_truncation_marks_reads_the_complete_file(
    files: FileTools, workspace: Workspace, lengths: list[int]
):
    text = "".join("x" * length + "\n" for length in lengths)
    write(workspace, a_txt=text)
    start, read = 1, ""
    while True:
        page = files.read_file("a.txt", start)
        assert len(page.text) <= 1_000
        if not page.truncated:
            break
        excerpt, _, mark = page.text.partition("[truncated: ")
        assert f"{len(excerpt)} of {len(text) - len(read)} characters shown]" in mark
        read += excerpt
        start = int(mark.partition("start_line=")[2].rstrip("."))
    assert read + page.text == text


def test_a_long_line_is_truncated(files: FileTools, workspace: Workspace):
    write(workspace, a_txt="x" * 5_000)
    page = files.read_file("a.txt")
    assert page.truncated
    assert "of 5000 characters shown]" in page.text
    assert "start_line" not in page.text


def test_writing_reports_what_was_done(files: FileTools, workspace: Workspace):
    assert files.write_file("new/é.txt", "é\nb\n").text == "new/é.txt created: 2 lines, 5 bytes."
    assert files.write_file("new/é.txt", "one").text == "new/é.txt replaced: 1 line, 3 bytes."
    assert (workspace.root / "new/é.txt").read_text() == "one"


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("a.txt", "x" * 20_000, "too long"),
        ("a.txt", "\ud800", "surrogate"),
        ("folder", "x", "is a folder"),
        ("../a.txt", "x", "outside"),
    ],
)
def test_invalid_writes_are_errors(
    files: FileTools, workspace: Workspace, path: str, content: str, words: str
):
    (workspace.root / "folder").mkdir()
    assert words in refusal(files.write_file, path, content)
    assert [entry.name for entry in workspace.root.iterdir()] == ["folder"]


def test_an_edit_replaces_an_exact_text(files: FileTools, workspace: Workspace):
    write(workspace, a_py="a = 1\nb = 2\nc = 3\n")
    assert (
        files.edit_file("a.py", "b = 2", "b = 4\nd = 5").text
        == "a.py edited at line 2: 1 line replaced by 2 lines."
    )
    assert (workspace.root / "a.py").read_text() == "a = 1\nb = 4\nd = 5\nc = 3\n"


def test_an_edit_keeps_the_files_line_ends(files: FileTools, workspace: Workspace):
    write(workspace, a_txt="one\r\ntwo\r\nthree\r\n")
    files.edit_file("a.txt", "one\ntwo", "1\n2")
    assert (workspace.root / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"
    files.edit_file("a.txt", "2", "2\n2½")
    assert (workspace.root / "a.txt").read_bytes() == "1\r\n2\r\n2½\r\nthree\r\n".encode()


def test_an_edit_that_does_not_match_exactly_once_changes_nothing(
    files: FileTools, workspace: Workspace
):
    text = "first line\nsame\nother\nsame\n"
    write(workspace, a_txt=text)
    assert "2 times in a.txt (lines 2, 4)" in refusal(files.edit_file, "a.txt", "same", "x")
    write(workspace, c_txt="{\n}\n}\n}\n")
    assert "2 times in c.txt (lines 2, 3)" in refusal(files.edit_file, "c.txt", "}\n}\n", "}\n")
    assert "The nearest line is: first line" in refusal(files.edit_file, "a.txt", "frist line", "x")
    assert "read_file" in refusal(files.edit_file, "a.txt", "qqqqqq", "x")
    assert "empty" in refusal(files.edit_file, "a.txt", "", "x")
    assert "no such file" in refusal(files.edit_file, "b.txt", "a", "x")
    assert "too long" in refusal(files.edit_file, "a.txt", "other", "x" * 20_000)
    assert (workspace.root / "a.txt").read_text() == text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "many.txt", "start_line": 900_000}),
        ("edit_file", {"path": "many.txt", "old": "zzz", "new": ""}),
        ("write_file", {"path": "new.txt", "content": "ab\n" * 1_000_000}),
    ],
)
def test_many_short_lines_are_not_split_into_objects(
    workspace: Workspace, tool: str, arguments: dict[str, Any]
):
    """Creating them would block Ctrl-C and the screen."""
    write(workspace, many_txt="ab\n" * 1_000_000)
    files = FileTools(workspace, ToolOptions())
    tracemalloc.start()
    try:
        with suppress(ToolError):
            getattr(files, tool)(**arguments)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@given(
    lines=st.lists(st.sampled_from(["", "x", "yy\r", "é", "z" * 90]), min_size=1, max_size=60),
    size=st.integers(1, 200),
    data=st.data(),
)
def test_any_range_of_lines_matches_the_text(lines: list[str], size: int, data: st.DataObject):
    text = "\n".join(lines)
    all_lines = [*io.StringIO(text, newline="\n")]
    first = data.draw(st.integers(1, max(1, len(all_lines))))
    last = data.draw(st.integers(first, max(first, len(all_lines))))
    if not all_lines:
        return
    with patch.object(files_module, "_SLICE", size), TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        workspace.write_text("a", text)
        wide, narrow = (
            FileTools(workspace, ToolOptions(result=ResultSize(room + 200)))
            for room in (10_000, 100)
        )
        assert wide.read_file("a", first, last).text.startswith(
            "".join(all_lines[first - 1 : last])
        )
        truncated = narrow.read_file("a", first, last).text
    requested = all_lines[first - 1 : last]
    fits = [length for length in itertools.accumulate(map(len, requested)) if length <= 100]
    assert truncated.startswith("".join(requested)[: fits[-1] if fits else 100])


async def test_a_folder_is_listed_in_the_worker(workspace: Workspace):
    worker = in_worker(os.getpid)
    os.kill(worker, signal.SIGSTOP)
    try:
        tools = {
            tool.schema.name: tool
            for tool in builtin_tools(workspace, options=ToolOptions(file_seconds=0.3))
        }
        observation = await contained(tools["list_files"], {}, limits_of(tools["list_files"]))
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
    assert "stopped: it took longer than 0.3 s" in observation.text
