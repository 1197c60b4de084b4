"""The welcome block, and the choice of a model at the first start."""

import asyncio
import re
from dataclasses import replace

import pytest
from textual.events import Paste
from textual.widgets import Static
from tui_play import STATUS, FakeShell, eventually

from ecoshell.agent.slash_commands import COMMANDS
from ecoshell.budget import ZERO_PRICE
from ecoshell.errors import ModelMissing, ModelUnavailable, StoreError, UsageError
from ecoshell.models import HERE, ModelRow, StartingModel
from ecoshell.models.local_build import LocalBuild
from ecoshell.settings.edit import write_settings
from ecoshell.tui.chat import ChatScreen
from ecoshell.tui.commands import THEME
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.screens.picker import AskPane, Picker
from ecoshell.tui.screens.start_question import StartQuestion
from ecoshell.tui.screens.welcome import is_first_start, requests_block, welcome_block
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.terminal import TerminalParser
from ecoshell.tui.transcript.view import Transcript

OFFERS = (
    StartingModel("ollama/qwen3:8b", "server", "running in Ollama"),
    StartingModel(
        "hf:unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", "download", "download: about 2.5 GB"
    ),
    StartingModel("embedded", "demo", "built-in demo"),
)


def test_welcome_takes_two_lines_and_names_no_cap_that_a_free_model_ignores():
    text = welcome_block("1.2").text()
    assert text.startswith("ecoshell 1.2")
    assert text.count("\n") == 1
    for words in ("/budget sets a cap", "f1 keys", "f7 models"):
        assert words in text


def test_suggested_requests_fit_the_folder():
    text = requests_block(["src/", "src/notes.txt", "My notes.md", "notes.txt"]).text()
    assert text.splitlines()[1:] == [
        "  How many lines does notes.txt have?",
        "  Which files are in this folder?",
        "  How many km are 26 miles?",
    ]
    assert len(requests_block([]).text().splitlines()) == 4


def test_suggested_requests_name_the_suggested_cap():
    assert requests_block([], cap="0.10").text().startswith("Try one of these, after /budget 0.10:")
    assert requests_block([]).text().startswith("Try one of these:")


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


class Pulling(FakeShell):
    """Changes to the model that a command names; a command with `stop` leaves it."""

    async def command(self, line):
        name = line.removeprefix("/model ").replace("pull ", "hf:")
        if "stop" not in name:
            self.state = replace(self.state, model=name)
        return await super().command(line)


@pytest.mark.parametrize(
    ("model", "line", "stored"),
    [
        ("embedded", "/model pull a/b-GGUF:Q4", 'model = "hf:a/b-GGUF:Q4"'),
        ("embedded", "/model pull stop/b-GGUF:Q4", ""),
        ("embedded", "/model openai/x", ""),
        ("openai/x", "/model pull a/b-GGUF:Q4", ""),
    ],
)
async def test_a_model_pulled_in_place_of_the_demo_is_stored(make_app, model, line, stored):
    shell = Pulling(state=replace(STATUS, model=model))
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)):
        await app.opened.wait()
        await app.chat._command(line)
        file = app.paths.settings_file
        assert (file.read_text().strip() if file.exists() else "") == stored


@pytest.mark.parametrize("fails", [False, True])
async def test_a_message_typed_during_the_first_download_is_sent_after_it(make_app, fails):
    downloading = asyncio.Event()

    class Downloading(FakeShell):
        async def command(self, line):
            await downloading.wait()
            if fails:
                raise ModelUnavailable("The download failed.", fix="Pull it again to resume.")
            return await super().command(line)

    shell = Downloading(offers=OFFERS[1:], introduced="embedded answers.")
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press("enter")
        await eventually(pilot, lambda: app.chat.controller.stoppable)
        await pilot.press(*"hello", "enter")
        bar = app.chat.query_one(PromptBar)
        await eventually(pilot, lambda: [draft.text for draft in bar.queue] == ["hello"])
        downloading.set()
        await eventually(pilot, lambda: shell.asked == ["hello"])
        assert bar.queue == ()


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


