"""Themes from files."""

import os

import pytest
from textual.color import Color
from textual.theme import Theme
from themed_host import Host
from tui_play import FakeShell, eventually

from ecoshell.paths import Paths
from ecoshell.tui.themes import load_theme, load_themes, selected_theme
from ecoshell.tui.transcript.view import Transcript


def wanting(paths: Paths, theme: str) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text(f'[tui]\ntheme = "{theme}"\n')


def by_name(paths: Paths) -> dict[str, Theme]:
    return {theme.name: theme for theme in load_themes(paths).all}


def test_dark_is_the_default_theme(paths):
    assert selected_theme(paths) == "dark"
    wanting(paths, "light")
    assert selected_theme(paths) == "light"
    assert not by_name(paths)["light"].dark


def test_user_theme_overrides_a_shipped_one(paths):
    folder = paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "dark.toml").write_text('[colors]\nprimary = "#123456"\n')
    assert by_name(paths)["dark"].primary == "#123456"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("colors = 1", "no [colors]"),
        ('[colors]\nprimary = "blurple"', "is not a color"),
        ('[colors]\nprimry = "red"', "unknown color 'primry'"),
        ('[colors]\naccent = "red"', "no color 'primary'"),
        ("[colors", "cannot be used"),
        ('drak = true\n[colors]\nprimary = "red"', "unknown key 'drak'; did you mean 'dark'?"),
        ('dark = "yes"\n[colors]\nprimary = "red"', "dark must be true or false"),
        (
            '[colors]\nprimary = "red"\n[syntax]\nkeywrd = "red"',
            "unknown color 'keywrd'; did you mean 'keyword'?",
        ),
        ('[colors]\nprimary = "red"\n[diff]\nadded = "rgb(1"', "added = 'rgb(1' is not a color"),
        ('[colors]\nprimary = "red 50%"', "is not a color"),
        ('[colors]\nprimary = "ansi_red"', "is not a color"),
        ("[colors]\nprimary = 5", "is not a color"),
        ('syntax = 3\n[colors]\nprimary = "red"', "syntax is not a table"),
        ("x = " + "[" * 5_000, "cannot be used"),
    ],
)
def test_broken_theme_is_reported_and_others_work(paths, text: str, complaint: str):
    folder = paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(text)
    themes = load_themes(paths)
    assert "mine.toml" in themes.complaints[0]
    assert complaint in themes.complaints[0]
    assert {"dark", "light"} <= {theme.name for theme in themes.all}


def test_invalid_theme_files_and_names_are_reported(paths):
    folder = paths.config / "themes"
    (folder / "folder.toml").mkdir(parents=True)
    (folder / "latin.toml").write_bytes(b'[colors]\nprimary = "\xff"\n')
    (folder / "my theme.toml").write_text('[colors]\nprimary = "red"\n')
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.toml")  # reading it would block
    complaints = " ".join(load_themes(paths).complaints)
    assert "folder.toml cannot be used: it is not a file" in complaints
    assert "latin.toml cannot be used: it is not UTF-8" in complaints
    assert "my theme.toml cannot be used: a theme's name has letters" in complaints
    assert not hasattr(os, "mkfifo") or "pipe.toml cannot be used: it is not a file" in complaints


def test_theme_needs_only_one_colour(paths):
    folder = paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_bytes(b'\xef\xbb\xbfdark = false\n[colors]\nprimary = "navy"\n')
    mine = by_name(paths)["mine"]
    assert (mine.accent, mine.secondary) == (mine.primary, mine.primary)
    assert mine.variables["syntax-keyword"] == mine.primary
    assert Color.parse(mine.background or "").brightness > 0.8
    assert set(mine.variables) == set(by_name(paths)["dark"].variables)


def test_environment_overrides_the_settings_file(paths, monkeypatch):
    wanting(paths, "light")
    monkeypatch.setenv("ECOSHELL_TUI_THEME", "moss")
    assert selected_theme(paths) == "moss"
    assert load_theme(paths, "moss").name == "moss"


@pytest.mark.parametrize("name", ["drak", "../config", "", "a/b", "\0"])
def test_first_frame_has_a_theme_with_any_settings(paths, name):
    assert load_theme(paths, name).name == "dark"


async def test_first_frame_uses_the_selected_theme(paths, quiet):
    wanting(paths, "light")
    host = Host(paths)
    async with host.run_test():
        assert host.theme == "light"
        assert host.screen.styles.background == Color.parse(
            by_name(paths)["light"].background or ""
        )


async def test_unknown_theme_is_reported_on_the_screen(make_app, paths):
    wanting(paths, "drak")
    app = make_app(FakeShell())
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(
            pilot, lambda: "Unknown theme 'drak'" in app.chat.query_one(Transcript).column.plain
        )
        assert app.theme == "dark"
