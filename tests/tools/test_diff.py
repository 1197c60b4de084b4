import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.tools.diffs import unified

LINES = st.lists(st.sampled_from("abc"), max_size=14)


def patched(old: list[str], diff: str) -> list[str]:
    """Apply a unified diff."""
    new: list[str] = []
    position = 0
    for line in diff.splitlines()[2:]:
        if header := re.match(r"@@ -(\d+)(?:,(\d+))? \+", line):
            start = int(header[1]) - (0 if header[2] == "0" else 1)
            new += old[position:start]
            position = start
        elif line.startswith(" "):
            assert old[position] == line[1:]
            new.append(line[1:])
            position += 1
        elif line.startswith("-"):
            assert old[position] == line[1:]
            position += 1
        else:
            new.append(line[1:])
    return new + old[position:]


@given(old=LINES, new=LINES)
def test_the_diff_transforms_the_old_text_into_the_new(old: list[str], new: list[str]):
    if old == new:
        assert unified("a", "\n".join(old), "\n".join(new)) == ""
    else:
        old_text, new_text = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
        assert patched(old, unified("a", old_text, new_text)) == new


def test_a_new_file_has_its_own_header():
    assert unified("a.txt", None, "x\n") == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x"


def test_a_change_far_down_is_shown_with_context_and_line_numbers():
    text = "".join(f"{number}\n" for number in range(1, 10_001))
    diff = unified("a.txt", text, text.replace("9000\n", "nine thousand\n"))
    assert diff.splitlines()[2:] == [
        "@@ -8997,7 +8997,7 @@", " 8997", " 8998", " 8999", "-9000", "+nine thousand", " 9001", " 9002", " 9003",
    ]  # fmt: skip


def test_changed_line_ends_are_reported():
    assert unified("a.txt", "a\r\n", "a\n").endswith("only line ends changed")
    assert unified("a.txt", None, "").endswith("the file is empty")


def test_only_line_feeds_separate_lines():
    assert (
        unified("a.txt", "a\fb\u2028c\nd\n", "a\fb\u2028c\ne\n").splitlines(keepends=False)[-1]
        == "+e"
    )
    assert "@@ -1,2 +1,2 @@" in unified("a.txt", "a\fb\u2028c\nd\n", "a\fb\u2028c\ne\n")


def test_a_large_change_is_not_compared_line_by_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "ecoshell.tools.diffs._SECONDS", 60.0
    )  # comparing all lines would take hours
    diff = unified("a.txt", "x\n" * 500_000, "y\n" * 500_000)
    assert diff.endswith("[truncated: the diff continues]")
    assert len(diff) < 50_000
    assert unified("a.txt", None, "x" * 1_000_000).count("…") == 1