async def test_text_typed_before_the_first_question_is_sent_by_enter(make_app):
    shell, gate = FakeShell(offers=OFFERS, introduced="embedded answers."), asyncio.Event()
    app = make_app(shell, gate=gate, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press(*"hello")
        gate.set()
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        question = app.screen.query_one(StartQuestion)
        assert question.border_subtitle == "shift+tab to answer"
        await pilot.press("enter")
        await eventually(pilot, lambda: shell.asked == ["hello"])
        assert question.is_attached
        assert not app.paths.settings_file.exists()


async def test_a_packet_at_the_first_question_is_sent_as_a_message(make_app):
    shell = FakeShell(offers=OFFERS, introduced="embedded answers.")
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        for key in TerminalParser().feed("hello\r"):
            app._driver.process_message(key)
        await eventually(pilot, lambda: shell.asked == ["hello"])
        assert app.screen.query(StartQuestion)
        assert shell.commands == []


async def test_a_paste_at_the_first_question_goes_to_the_prompt(make_app):
    app = make_app(FakeShell(offers=OFFERS, introduced="embedded answers."), model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        app.post_message(Paste("pasted"))
        await eventually(pilot, lambda: app.screen.query_one(Prompt).text == "pasted")
        assert app.screen.query(StartQuestion)


async def test_f7_answers_the_first_question_and_stores_the_model(make_app):
    known = [
        ModelRow("embedded", HERE, True, 8192, None, ZERO_PRICE),
        ModelRow("openai/x", "openai", True, 8192, None, None, kind="remote"),
    ]
    shell = Pulling(offers=OFFERS, introduced="embedded answers.", known=known)
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press("f7")
        await listed(pilot, app)
        await pilot.press(*"openai", "enter")
        await eventually(
            pilot, lambda: app.screen is app.chat and not app.chat.query(StartQuestion)
        )
        assert shell.commands == ["/model openai/x"]
        assert 'model = "openai/x"' in app.paths.settings_file.read_text()


@pytest.mark.parametrize(
    ("keys", "command", "stored"),
    [
        ((), "/model ollama/qwen3:8b", "ollama/qwen3:8b"),
        (("down",), "/model pull unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", OFFERS[1].name),
    ],
)
async def test_a_model_chosen_during_a_turn_is_used_and_stored_after_it(
    make_app, keys, command, stored
):
    shell = Pulling(offers=OFFERS, introduced="embedded answers.", stops_at=1)
    app = make_app(shell, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press(*"hello", "enter")
        await eventually(pilot, lambda: shell.asked == ["hello"])
        await pilot.press(*keys, "enter")
        bar = app.chat.query_one(PromptBar)
        await eventually(pilot, lambda: [draft.text for draft in bar.queue] == [command])
        assert shell.commands == []
        shell.stopped.set()
        await eventually(pilot, app.paths.settings_file.exists)
        assert shell.commands == [command]
        assert f'model = "{stored}"' in app.paths.settings_file.read_text()


@pytest.mark.parametrize("place", ["file", "environment"])
async def test_first_start_uses_the_model_of_the_settings_without_a_question(
    make_app, paths, monkeypatch, place
):
    if place == "file":
        write_settings(paths.settings_file, {("model",): "openai/gpt-4o-mini"})
    else:
        monkeypatch.setenv("ECOSHELL_MODEL", "openai/gpt-4o-mini")
    shell, gate = FakeShell(offers=OFFERS, introduced="gpt-4o-mini answers."), asyncio.Event()
    app = make_app(shell, gate=gate, model=None)
    async with app.run_test(size=(100, 30)) as pilot:
        assert app.screen.query_one(TitleBar).state == "opening openai/gpt-4o-mini …"
        gate.set()
        transcript = app.screen.query_one(Transcript).column
        await eventually(pilot, lambda: "Try one of these" in transcript.plain)
        assert not app.screen.query(StartQuestion)


async def test_a_missing_model_of_the_settings_is_reported_instead_of_replaced(
    make_app, paths, monkeypatch
):
    monkeypatch.setattr("ecoshell.assembly.first_run.models_without_llama", lambda: OFFERS[:1])
    monkeypatch.setattr("ecoshell.models.local_build.current_build", lambda: None)
    monkeypatch.setattr("ecoshell.models.local_build.failed_build", lambda: None)
    write_settings(paths.settings_file, {("model",): "local:lost.gguf"})
    app = make_app(FakeShell(), model=None)

    async def build(options, user):
        raise ModelMissing("lost.gguf does not exist.", fix="Download it.")

    app._build = build
    async with app.run_test(size=(100, 30)) as pilot:
        transcript = app.screen.query_one(Transcript).column
        await eventually(pilot, lambda: "lost.gguf does not exist." in transcript.plain)
        assert not app.screen.query(StartQuestion)


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
        LocalBuild(running=True, percent=34),
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
        words = "compiling llama.cpp: 34 %"
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


def said(app) -> str:
    """The transcript in one line."""
    return " ".join(app.chat.query_one(Transcript).column.plain.split())


async def listed(pilot, app) -> None:
    await eventually(pilot, lambda: isinstance(app.screen, Picker) and app.screen.is_mounted)
    await eventually(pilot, lambda: "reading" not in str(app.screen.query_one("#state").visual))


class Known:
    """The models before a shell is open."""

    model_name = ""

    def __init__(self) -> None:
        self.kept = []

    async def models(self):
        return [
            ModelRow("embedded", HERE, True, 8192, None, ZERO_PRICE),
            ModelRow("hf:a/b-GGUF:Q4", "hub", False, None, None, ZERO_PRICE, kind="hub"),
            ModelRow("openai/x", "openai", False, 8192, None, None, kind="remote"),
        ]

    async def store_key(self, provider, key):
        self.kept.append((provider, key))


@pytest.fixture
def failing(make_app, monkeypatch):
    """An app whose first model is missing, and the names of the models that it tried."""
    known = Known()
    monkeypatch.setattr("ecoshell.assembly.first_run.ModelsBeforeStart", lambda: known)
    app, tried = make_app(FakeShell(), model="missing"), []
    build = app._build

    async def build_other(options, user):
        tried.append(options.model)
        if options.model == "missing":
            raise ModelMissing("The model is missing.", fix="Install it.")
        return await build(options, user)

    app._build, app.known = build_other, known
    return app, tried


async def test_a_failure_that_no_other_model_avoids_suggests_none(make_app):
    app = make_app(FakeShell())

    async def build(options, user):
        raise StoreError("ledger.sqlite cannot be written.", fix="Make it writable.")

    app._build = build
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: "Send any message to try again." in said(app))
        assert "F7 or" not in said(app)


@pytest.mark.parametrize("keys", [("f7",), (*"/model", "escape", "enter")])
async def test_after_a_failed_start_another_model_can_be_chosen_from_all(failing, keys):
    app, tried = failing
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: "choose another model with F7" in said(app))
        await pilot.press(*keys)
        await listed(pilot, app)
        await pilot.press(*"embedded", "enter")
        await eventually(pilot, app.opened.is_set)
        assert tried == ["missing", "embedded"]
        assert app.shell.asked == app.shell.commands == []


async def test_a_key_can_be_stored_for_another_model_after_a_failed_start(failing):
    app, tried = failing
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.chat._failed)
        await pilot.press("f7")
        await listed(pilot, app)
        await pilot.press(*"openai", "enter")
        await eventually(pilot, lambda: app.screen.query_one(AskPane).has_class("-on"))
        await pilot.press(*"sk-1", "enter")
        await eventually(pilot, app.opened.is_set)
        assert (tried, app.known.kept) == (["missing", "openai/x"], [("openai", "sk-1")])


