import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ecoshell.errors import ToolError
from ecoshell.tools.base import ToolOptions
from ecoshell.tools.builtin import search as search_module
from ecoshell.tools.builtin.search import SearchTools
from ecoshell.tools.workspace import Workspace


@pytest.fixture
def count(workspace: Workspace) -> SearchTools:
    return SearchTools(workspace, ToolOptions())


def test_a_file_is_counted_under_its_name(count: SearchTools, workspace: Workspace):
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


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from("ab é\n\t😀"), max_size=40), chunk=st.integers(1, 7))
@example(text="one two", chunk=3)
def test_counting_in_pieces_finds_what_counting_at_once_finds(
    count: SearchTools, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, text: str, chunk: int
):
    monkeypatch.setattr(search_module, "_CHUNK", chunk)
    (workspace.root / "a.txt").write_bytes(text.encode())
    assert count.count_text("a.txt") == f"a.txt: {count.count_text(text=text)}"
    assert f" {len(text.split())} word" in count.count_text(text=text)


@pytest.mark.parametrize(
    ("data", "words"), [(b"a\0", "binary"), (b"\xff\xfe", "not UTF-8"), ("é".encode()[:1], "not UTF-8")]
)
def test_what_is_not_text_is_not_counted(count: SearchTools, workspace: Workspace, data: bytes, words: str):
    (workspace.root / "a").write_bytes(data)
    with pytest.raises(ToolError, match=words):
        count.count_text("a")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="ab\n", max_size=40),
    sought=st.text(alphabet="ab", min_size=1, max_size=3),
    chunk=st.integers(1, 7),
)
@example(text="aaa", sought="aa", chunk=1)
def test_with_a_file_a_text_is_what_is_counted_in_it(
    count: SearchTools, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, text: str, sought: str, chunk: int
):
    monkeypatch.setattr(search_module, "_CHUNK", chunk)
    (workspace.root / "a.txt").write_bytes(text.encode())
    number = text.count(sought)
    times = f"{number} time{'' if number == 1 else 's'}"
    assert count.count_text("a.txt", sought) == f"a.txt: {count.count_text(text=text)}; {sought!r} occurs {times}"


def test_a_file_or_a_text_is_counted(count: SearchTools):
    with pytest.raises(ToolError, match="Give `path`"):
        count.count_text()
    with pytest.raises(ToolError, match="no such file"):
        count.count_text("a", "b")
