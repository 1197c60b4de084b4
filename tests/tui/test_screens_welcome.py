"""The welcome block, and the choice of a model at the first start."""

import re

import pytest
from tui_play import FakeShell, eventually

from ecoshell.agent.slash_commands import COMMANDS
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.models import StartingModel
from ecoshell.models.local_build import LocalBuild
from ecoshell.tui.commands import THEME
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.screens.start_question import StartQuestion
from ecoshell.tui.screens.welcome import is_first_start, requests_block, welcome_block
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.transcript.view import Transcript

OFFERS = (
    StartingModel("ollama/qwen3:8b", "server", "running in Ollama"),
    StartingModel(
        "hf:unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", "download", "download: about 2.5 GB"
    ),
    StartingModel("embedded", "demo", "built-in demo"),
)


def test_welcome_takes_two_lines_and_names_the_cap_and_the_models():
    text = welcome_block("1.2").text()
    assert text.startswith("ecoshell 1.2")
    assert text.count("\n") == 1
    for words in ("/budget 0.50", "f1 keys", "f7 models"):
        assert words in text


def test_suggested_requests_fit_the_folder():
    text = requests_block(["src/", "src/notes.txt", "My notes.md", "notes.txt"]).text()
    assert text.splitlines()[1:] == [
        "  How many lines does notes.txt have?",
        "  Which files are in this folder?",
        "  What is 15% of 80?",
    ]
    assert len(requests_block([]).text().splitlines()) == 4


@pytest.mark.parametrize(
    ("is_free", "is_capped", "heading"),
    [
        (True, False, "Try one of these, after /budget 20000tok:"),
        (False, False, "Try one of these, after /budget 0.10:"),
        (False, True, "Try one of these:"),
    ],
)
def test_suggested_requests_suggest_a_cap_only_without_one(
    is_free: bool, is_capped: bool, heading: str
):
    text = requests_block([], is_free=is_free, is_capped=is_capped).text()
    assert text.splitlines()[0] == heading


def test_start_is_the_first_until_something_is_sent(paths):
    assert is_first_start(paths)
    paths.data.mkdir(parents=True, exist_ok=True)
    paths.history_file.write_text("")
    assert not is_first_start(paths)


def test_every_named_command_exists():
    commands = {usage.split()[0] for usage, _ in COMMANDS.overview()} | {
        f"/{THEME.name}",
        "/settings",
    }
    mentioned = set(
        re.findall(
            r"(?<![\w/])/[a-z]+\b(?!/)",
            f"{welcome_block('1.2').text()} {requests_block([]).text()}",
        )
    )
    assert mentioned
    assert mentioned <= commands


@pytest.mark.parametrize(
    ("keys", "command"),
    [
        (("enter",), "/model ollama/qwen3:8b"),
        (("down", "enter"), "/model pull unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M"),
    ],
)
async def test_first_start_offers_models_and_runs_the_command_of_the_chosen_one(
    make_app, keys, command
):
    shell = FakeShell(offers=OFFERS, introduced="embedded answers.")
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press(*keys)
        await eventually(pilot, lambda: command in shell.commands)
        assert not app.screen.query(StartQuestion)


async def test_a_letter_starts_a_message_instead_and_esc_keeps_the_demo(make_app):
    shell = FakeShell(offers=OFFERS, introduced="embedded answers.")
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press("h", "i")
        assert app.screen.query_one(Prompt).text == "hi"
        await pilot.press("shift+tab", "escape")
        await eventually(pilot, lambda: not app.screen.query(StartQuestion))
        assert shell.commands == []


