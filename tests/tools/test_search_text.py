import threading

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools import ToolOptions
from ecoshell.tools.builtin.search import SearchTools
from ecoshell.tools.workspace import Workspace


@pytest.fixture
def search(workspace: Workspace) -> SearchTools:
    (workspace.root / "docs").mkdir()
    (workspace.root / "docs/notes.txt").write_text("One\n  two TODO, todo again  \n\nthree (x)\n")
    (workspace.root / "main.py").write_text("# todo\n")
    return SearchTools(workspace, ToolOptions(file_bytes=100_000))


def test_each_matching_line_is_listed_once_with_file_number_and_indentation(search: SearchTools):
    assert search.search_text("todo").text.splitlines() == [
        "main.py:1: # todo",
        "docs/notes.txt:2:   two TODO, todo again",
    ]


def test_a_capital_letter_makes_the_search_case_sensitive(search: SearchTools):
    assert search.search_text("TODO").text == "docs/notes.txt:2:   two TODO, todo again"


def test_plain_text_is_literal_unless_regex_is_set(search: SearchTools):
    assert search.search_text("(x)").text == "docs/notes.txt:4: three (x)"
    assert (
        search.search_text(r"^\s*t\w+", regex=True).text.splitlines()[0]
        == "docs/notes.txt:2:   two TODO, todo again"
    )


def test_line_ends_are_not_part_of_a_line(search: SearchTools):
    assert search.search_text("^$", regex=True).text == "docs/notes.txt:3: "
    (search._workspace.root / "dos.txt").write_bytes(b"alpha\r\ngamma\r\n")
    assert search.search_text("gamma$", "dos.txt", regex=True).text == "dos.txt:2: gamma"
    assert search.search_text("alpha\r\ngam", "dos.txt").text == "dos.txt:1: alpha"


def test_a_long_line_is_shown_around_the_match(search: SearchTools):
    (search._workspace.root / "long.js").write_text("a" * 1_000 + "needle" + "b" * 1_000)
    assert search.search_text("needle").text == "long.js:1: " + "a" * 80 + "needle" + "b" * 154


def test_a_search_is_limited_to_its_folder_or_file(search: SearchTools):
    assert search.search_text("todo", "docs").text.startswith("docs/notes.txt:2:")
    assert search.search_text("todo", "main.py").text == "main.py:1: # todo"
    with pytest.raises(ToolError, match="outside the workspace"):
        search.search_text("todo", "..")
    with pytest.raises(ToolError, match="no such file"):
        search.search_text("todo", "missing")


def test_a_search_without_a_match_gives_a_hint(search: SearchTools):
    assert (
        search.search_text("zebra", "docs").text
        == "No match for 'zebra' in docs; use list_files to see the files."
    )


def test_a_short_file_without_a_match_is_shown(search: SearchTools, workspace: Workspace):
    assert (
        search.search_text("zebra", "main.py").text
        == "No match for 'zebra' in main.py, which contains:\n# todo\n"
    )
    (workspace.root / "long.txt").write_text("line\n" * 1_000)
    assert (
        search.search_text("zebra", "long.txt").text
        == "No match for 'zebra' in long.txt; use read_file to see its text."
    )


def test_binary_large_and_hidden_files_and_links_are_skipped(
    search: SearchTools, workspace: Workspace, outside
):
    (workspace.root / "binary").write_bytes(b"todo\0")
    (workspace.root / "large").write_text("todo\n" * 100_000)
    (workspace.root / ".git").mkdir()
    (workspace.root / ".git/config").write_text("todo")
    (workspace.root / "link").symlink_to(outside / "secret.txt")
    (workspace.root / "latin").write_bytes("café todo".encode("latin-1"))
    *lines, note = search.search_text("todo|read me", regex=True).text.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["latin", "main.py", "docs/notes.txt"]
    assert note == "[not searched, larger than 100,000 bytes: large]"
    assert search.search_text("zebra").text.endswith(f"see the files.\n{note}")


def test_many_matches_are_truncated(search: SearchTools, workspace: Workspace):
    (workspace.root / "many.txt").write_text("match\n" * 500)
    result = search.search_text("match")
    assert result.truncated
    assert len(result.text.splitlines()) == 101
    assert "[truncated: the first 100" in result.text


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "not a regular expression"),
        ("(" * 900, "not a regular"),
        ("", "1 to 1000"),
        ("x" * 1001, "1 to"),
    ],
)
def test_invalid_patterns_are_explained(search: SearchTools, pattern: str, words: str):
    with pytest.raises(ToolError, match=words):
        search.search_text(pattern, regex=True)


def test_a_timeout_names_the_pattern_as_typed(search: SearchTools, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ecoshell.tools.builtin.search._REGEX_SECONDS", 1e-9)
    with pytest.raises(ToolError, match="'two words' takes too long"):
        search.search_text("two words")


def test_a_catastrophic_pattern_is_stopped_and_does_not_block_threads(
    search: SearchTools, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ecoshell.tools.builtin.search._REGEX_SECONDS", 1.0)
    (workspace.root / "evil.txt").write_text("a" * 60 + "b")
    done, turns = threading.Event(), list[None]()

    def watch() -> None:
        while not done.wait(0.001):
            turns.append(None)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(ToolError, match="too long to match"):
            search.search_text(r"(a|aa)+$", "evil.txt", regex=True)
    finally:
        done.set()
        watcher.join()
    assert len(turns) > 3


@pytest.fixture
def count(workspace: Workspace) -> SearchTools:
    return SearchTools(workspace, ToolOptions())


def test_counting_a_file_names_it(count: SearchTools, workspace: Workspace):
    (workspace.root / "README.md").write_text("# Title\n\nTwo words é\n")
    assert count.count_text("README.md") == "README.md: 3 lines, 5 words, 21 characters, 22 bytes"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", "0 lines, 0 words, 0 characters, 0 bytes"),
        ("a", "1 line, 1 word, 1 character, 1 byte"),
        ("a\n", "1 line, 1 word, 2 characters, 2 bytes"),
        ("a b\nc", "2 lines, 3 words, 5 characters, 5 bytes"),
    ],
)
def test_a_text_is_counted(count: SearchTools, text: str, counts: str):
    assert count.count_text(text=text) == counts


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"a\0", "binary"), (b"\xff\xfe", "not UTF-8"), ("é".encode()[:1], "not UTF-8")],
)
def test_binary_files_are_not_counted(
    count: SearchTools, workspace: Workspace, data: bytes, words: str
):
    (workspace.root / "a").write_bytes(data)
    with pytest.raises(ToolError, match=words):
        count.count_text("a")


@pytest.mark.parametrize(
    ("target", "times"), [("a", "4 times"), ("aa", "1 time"), ("c", "0 times")]
)
def test_occurrences_of_a_text_in_a_file_are_counted(
    count: SearchTools, workspace: Workspace, target: str, times: str
):
    (workspace.root / "a.txt").write_text("aaa\nab\n")
    assert count.count_text("a.txt", target) == (
        f"a.txt: 2 lines, 2 words, 7 characters, 7 bytes; {target!r} occurs {times}"
    )


def test_counting_requires_a_file_or_a_text(count: SearchTools):
    with pytest.raises(ToolError, match="Give `path`"):
        count.count_text()
    with pytest.raises(ToolError, match="no such file"):
        count.count_text("a", "b")
