"""An app over a scripted shell in temporary folders."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input, TextArea
from themed_host import Host
from tui_play import FakeShell

from ecoshell.agent import UserInterface
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.tui.app import ChatApp


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "config", tmp_path / "data", tmp_path / "cache")


@pytest.fixture
def make_app(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ChatApp]:
    """Makes an app over a shell; `gate` holds the shell back until it is set."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(TextArea, "cursor_blink", False)  # pictures must not depend on the time
    monkeypatch.setattr("ecoshell.tui.prompt.bar.monotonic", lambda: 0.0)

    def make(shell: FakeShell, *, gate: asyncio.Event | None = None, **options: object) -> ChatApp:
        async def build(_: Options, person: UserInterface) -> FakeShell:
            if gate is not None:
                await gate.wait()
            shell.person = person
            return shell

        return ChatApp(Options(**({"model": "embedded"} | options)), build=build, paths=paths)

    return make


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore settings and colour variables of the environment, and stop the cursor from blinking."""
    for name in [*os.environ]:
        if name.startswith("ECOSHELL_") or name == "NO_COLOR":
            monkeypatch.delenv(name)
    for field in (Input, TextArea):
        monkeypatch.setattr(field, "cursor_blink", False)


@pytest.fixture
def host(paths: Paths, quiet: None) -> Host:
    """An app with themes and sample data for the screens that open over a chat."""
    return Host(paths)