async def test_nothing_is_asked_if_the_demo_is_the_only_model(make_app):
    app = make_app(FakeShell(offers=OFFERS[-1:], introduced="embedded answers."), model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await app.opened.wait()
        await eventually(
            pilot, lambda: "Try one of these" in app.screen.query_one(Transcript).column.plain
        )
        assert not app.screen.query(StartQuestion)


async def test_without_llama_the_chat_offers_other_models_and_opens_with_the_chosen_one(
    make_app, monkeypatch
):
    monkeypatch.setattr("ecoshell.assembly.first_run.models_without_llama", lambda: OFFERS[:1])
    monkeypatch.setattr("ecoshell.models.local_build.current_build", lambda: None)
    shell = FakeShell()
    app = make_app(shell, model=None)
    build, opened = app._build, []

    async def build_without_embedded(options, user):
        if options.model is None:
            raise ModelMissing("The embedded model is not installed.", fix="Install it.")
        opened.append(options.model)
        return await build(options, user)

    app._build = build_without_embedded
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press("enter")
        await eventually(pilot, app.opened.is_set)
        assert opened == ["ollama/qwen3:8b"]
        assert 'model = "ollama/qwen3:8b"' in app.paths.settings_file.read_text()


async def test_the_chat_opens_by_itself_when_llama_is_compiled(make_app, monkeypatch):
    builds = [
        LocalBuild(running=True, percent=34, seconds_left=366),
        LocalBuild(running=True, percent=80),
    ]
    monkeypatch.setattr("ecoshell.assembly.first_run.models_without_llama", tuple)
    monkeypatch.setattr(
        "ecoshell.models.local_build.current_build", lambda: builds[0] if builds else None
    )
    monkeypatch.setattr("ecoshell.tui.chat._BUILD_SECONDS", 0.01)
    shell = FakeShell()
    app = make_app(shell, model=None)
    build = app._build

    async def build_once_compiled(options, user):
        if builds:
            raise ModelMissing("The embedded model is not installed.", fix="Install it.")
        return await build(options, user)

    app._build = build_once_compiled
    async with app.run_test(size=(100, 30)) as pilot:
        words = "compiling llama.cpp: 34 %, 6 min 6 s left"
        await eventually(pilot, lambda: app.screen.query_one(TitleBar).state == words)
        assert not app.opened.is_set()
        builds.clear()
        await eventually(pilot, app.opened.is_set)
        assert app.shell is shell


async def test_offers_that_cannot_be_read_are_shown_and_the_chat_stays_open(make_app):
    class Broken(FakeShell):
        async def starting_models(self):
            raise UsageError("The settings are damaged.", fix="Repair them.")

    app = make_app(Broken(introduced="embedded answers."), model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        transcript = app.screen.query_one(Transcript).column
        await eventually(pilot, lambda: "Try one of these" in transcript.plain)
        assert "The settings are damaged." in transcript.plain


async def test_a_failed_compilation_leaves_the_choice_of_other_models(make_app, monkeypatch):
    monkeypatch.setattr("ecoshell.assembly.first_run.models_without_llama", lambda: OFFERS[:1])
    monkeypatch.setattr(
        "ecoshell.models.local_build.current_build", lambda: LocalBuild(running=False)
    )
    shell = FakeShell()
    app = make_app(shell, model=None)
    build = app._build

    async def build_without_embedded(options, user):
        if options.model is None:
            raise ModelMissing("The embedded model is not installed.", fix="Install it.")
        return await build(options, user)

    app._build = build_without_embedded
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await eventually(
            pilot, lambda: "could not be installed" in app.screen.query_one(TitleBar).state
        )
        await pilot.press("enter")
        await eventually(pilot, app.opened.is_set)
        assert app.shell is shell


async def test_a_failed_compilation_without_other_models_names_the_log(make_app, monkeypatch):
    failed = LocalBuild(running=False)
    monkeypatch.setattr("ecoshell.assembly.first_run.models_without_llama", tuple)
    monkeypatch.setattr("ecoshell.models.local_build.current_build", lambda: failed)
    monkeypatch.setattr("ecoshell.models.local_build.find_spec", lambda _: None)
    app = make_app(FakeShell(), model=None)

    async def build_without_embedded(options, user):
        raise ModelMissing("The embedded model is not installed.", fix="Install it.")

    app._build = build_without_embedded
    async with app.run_test(size=(100, 30)) as pilot:
        transcript = app.screen.query_one(Transcript).column
        await eventually(pilot, lambda: "Run `make run` again" in transcript.plain)
        assert "llama.cpp could not be installed; the log is" in transcript.plain


async def test_after_a_failed_start_another_model_can_be_named(make_app):
    shell = FakeShell()
    app = make_app(shell, model="missing")
    build, opened = app._build, []

    async def build_other(options, user):
        opened.append(options.model)
        if options.model == "missing":
            raise ModelMissing("The model is missing.", fix="Install it.")
        return await build(options, user)

    app._build = build_other
    async with app.run_test(size=(100, 30)) as pilot:
        transcript = app.screen.query_one(Transcript).column
        await eventually(pilot, lambda: "/model NAME" in transcript.plain)
        await pilot.press(*"/model other", "enter")
        await eventually(pilot, app.opened.is_set)
        assert opened == ["missing", "other"]
        assert shell.asked == []
