"""Snapshots of the pickers at two sizes and in each state."""

import time
from dataclasses import replace
from decimal import Decimal

import pytest
from picker_play import Stage, read
from textual.widgets import Input
from tui_play import STATUS, FakeShell, eventually

from ecoshell.agent.archive import SessionRow
from ecoshell.budget import ZERO_PRICE, Price, Rates
from ecoshell.models import HERE, ModelRow
from ecoshell.sessions import SessionInfo
from ecoshell.tui.screens.pickers import ModelPicker, SessionPicker

WIDE, NARROW = (120, 36), (80, 24)
NOON = 1_772_000_000.0


def price(fresh: str, cached: str, output: str) -> Price:
    return Price(
        Rates(Decimal(fresh), Decimal(cached), Decimal(fresh), Decimal(output), Decimal(output)),
        source="a file",
    )


MISSING = "Set ANTHROPIC_API_KEY, or store the key with: keyring set ecoshell ANTHROPIC_API_KEY"
WITHOUT_KEY = ModelRow(
    "anthropic/claude-opus-4",
    "anthropic",
    False,
    200_000,
    32_000,
    price("15", "1.5", "75"),
    missing=MISSING,
    at_hand=False,
)
MODELS = (
    ModelRow("embedded", HERE, True, 8192, None, ZERO_PRICE),
    ModelRow("local:/home/ada/.local/share/ecoshell/models/long-name.gguf", HERE, True, 4096, None, ZERO_PRICE),
    ModelRow("openai/gpt-4o", "openai", True, 128_000, 16_384, price("2.5", "1.25", "10")),
    ModelRow("openai/gpt-4o-mini", "openai", True, 128_000, 16_384, price("0.15", "0.075", "0.6")),
    ModelRow("openai/greedy", "openai", True, None, None, None, blocked="it billed more than it may"),
    ModelRow("模型/日本語", "模型", None, 32_000, None, None),
    replace(WITHOUT_KEY, name="anthropic/claude-sonnet-4", price=price("3", "0.3", "15")),
    WITHOUT_KEY,
)  # fmt: skip
TITLES = ("count the words in notes.txt", "日本語のタイトル", "[bold]not bold[/] \x1b[31m", "")
SESSIONS = [
    SessionRow(
        SessionInfo(
            f"k3f{number}-2q",
            title,
            NOON,
            NOON - 86_400 * number,
            "/home/ada/project",
            "openai/gpt-4o",
        ),
        None if number == 2 else 91_200_000 * number,
        3 * number,
        current=number == 0,
    )
    for number, title in enumerate(TITLES)
]


class Listed:
    """An archive that does not change."""

    def __init__(self, rows: list[SessionRow]) -> None:
        self.all = rows

    async def rows(self) -> list[SessionRow]:
        return self.all


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch):
    """Make pictures independent of time and place."""
    monkeypatch.setattr(Input, "cursor_blink", False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def after(*keys: str, text: str = ""):
    """Wait for the rows, type, and wait for a text."""

    async def before(pilot) -> None:
        await read(pilot, pilot.app.shown)
        await pilot.press(*keys)
        await eventually(pilot, lambda: text in pilot.app.text)

    return before


def models() -> Stage:
    return Stage(ModelPicker(FakeShell(known=MODELS, state=replace(STATUS, model="openai/gpt-4o"))))


def sessions(rows: list[SessionRow]) -> Stage:
    return Stage(SessionPicker(FakeShell(archive=Listed(rows))))


def test_models(snap_compare):
    assert snap_compare(models(), terminal_size=WIDE, run_before=after(text="answers up to"))


def test_model_without_a_key(snap_compare):
    assert snap_compare(
        models(), terminal_size=NARROW, run_before=after(*"opus", "enter", text="needs a key for")
    )


def test_sessions(snap_compare):
    assert snap_compare(
        sessions(SESSIONS), terminal_size=WIDE, run_before=after("down", text="日本語")
    )


def test_session_about_to_be_deleted(snap_compare):
    keys = ("down", "down", "delete")
    assert snap_compare(
        sessions(SESSIONS), terminal_size=NARROW, run_before=after(*keys, text="Delete “")
    )
