"""Parsing and layout of Markdown: pieces give the same result as the complete text, and no character is lost."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.style import Style

from ecoshell.tui.transcript.blocks import MAX_SECTION_LENGTH, TONES, Section
from ecoshell.tui.transcript.inline import highlighted, inline
from ecoshell.tui.transcript.markdown import Code, MarkdownReader, Part, Table
from ecoshell.tui.transcript.painting import PaintedLine, Painter

MARKDOWN = st.lists(
    st.sampled_from(
        ["- ", "1. ", "2) ", "> ", "# ", "```", "```python\n", "~~~", "---", "===", "| a | b |\n", "|---|:-:|\n", "**",
         "`", "*", "[", "](http://a.b)", "<b>", "\n", "\n\n", "  ", "    ", "\t", "word", "数", "x" * 50, "\\", "&amp;"]
    ),
    max_size=60,
)  # fmt: skip


def painted(markdown: str, width: int = 60) -> str:
    painter = Painter(dict.fromkeys(TONES, Style()), width)
    return "\n".join(
        line.strip.text.rstrip() for part in read([markdown]) for line in painter.paint(part)
    )


def text_of(lines: Iterable[PaintedLine]) -> str:
    """The copied text of painted lines."""
    return "".join(
        [part for line in lines for part in ("\n" if line.glue is None else line.glue, line.text)][
            1:
        ]
    )


def read(pieces: list[str]) -> list[Section]:
    reader = MarkdownReader()
    done = [part for piece in pieces for part in reader.feed(piece)]
    return [*done, *reader.feed("", last=True)]


@settings(deadline=None)  # can be slow on a busy machine
@given(MARKDOWN, st.integers(1, 7))
def test_markdown_in_pieces_reads_like_one_text(bits: list[str], step: int):
    text = "".join(bits)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    assert read(pieces) == read([text])


@settings(deadline=None)  # can be slow on a busy machine
@given(MARKDOWN)
def test_tail_does_not_change_the_reader(bits: list[str]):
    reader = MarkdownReader()
    done: list[Section] = []
    for bit in bits:
        done += reader.feed(bit)
        reader.tail()
    assert [*done, *reader.feed("", last=True)] == read(["".join(bits)])


@settings(deadline=None)  # can be slow on a busy machine
@given(MARKDOWN, st.integers(11, 80))
def test_broken_markdown_loses_no_word(bits: list[str], width: int):
    text = "".join(bits)
    without_languages = re.sub(r"(?m)^.*(?:`{3,}|~{3,})[^`\n]*$", "", text)
    assert painted(text, width).count("数") >= without_languages.count("数")


@pytest.mark.parametrize(
    ("markdown", "output"),
    [
        ("**bold** and *soft*", "   bold and soft"),
        (
            "a/__init__.py\n__main__ and __two words__",
            "   a/__init__.py\n   __main__ and two words",
        ),
        ("one\ntwo  \nthree", "   one\n   two\n   three"),
        ("# Title\ntext", "   Title\n\n   text"),
        ("Title\n---\ntext", "   Title\n\n   text"),
        ("- a\n- b\n  - c\n\n  more of c", "   • a\n   • b\n     • c\n\n     more of c"),
        ("1. a\n2. b\n10. c", "   1. a\n   2. b\n   10. c"),
        ("the year\n1984. was", "   the year\n   1984. was"),
        ("> said\nso\n>> deeper", "   ▌ said\n   ▌ so\n\n   ▌ ▌ deeper"),
        ("```py\na = 1\n\nb\n```\nafter", "   │ a = 1\n   │\n   │ b\n\n   after"),
        ("    code\n      more\n\ntext", "   │ code\n   │   more\n\n   text"),
        ("- a\n  ```\n  x\n  ```\n- b", "   • a\n\n     │ x\n   • b"),
        ("| a | b |\n|---|--:|\n| c | dd |", "   a │  b\n   ──┼───\n   c │ dd"),
        ("a\n\n***\n\nb", f"   a\n\n   {'─' * 57}\n\n   b"),
        ("<b>html</b> &amp; [ref][x]", "   <b>html</b> & [ref][x]"),
        ("an open ```fence", "   an open ```fence"),
    ],
)
def test_markdown_is_formatted(markdown: str, output: str):
    assert painted(markdown) == output


def test_wide_table_wraps_its_cells():
    output = painted(
        "| name | what it does |\n|---|---|\n| grep | " + "finds lines " * 20 + "|", width=40
    )
    assert max(map(len, output.splitlines())) <= 40
    assert output.count("finds") == 20


def test_bar_after_a_very_long_paragraph_is_text():
    assert painted(("word " * 300 + "\n") * 2 + "a | b").endswith(" a | b")


def test_extra_cells_are_shown():
    assert "extra" in painted("| a | b |\n|---|---|\n| 1 | 2 | extra |")


def test_long_table_repeats_its_header():
    parts = read(["| a |\n|---|\n" + "| x |\n" * 100])
    assert all(isinstance(part, Table) and part.lines[0] == "| a |" for part in parts)
    assert sum(len(part.lines) - 2 for part in parts if isinstance(part, Table)) == 100


def test_long_code_continues_in_the_lexer_state():
    lines = [
        *(f"x = {n}" for n in range(30)),
        'text = """',
        *("    still a string" for _ in range(20)),
        '"""',
        "x = 1",
    ]
    parts = read(["```python\n" + "\n".join(lines) + "\n```"])
    assert [line for part in parts if isinstance(part, Code) for line in part.lines] == lines
    assert len(parts) > 1
    tones = {
        piece.tone for row in parts[1].rows(80) for piece in row.pieces if "still" in piece.text
    }
    assert tones == {"string"}


