"""The command palette, driven by keys."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from textual.app import App
from textual.binding import Binding
from textual.command import CommandList, CommandPalette
from textual.screen import Screen
from textual.widgets import Input
from tui_play import FakeShell, eventually

from ecoshell.budget import ZERO_PRICE
from ecoshell.errors import StoreError
from ecoshell.models import HERE, ModelRow
from ecoshell.tui.screens.palette import ChatCommands


def session(title: str, *, current: bool = False) -> SimpleNamespace:
    info = SimpleNamespace(id=f"id-{title[:3]}", title=title, updated_text="2026-03-04 05:06")
    return SimpleNamespace(info=info, current=current)


@dataclass
class Shelf:
    """An archive that only lists."""

    sessions: list[SimpleNamespace] = field(default_factory=list)
    broken: bool = False

    async def rows(self) -> list[SimpleNamespace]:
        if self.broken:
            raise StoreError("The file is damaged.")
        return self.sessions


class DeskScreen(Screen[None]):
    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("f2", "panels", "panels", tooltip="show or hide the side panels"),
        Binding("escape", "stop", "stop"),
        Binding("f9", "secret", "secret", show=False),
        Binding("f8", "panels", "hidden", tooltip="found by name only", show=False),
    ]

    def __init__(self, shell: FakeShell | None) -> None:
        super().__init__()
        self.shell = shell
        self.did: list[str] = []

    def compose(self):
        yield Input()

    def check_action(self, action, parameters):
        return None if action == "stop" else True

    @property
    def overview(self) -> list[tuple[str, str]]:
        return self.shell.overview() if self.shell else []

    def action_panels(self) -> None:
        self.did.append("panels")

    def action_run(self, line: str) -> None:
        self.did.append(line)

    def action_show_tool(self, tool: str) -> None:
        self.did.append(f"document {tool}")

    def begin(self, text: str) -> None:
        self.did.append(f"begin {text!r}")


class DeskApp(App[None]):
    COMMANDS = {ChatCommands}  # noqa: RUF012 - as Textual declares it

    def __init__(self, shell: FakeShell | None) -> None:
        super().__init__()
        self.desk = DeskScreen(shell)

    def get_default_screen(self) -> Screen[None]:
        return self.desk


MODELS = (
    ModelRow("embedded", HERE, True, 8192, None, ZERO_PRICE),
    ModelRow("openai/gpt-4o", "openai", False, 128_000, None, None, missing="Set OPENAI_API_KEY"),
)


def shell(**more: object) -> FakeShell:
    shelf = Shelf(
        [session("fix the readme"), session("count [bold]words"), session("this one", current=True)]
    )
    return FakeShell(known=MODELS, archive=shelf, **more)


def offers(app: App) -> list[str]:
    if not isinstance(app.screen, CommandPalette):
        return []
    return [str(option.prompt) for option in app.screen.query_one(CommandList).options]


def first(app: App) -> str:
    matches = offers(app)
    return matches[0].split("\n")[0] if matches else ""


async def opened(pilot) -> None:
    await pilot.press("ctrl+p")
    await eventually(pilot, lambda: offers(pilot.app))


async def test_palette_starts_with_keys_commands_and_recent_sessions():
    app = DeskApp(shell())
    async with app.run_test(size=(120, 60)) as pilot:
        await opened(pilot)
        await eventually(pilot, lambda: any("fix the readme" in offer for offer in offers(app)))
        names = [offer.split("\n")[0] for offer in offers(app)]
        assert "panels" in names
        assert "hidden" in names
        assert "secret" not in names
        assert "stop" not in names
        assert "/budget [SCOPE] [AMOUNT|off]" in names
        assert "resume “count [bold]words”" in names
        assert not any("this one" in name for name in names)
        helps = "\n".join(offers(app))
        assert "show or hide the side panels · f2" in helps


@pytest.mark.parametrize(
    ("typed", "name", "did"),
    [
        ("panels", "panels", "panels"),
        ("/help", "/help", "/help"),
        ("/budget", "/budget [SCOPE] [AMOUNT|off]", "/budget"),
        ("/register", "/register NAME", "begin '/register '"),
        ("/resume", "/resume ID", "/resume"),
        ("register read", "register read_file", "/register read_file"),
        ("unregister count", "unregister count_text", "/unregister count_text"),
        ("schema read", "schema of read_file", "document read_file"),
        ("readme", "resume “fix the readme”", "/resume id-fix"),
        ("model embedded", "model embedded", "/model embedded"),
    ],
)
async def test_typed_entry_is_found_and_run(typed, name, did):
    app = DeskApp(shell())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press(*typed)
        await eventually(pilot, lambda: first(app) == name)
        await pilot.press("enter")
        await eventually(pilot, lambda: app.desk.did)
    assert app.desk.did == [did]


async def test_unavailable_model_is_not_listed():
    app = DeskApp(shell())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press(*"model gpt")
        await eventually(pilot, lambda: not any("embedded" in offer for offer in offers(app)))
        assert not any("gpt-4o" in offer for offer in offers(app))


async def test_unreadable_sessions_do_not_hide_other_entries():
    app = DeskApp(FakeShell(known=MODELS, archive=Shelf(broken=True)))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press(*"embedded")
        await eventually(pilot, lambda: "embedded" in first(app))
        assert first(app) == "model embedded"


async def test_keys_are_listed_before_the_shell_is_open():
    app = DeskApp(None)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert first(app) == "panels"
        assert not any(offer.startswith("/") for offer in offers(app))


async def test_over_other_screens_their_keys_are_listed():
    class Plain(Screen[None]):
        BINDINGS = [Binding("f7", "wave", "wave")]  # noqa: RUF012 - as Textual declares it
        waved = 0

        def action_wave(self) -> None:
            self.waved += 1

    app, plain = DeskApp(shell()), Plain()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(plain)
        await opened(pilot)
        await pilot.press(*"wave")
        await eventually(pilot, lambda: first(app) == "wave")
        await pilot.press("enter")
        await eventually(pilot, lambda: plain.waved)
    assert (plain.waved, app.desk.did) == (1, [])


async def test_only_the_best_of_many_models_are_listed_quickly():
    many = [
        ModelRow(f"provider/model-{number}", "provider", True, None, None, None)
        for number in range(3_000)
    ]
    app = DeskApp(FakeShell(known=many, archive=Shelf()))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press(*"model 2999")
        await eventually(pilot, lambda: first(app) == "model provider/model-2999")
        assert len(offers(app)) < 40


async def test_hostile_names_are_escaped():
    bad = ModelRow("[red]evil\x1b[31m", "x", True, None, None, None)
    app = DeskApp(FakeShell(known=(bad,), archive=Shelf()))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press(*"evil")
        await eventually(pilot, lambda: first(app) == "model [red]evil␛[31m")
        await pilot.press("enter")
        await eventually(pilot, lambda: app.desk.did)
    assert app.desk.did == ["/model [red]evil\x1b[31m"]
