import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.tools.diffs import unified

LINES = st.lists(st.sampled_from("abc"), max_size=14)


def patched(before: list[str], diff: str) -> list[str]:
    """The text a unified diff makes of another."""
    after: list[str] = []
    at = 0
    for line in diff.splitlines()[2:]:
        if found := re.match(r"@@ -(\d+)(?:,(\d+))? \+", line):
            start = int(found[1]) - (0 if found[2] == "0" else 1)
            after += before[at:start]
            at = start
        elif line.startswith(" "):
            assert before[at] == line[1:]
            after.append(line[1:])
            at += 1
        elif line.startswith("-"):
            assert before[at] == line[1:]
            at += 1
        else:
            after.append(line[1:])
    return after + before[at:]


@given(before=LINES, after=LINES)
def test_the_diff_makes_the_new_text_of_the_old(before: list[str], after: list[str]):
    if before == after:
        assert unified("a", "\n".join(before), "\n".join(after)) == ""
    else:
        old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
        assert patched(before, unified("a", old, new)) == after


def test_a_new_file_is_told_as_one():
    assert unified("a.txt", None, "x\n") == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x"


def test_a_change_far_down_is_shown_with_its_lines_around_and_their_numbers():
    before = "".join(f"{number}\n" for number in range(1, 10_001))
    shown = unified("a.txt", before, before.replace("9000\n", "nine thousand\n"))
    assert shown.splitlines()[2:] == [
        "@@ -8997,7 +8997,7 @@", " 8997", " 8998", " 8999", "-9000", "+nine thousand", " 9001", " 9002", " 9003",
    ]  # fmt: skip


def test_changed_line_ends_are_not_passed_over():
    assert unified("a.txt", "a\r\n", "a\n").endswith("only line ends changed")
    assert unified("a.txt", None, "").endswith("the file is empty")


def test_only_line_ends_end_lines():
    assert unified("a.txt", "a\fb\u2028c\nd\n", "a\fb\u2028c\ne\n").splitlines(keepends=False)[-1] == "+e"
    assert "@@ -1,2 +1,2 @@" in unified("a.txt", "a\fb\u2028c\nd\n", "a\fb\u2028c\ne\n")


def test_a_large_change_is_bounded_and_needs_no_comparison_of_every_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ecoshell.tools.diffs._SECONDS", 60.0)  # comparing them all would take hours
    shown = unified("a.txt", "x\n" * 500_000, "y\n" * 500_000)
    assert shown.endswith("[truncated: the diff continues]")
    assert len(shown) < 50_000
    assert unified("a.txt", None, "x" * 1_000_000).count("…") == 1
