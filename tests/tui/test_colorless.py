"""Without colours, none is sent, and selections stay visible."""

import os
import re
import sys
from pathlib import Path

import pexpect
import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import BLACK
from themed_host import Host, segments

from ecoshell.paths import Paths
from ecoshell.tui.themes import Colorless, wants_no_color

COLOR = re.compile(r"\x1b\[[0-9;:]*(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?![0-9])[0-9;:]*m")
REVERSED = re.compile(r"\x1b\[(?:[0-9]+;)*7(?:;[0-9]+)*m")


def plain(style: Style) -> Style:
    (segment,) = Colorless().apply([Segment("x", style)], BLACK)
    assert segment.style is not None
    return segment.style


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({"NO_COLOR": "1"}, False, True),
        ({"NO_COLOR": ""}, True, False),
        ({}, True, False),
        ({"TERM": "xterm-256color"}, True, False),
        ({"TERM": "dumb"}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "vt100"}, True, True),
        ({"TERM": "xterm-mono"}, True, True),
        ({"TERM": "vt100", "COLORTERM": "truecolor"}, True, False),
    ],
)
def test_no_color_and_terminals_without_any_are_respected(
    environ: dict[str, str], terminal: bool, expected: bool
) -> None:
    assert wants_no_color(environ, terminal=terminal) is expected


def test_only_colours_are_removed() -> None:
    text_shown = Style(
        color="red", bgcolor="#101010", bold=True, underline=True, link="https://x"
    ) + Style.from_meta({"a": 1})
    remaining = plain(text_shown)
    assert (remaining.color, remaining.bgcolor) == (None, None)
    assert (remaining.bold, remaining.underline, remaining.link, remaining.meta) == (
        True,
        True,
        "https://x",
        {"a": 1},
    )


@pytest.mark.parametrize(
    ("style", "is_reversed"),
    [
        (Style(bgcolor="#4d4d4d"), True),
        (Style(bgcolor="white", color="black"), True),
        (Style(reverse=True), True),
        (Style(bgcolor="white", reverse=True), True),
        (Style(bgcolor="#1a1a1a"), False),
        (Style(bgcolor="default"), False),
        (Style(color="white"), False),
    ],
)
def test_highlighted_background_is_reversed(style: Style, is_reversed: bool) -> None:
    assert plain(style).reverse is is_reversed


async def test_no_segment_has_colour_and_the_cursor_is_visible(
    paths: Paths, quiet: None, monkeypatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    host = Host(paths)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "down")
        await pilot.pause()
        output = [segment for segment in segments(host) if segment.style is not None]
        assert output
        assert [item for item in output if item.style.color or item.style.bgcolor] == []
        assert any("row 1" in item.text for item in output if item.style.reverse)


async def test_empty_no_color_has_no_effect(paths: Paths, quiet: None, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    host = Host(paths)
    async with host.run_test(size=(80, 24)):
        colors = {
            item.style.color.name for item in segments(host) if item.style and item.style.color
        }
        assert any(
            len({name[1:3], name[3:5], name[5:7]}) > 1 for name in colors
        )  # not only shades of grey
        assert host.theme == "dark"


async def test_colorless_theme_can_be_selected(host: Host) -> None:
    async with host.run_test(size=(80, 24)) as pilot:
        await host.reload_themes()
        host.apply_theme("mono")
        await pilot.pause()
        assert [
            item
            for item in segments(host)
            if item.style and (item.style.color or item.style.bgcolor)
        ] == []
        host.apply_theme("moss")
        await pilot.pause()
        assert any(item.style and item.style.color for item in segments(host))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(
    ("environ", "colored"),
    [({"NO_COLOR": "1"}, False), ({"TERM": "vt100"}, False), ({}, True)],
    ids=["NO_COLOR", "a terminal without", "colours"],
)
def test_terminal_gets_colours_only_if_wanted(
    environ: dict[str, str], colored: bool, tmp_path: Path
) -> None:
    stored = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM")
    }
    child = pexpect.spawn(
        sys.executable,
        ["-m", "ecoshell_bench.speed.first_frame"],
        env={**stored, "TERM": "xterm-256color", "ECOSHELL_HOME": str(tmp_path), **environ},
        dimensions=(24, 80),
        timeout=600,
        encoding="utf-8",
    )
    sent = child.read()
    child.close()
    assert "ecoshell" in sent
    assert bool(COLOR.search(sent)) is colored
    assert colored or REVERSED.search(sent)