async def test_no_model_is_downloaded_before_the_chat_is_open(failing):
    app, tried = failing
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.chat._failed)
        await pilot.press("f7")
        await listed(pilot, app)
        await pilot.press(*"gguf", "enter")
        await eventually(pilot, lambda: "No model can be downloaded" in said(app))
        assert "ecoshell models pull a/b-GGUF:Q4" in said(app)
        await pilot.press("f7")
        await listed(pilot, app)
        await pilot.press("escape")
        await eventually(pilot, lambda: app.screen is app.chat)
        assert tried == ["missing"]


async def test_f7_replaces_the_question_for_the_first_model(failing, monkeypatch):
    monkeypatch.setattr("ecoshell.assembly.first_run.models_without_llama", lambda: OFFERS[:1])
    monkeypatch.setattr("ecoshell.models.local_build.current_build", lambda: None)
    app, tried = failing
    app.options, app.chat = replace(app.options, model=None), ChatScreen(app.paths, "")
    build = app._build

    async def build_without_embedded(options, user):
        return await build(replace(options, model=options.model or "missing"), user)

    app._build = build_without_embedded
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        await pilot.press("f7")
        await listed(pilot, app)
        await pilot.press(*"embedded", "enter")
        await eventually(pilot, app.opened.is_set)
        assert tried == ["missing", "embedded"]
        assert 'model = "embedded"' in app.paths.settings_file.read_text()


@pytest.mark.parametrize(("key", "command"), [("f5", "/sessions"), ("f7", "/model")])
async def test_a_key_that_needs_an_open_chat_says_so(make_app, key, command):
    gate = asyncio.Event()
    app = make_app(FakeShell(), gate=gate)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press(key)
        hint = app.chat.query_one("#hint", Static)
        await eventually(pilot, lambda: command in str(hint.visual))
        assert str(hint.visual) == f"{command} is available once the chat is open."
        assert app.screen is app.chat
        gate.set()