@pytest.mark.parametrize(
    "text",
    ["word " * 20_000, "x" * 100_000, "```\n" + "y" * 100_000, "> " + "z " * 50_000],
    ids=["words", "one word", "code", "quote"],
)
def test_endless_line_is_split_and_rejoined_when_copied(text: str):
    painter = Painter(dict.fromkeys(TONES, Style()), 80)
    parts = read([text])
    assert (
        max(sum(map(len, part.lines)) for part in parts if isinstance(part, Part))
        <= MAX_SECTION_LENGTH
    )
    copied = text_of(line for part in parts for line in painter.paint(part))
    same = copied == text.removeprefix("```\n").removeprefix("> ").rstrip()
    assert same  # the texts are too long for an assertion report


def test_wrapped_lines_are_copied_joined_without_signs():
    painter = Painter(dict.fromkeys(TONES, Style()), 30)
    lines = [
        line for part in read(["- " + "some words " * 12 + "\n- b"]) for line in painter.paint(part)
    ]
    assert len(lines) > 3
    assert text_of(lines) == ("some words " * 12).strip() + "\nb"


def test_link_shows_its_address_and_only_safe_ones_open():
    (bank,) = inline("[your bank](https://evil.example)")
    assert "".join(piece.text for piece in bank) == "your bank (https://evil.example)"
    assert {piece.link for piece in bank} == {"https://evil.example"}
    for hostile in (
        "[x](javascript:alert(1))",
        "[x](file:///etc/passwd)",
        "[x](ssh://host)",
        "[x](https://a\x1b]8;;b)",
    ):
        assert not any(piece.link for line in inline(hostile) for piece in line)


def test_markdown_entities_cannot_control_the_terminal():
    output = painted("a &#27;[2J b &#x202e; c `\x1b[2J`")
    assert "\x1b" not in output
    assert "\u202e" not in output


@pytest.mark.parametrize(
    ("language", "code", "tone"),
    [
        ("python", 'x = """a\nb"""', "string"),
        ("js", "/* it's\n b */ let x", "comment"),
        ("rust", "/* a\n b */ fn x() {}", "comment"),
        ("diff", "-a\n-b", "removed"),
    ],
)
def test_highlighting_continues_across_lines(language: str, code: str, tone: str):
    first, second = highlighted(code.split("\n"), language)
    assert tone in {piece.tone for piece in first}
    assert second[0].tone == tone


@given(
    st.sampled_from(
        ["python", "js", "bash", "json", "html", "ruby", "sql", "yaml", "c", "markdown", "nonsense"]
    ),
    st.lists(st.text(alphabet="ab \"'`/*#<>{}()\\=1$:-", max_size=20), max_size=8),
)
@settings(deadline=None)  # lexers are loaded on first use
def test_highlighting_changes_no_character(language: str, lines: list[str]):
    assert ["".join(piece.text for piece in line) for line in highlighted(lines, language)] == lines


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("bibtex", "  year = 1984"),
        ("bibtex", "}"),
        ("mcschema", "<!--"),
        ("python", "def f(): return 'x'"),
    ],
)
def test_failing_or_endless_lexer_leaves_a_line_plain(language: str, line: str) -> None:
    """Some lexers of Pygments support only complete texts, and one loops forever."""
    output = [*highlighted(["@article{knuth84,", line], language)]
    assert "".join(piece.text for piece in output[-1]) == line
