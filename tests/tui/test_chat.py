"""The chat, driven by keys."""

import asyncio
from dataclasses import replace

import pytest
from side_play import said
from textual.events import Paste
from tui_play import CAP, COUNTING, FINISHED, HIT, STARTED, WANTED, WRITING, FakeShell, eventually

from ecoshell.agent import LimitChoice
from ecoshell.agent.command_table import Printed
from ecoshell.errors import ModelMissing
from ecoshell.events import (
    ApprovalGiven,
    BudgetChanged,
    CallFinished,
    CallStarted,
    ErrorHappened,
    LimitHit,
    Notice,
    Rationale,
    TextArrived,
    ToolRegistered,
)
from ecoshell.messages import Attachment
from ecoshell.options import Options
from ecoshell.tui.app import ChatApp
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import Draft
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.questions import Question
from ecoshell.tui.side.cost import BudgetPanel
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.tools import ToolsPanel
from ecoshell.tui.transcript.view import Transcript


def prompt(app: ChatApp) -> Prompt:
    return app.chat.query_one(Prompt)


def seen(app: ChatApp) -> str:
    return app.chat.query_one(Transcript).column.plain


def panel(app: ChatApp, kind: type[BudgetPanel] | type[ToolsPanel]) -> str:
    return said(app.chat.query_one(kind))


def hint(app: ChatApp) -> str:
    return str(app.chat.query_one("#hint").visual)


def queued(app: ChatApp) -> list[str]:
    """The text shown for queued messages."""
    line = app.chat.query_one("#queue")
    return str(line.visual).splitlines() if line.display else []


def text_shown(app: ChatApp) -> str:
    """The text of the line above the prompt."""
    return str(app.chat.query_one(PromptBar).border_title)


async def ready(pilot, app: ChatApp) -> None:
    await eventually(pilot, lambda: app.chat.controller)


async def ask(pilot, app: ChatApp, question: str = "how many") -> None:
    await ready(pilot, app)
    await pilot.press(*question, "enter")


async def test_new_session_introduces_the_model(make_app):
    app = make_app(
        FakeShell(introduced="tiny answers. Better ones are on this machine: /model mine.")
    )
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert "tiny answers. Better ones are on this machine" in " ".join(seen(app).split())


async def test_first_start_offers_requests_and_shows_all_panels(make_app):
    app = make_app(FakeShell(introduced="tiny answers.", names=("notes.txt",)))
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: "How many lines does notes.txt have?" in seen(app))
        assert not any(panel.folded for panel in app.chat.query(Panel))


async def test_resumed_session_shows_its_past_without_introduction(make_app):
    app = make_app(FakeShell(introduced="tiny answers.", earlier=COUNTING))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert "how many words are in notes.txt?" in seen(app)
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok of schemas") == 2)
        assert "tiny answers." not in seen(app)


async def test_notice_of_the_resumption_stands_below_a_turn_that_was_cut_off(make_app):
    resumed = Notice("Session abc123 resumed.")
    cut = (STARTED, TextArrived("The files are", "thought", "single"), resumed)
    app = make_app(FakeShell(earlier=cut, resumed=resumed))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert seen(app).index("The files are") < seen(app).index("Session abc123 resumed.")


async def test_first_letter_loads_the_model_and_reads_ahead(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert (shell.warmed, shell.ahead) == (0, 0)
        await pilot.press("h")
        await eventually(pilot, lambda: shell.ahead)
        await pilot.press("o", "w")
        assert (shell.warmed, shell.ahead) == (1, 1)


async def test_events_of_a_turn_are_shown_in_order(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "saved 4.2k tok of schemas" in seen(app))
        signs = [line[0] for line in seen(app).splitlines()[3:] if line and not line[0].isspace()]
        assert signs == ["›", "·", "◊", "+", "►", "√"]
        assert "count_text registered" in seen(app)
        assert "names only is cheaper" not in seen(app)
        assert seen(app).count("I need a word counter.") == 1  # even though it was streamed
        assert seen(app).count("1,204 words:") == 1
        assert shell.asked == ["how many"]
        assert prompt(app).text == ""


async def test_tool_summary_is_folded_and_repeated_only_if_it_changes_or_panels_are_hidden(
    make_app,
):
    shell = FakeShell([event for event in COUNTING if not isinstance(event, ToolRegistered)])
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok of schemas") == 1)
        assert seen(app).count("4 known by name") == 1
        await pilot.press("ctrl+o")
        assert "names only is cheaper" in " ".join(seen(app).split())
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok of schemas") == 2)
        text_shown = seen(app).count("4 known by name")
        await pilot.press("f9")
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok of schemas") == 3)
        assert seen(app).count("4 known by name") == text_shown + 1
        assert text_shown == 2  # once in the line, once in what is open below it


async def test_saved_tokens_are_shown_only_for_paid_turns(make_app):
    app = make_app(FakeShell([*COUNTING[:-1], replace(FINISHED, spent_nano=0)]))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "3 steps" in seen(app))
        assert "saved" not in seen(app)
        assert "saved" not in panel(app, ToolsPanel)


async def test_retries_and_their_final_error_share_one_block(make_app):
    notes = [
        Notice(f"[none] did not answer. Retrying (attempt {at}): waiting 1.0 s; gives up …")
        for at in (2, 3)
    ]
    error = ErrorHappened(
        "ModelUnavailable", "[none] did not answer. Gave up after 3 attempts.", "", "Try again."
    )
    app = make_app(FakeShell([STARTED, *notes, error, replace(FINISHED, status="error")]))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "3 steps" in seen(app))
        assert seen(app).count("did not answer") == 1
        assert "×  [none] did not answer. Gave up" in seen(app)
        assert "Try again." in seen(app)


async def test_input_sent_before_the_shell_is_ready_waits(make_app):
    gate, shell = asyncio.Event(), FakeShell()
    app = make_app(shell, gate=gate)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press(*"how many", "enter", *"and then")
        assert "waiting until embedded is ready" in seen(app)
        assert shell.asked == []
        gate.set()
        await eventually(pilot, lambda: "saved" in seen(app))
        assert shell.asked == ["how many"]
        assert "waiting until" not in seen(app)
        assert prompt(app).text == "and then"


async def test_failed_opening_shows_the_reason_and_keeps_the_question(paths):
    async def build(options: Options, user: object) -> FakeShell:
        raise ModelMissing("x.gguf does not exist.", fix="Give the path of a GGUF file.")

    app = ChatApp(Options(model="local:x.gguf"), build=build, paths=paths)
    async with app.run_test() as pilot:
        await eventually(pilot, lambda: "x.gguf does not exist." in seen(app))
        assert "Give the path of a GGUF file." in seen(app)
        await pilot.press("ctrl+q")
    assert app.return_value == 1


async def test_defect_while_opening_does_not_close_the_screen(paths):
    async def build(options: Options, user: object) -> FakeShell:
        raise RuntimeError("a defect")

    app = ChatApp(Options(), build=build, paths=paths)
    async with app.run_test() as pilot:
        await eventually(pilot, lambda: "unexpected happened: a defect" in seen(app))
        await pilot.press("a")
        assert prompt(app).text == "a"


@pytest.mark.parametrize("broken", ["command", "ask", "status"])
async def test_defect_in_the_shell_is_shown_and_the_chat_continues(make_app, broken, monkeypatch):
    async def defect(*_):
        raise RuntimeError("a defect")

    async def defective_turn(question, attachments):
        raise RuntimeError("a defect")
        yield

    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        monkeypatch.setattr(shell, broken, defective_turn if broken == "ask" else defect)
        await ask(pilot, app, "/tools " if broken == "command" else "how many")
        await eventually(pilot, lambda: "unexpected happened: a defect" in seen(app))
        monkeypatch.undo()
        assert prompt(app).text == ("how many" if broken == "ask" else "")
        await pilot.press("ctrl+u", *"and now", "enter")
        await eventually(pilot, lambda: "saved 4.2k tok of schemas" in seen(app))
    assert "and now" in shell.asked


async def test_empty_question_shows_a_hint(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ask(pilot, app, "  ")
        assert "Nothing to send" in hint(app)
        assert shell.asked == []
        await pilot.press("a")
        assert hint(app) == ""


async def test_escape_stops_the_turn_and_keeps_partial_text(make_app):
    events = (STARTED, TextArrived("half a thou", "thought", "single"), FINISHED)
    app = make_app(FakeShell(events, stops_at=2))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "half a thou" in seen(app))
        await pilot.press("escape")
        await eventually(pilot, lambda: "stopped · $0.0031" in seen(app))
        assert "half a thou" in seen(app)


async def test_input_during_a_turn_is_queued_and_up_takes_it_back(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "how many" in seen(app))
        await pilot.press(*"more", "enter", *"and thn", "enter")
        assert prompt(app).text == ""
        assert queued(app)[:2] == ["queued  more", "queued  and thn"]
        await pilot.press("up")
        assert prompt(app).text == "and thn"
        await pilot.press("backspace", *"en", "enter")
        assert queued(app)[:2] == ["queued  more", "queued  and then"]
        assert shell.asked == ["how many"]
        await shell.stop()
        await eventually(pilot, lambda: shell.asked == ["how many", "more", "and then"])
        assert queued(app) == []


async def test_command_that_asks_waits_in_the_queue_during_a_turn(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "how many" in seen(app))
        await pilot.press(*"more", "enter", *"/review it", "enter")
        await eventually(pilot, lambda: queued(app)[:2] == ["queued  more", "queued  review it"])
        assert shell.asked == ["how many"]
        assert "review it" not in seen(app)
        await shell.stop()
        await eventually(pilot, lambda: shell.asked == ["how many", "more", "review it"])
        await eventually(pilot, lambda: not app.chat.controller.stoppable)
        assert seen(app).count("review it") == 1
        assert "/review" not in seen(app)


async def test_escape_empties_the_queue_before_it_stops_the_turn(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "how many" in seen(app))
        await pilot.press(*"more", "enter", "escape")
        assert queued(app) == []
        assert "The queue is empty now" in hint(app)
        assert not shell.stopped.is_set()
        await pilot.press("escape")
        await eventually(pilot, lambda: "stopped · $0.0031" in seen(app))
        await pilot.press("up")
        assert prompt(app).text == "more"
    assert shell.asked == ["how many"]


async def test_queued_input_is_the_next_draft_after_quitting(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, app)
        await eventually(
            pilot, lambda: "how many" in seen(app) and app.chat.query_one(PromptBar).is_restored
        )
        await pilot.press(*"more", "enter", *"half", "ctrl+q")
        await pilot.pause()
    assert shell.asked == ["how many"]
    again = make_app(FakeShell())
    async with again.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: prompt(again).text)
        assert prompt(again).text == "more\nhalf"


async def test_waiting_question_is_the_next_draft_after_quitting(make_app):
    app = make_app(FakeShell(), gate=asyncio.Event())
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.query_one(PromptBar).is_restored)
        prompt(app).post_message(Paste("a line\n" * 100))
        await eventually(pilot, lambda: prompt(app).text)
        await pilot.press(*" sum up", "enter", "ctrl+q")
        await pilot.pause()
    again = make_app(FakeShell())
    async with again.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: prompt(again).text)
        assert prompt(again).draft.text.endswith("sum up")
        assert [item.text.count("a line") for item in prompt(again).draft.attachments] == [100]


@pytest.mark.parametrize("typed", [("/budget 1", "hello"), ("item", "/budget 1", "two")])
async def test_input_queued_behind_a_command_is_sent_after_it(make_app, typed):
    gate, shell = asyncio.Event(), FakeShell()
    app = make_app(shell, gate=gate)
    async with app.run_test(size=(120, 36)) as pilot:
        for line in typed:
            await pilot.press(*line, "enter")
        gate.set()
        await eventually(
            pilot, lambda: shell.asked == [item for item in typed if not item.startswith("/")]
        )
        await eventually(pilot, lambda: not queued(app))
    assert shell.commands == ["/budget 1"]


async def test_question_waits_for_a_command_that_asks(make_app, monkeypatch):
    printed, shell = asyncio.Event(), FakeShell()

    async def command(line):
        await printed.wait()
        return Printed("", effect="ask", value="the server's")

    monkeypatch.setattr(shell, "command", command)
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, app, "/server.prompt")
        await pilot.press(*"mine", "enter")
        assert "mine" in " ".join(queued(app))
        printed.set()
        await eventually(pilot, lambda: shell.asked == ["the server's", "mine"])


async def test_commands_run_during_a_turn(make_app):
    shell = FakeShell((STARTED, TextArrived("thinking", "thought", "single"), FINISHED), stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await pilot.press(*"/budget 2", "enter")
        await eventually(pilot, lambda: "done: /budget 2" in seen(app))
        assert seen(app).rstrip().endswith("◦  thinking")


async def test_unknown_command_suggests_the_nearest(make_app):
    app = make_app(FakeShell())
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app, "/nonsense")
        await eventually(pilot, lambda: "There is no command /nonsense." in seen(app))
        assert "Did you mean /sessions?" in seen(app)


async def test_clearing_empties_the_transcript(make_app):
    app = make_app(FakeShell())
    async with app.run_test() as pilot:
        await ask(pilot, app, "/clear")
        await eventually(pilot, lambda: "done: /clear" in seen(app))
        assert "ecoshell" not in seen(app)


@pytest.mark.parametrize("keys", [("/quit", "enter"), ("", "ctrl+q"), ("", "ctrl+c")])
async def test_chat_can_be_quit(make_app, keys):
    app = make_app(FakeShell())
    typed, last = keys
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*typed, last, *(["ctrl+c"] if last == "ctrl+c" else []))
        await eventually(pilot, lambda: app.return_value is not None)
    assert app.return_value == 0


async def test_chat_can_be_quit_before_the_shell_is_ready(make_app):
    app = make_app(FakeShell(), gate=asyncio.Event())
    async with app.run_test() as pilot:
        await pilot.press(*"/quit", "enter")
        await eventually(pilot, lambda: app.return_value is not None)
    assert app.return_value == 0


async def test_single_control_c_stops_the_turn_or_clears_the_prompt(make_app, monkeypatch):
    monkeypatch.setattr("ecoshell.tui.app._QUIT_SECONDS", 0.0)
    app = make_app(FakeShell(stops_at=2))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await pilot.press("ctrl+c")
        await eventually(pilot, lambda: "stopped" in seen(app))
        await pilot.press(*"a thought", "ctrl+c")
        assert prompt(app).text == ""
        assert app.return_value is None
        await pilot.press("up")
        assert prompt(app).text == "a thought"


async def test_quitting_stops_the_turn_first(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ask(pilot, app)
        await pilot.press("ctrl+q")
        await eventually(pilot, lambda: app.return_value is not None)
    assert shell.stopped.is_set()


async def test_one_key_answers_an_approval(make_app):
    keys = {"y": "once", "escape": "no"}
    shell = FakeShell((STARTED, WRITING, WANTED, FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        for key, decision in keys.items():
            await ask(pilot, app)
            await eventually(pilot, lambda: app.chat.query(Question))
            assert shell.decisions == []
            await pilot.press(key)
            await eventually(pilot, lambda: shell.decisions)
            assert shell.decisions.pop() == decision
            await eventually(
                pilot, lambda: not app.chat.query(Question) and not app.chat.controller.stoppable
            )
            assert app.focused is prompt(app)


async def test_activity_waits_for_the_answer_while_other_work_goes_on(make_app):
    class Parallel(FakeShell):
        async def ask(self, question, attachments=()):
            yield STARTED
            yield WRITING
            yield WANTED
            approval = asyncio.create_task(self.person.approve(WANTED))
            await other_call.wait()
            yield CallStarted("c2", "count_text", {})
            yield CallFinished("c2", "count_text", True, "three words", False, 0.1)
            yield ApprovalGiven("c1", (await approval).decision, "person")
            await self.stopped.wait()
            yield FINISHED

    other_call, shell = asyncio.Event(), Parallel()
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "waiting for your answer" in text_shown(app))
        other_call.set()
        await eventually(pilot, lambda: "three words" in seen(app))
        assert "waiting for your answer" in text_shown(app)
        await pilot.press("y")
        await eventually(pilot, lambda: "working" in text_shown(app))
        await shell.stop()
        await eventually(pilot, lambda: not app.chat.controller.busy)
        assert text_shown(app) == ""


async def test_keys_typed_into_the_prompt_do_not_answer_a_question(make_app):
    shell = FakeShell((STARTED, WRITING, WANTED, FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        prompt(app).put("half typ")
        prompt(app).send(Draft("/tools"))
        prompt(app).put("half typ")
        app.chat.action_run("write it")
        await eventually(pilot, lambda: app.chat.query(Question))
        await pilot.press("y")
        assert prompt(app).text == "half typy"
        assert shell.decisions == []
        await pilot.press("shift+tab", "y")
        await eventually(pilot, lambda: shell.decisions == ["once"])


async def test_other_letters_start_a_message_and_sending_refocuses_the_question(make_app):
    shell = FakeShell((STARTED, WRITING, WANTED, FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: app.chat.query(Question))
        await pilot.press(*"also 1 y")
        assert prompt(app).text == "also 1 y"
        assert shell.decisions == []
        await pilot.press("enter", "1")
        await eventually(pilot, lambda: shell.decisions == ["once"])
        await eventually(pilot, lambda: shell.asked == ["how many", "also 1 y"])


async def test_typing_in_a_history_search_does_not_answer_a_question(make_app):
    shell = FakeShell((STARTED, WRITING, WANTED, FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        prompt(app).put("half typed")
        await pilot.press("ctrl+r")
        app.chat.action_run("write it")
        await eventually(pilot, lambda: app.chat.query(Question))
        await pilot.press("y")
        assert (prompt(app).text, shell.decisions) == ("y", [])


async def test_long_draft_becomes_a_paste_with_its_attachments(make_app):
    app = make_app(FakeShell())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        draft = Draft(
            "word " * 2_500 + "[paste-1 · 30 lines]", (Attachment("paste-1", "a line\n" * 30),)
        )
        prompt(app).put(draft)
        (stored,) = prompt(app).draft.attachments
        assert (stored.text.count("word"), stored.text.count("a line")) == (2_500, 30)


async def test_paste_before_the_draft_is_restored_keeps_its_name(make_app):
    app = make_app(FakeShell())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        prompt(app).post_message(Paste("a new line\n" * 100))
        await eventually(pilot, lambda: prompt(app).text)
        prompt(app).put_before(
            Draft("[paste-1 · 30 lines]", (Attachment("paste-1", "an old line\n" * 30),))
        )
        draft = prompt(app).draft
        assert [(item.name, item.text.count("an old line")) for item in draft.attachments] == [
            ("paste-1", 30)
        ]
        assert draft.text.count("a new line") == 100


async def test_key_just_before_a_question_does_not_answer_it(make_app, monkeypatch):
    monkeypatch.setattr("ecoshell.tui.prompt.prompt.PAUSE", 1e9)
    shell = FakeShell((STARTED, WRITING, WANTED, FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        await pilot.press("a", "backspace")
        app.chat.action_run("write it")
        await eventually(pilot, lambda: app.chat.query(Question))
        await pilot.press("y")
        assert (prompt(app).text, shell.decisions) == ("y", [])


async def test_denied_call_shows_the_users_instructions(make_app):
    refused = CallFinished(
        "c1", "write_file", False, "write_file was not run.", False, 0.0, refused="unapproved"
    )
    app = make_app(FakeShell((STARTED, WRITING, WANTED, refused, FINISHED)))
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: app.chat.query(Question))
        assert "waits for your approval" in seen(app)
        assert "running" not in seen(app)
        await pilot.press("n")
        await eventually(pilot, lambda: "saved 4.2k tok of schemas" in seen(app))
        assert "denied by you" in seen(app)
        assert all(
            word not in seen(app) for word in ("failed", "refused", "changed", "not approved")
        )


async def test_limit_can_be_raised_in_place(make_app):
    shell = FakeShell((STARTED, HIT, FINISHED))
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: app.chat.query(Question))
        await pilot.press("r", *"nothing", "enter")
        assert shell.decisions == []
        assert "not an amount" in str(app.chat.query_one(".fault").render())
        await pilot.press("ctrl+u", *"2.50", "enter")
        await eventually(pilot, lambda: shell.decisions)
        assert shell.decisions == [LimitChoice("raise", "2.50")]


class ReservingShell(FakeShell):
    """Reserves the answer anew, which emits no event, before it meets a limit."""

    async def ask(self, question, attachments=()):
        async for event in super().ask(question, attachments):
            if isinstance(event, LimitHit):
                cap = replace(CAP, held=15_360_000)
                step = {"next_nano": 10_180_000, "next_tokens": 2_300}
                self.state = replace(self.state, caps=(cap,), **step)
            yield event


async def test_the_panel_has_the_amounts_of_the_limit_that_is_asked_about(make_app):
    app = make_app(ReservingShell((STARTED, HIT, FINISHED)))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: app.chat.query(Question))
        await eventually(pilot, lambda: "held $0.01536" in panel(app, BudgetPanel))
        assert "≤ $0.01018" in panel(app, BudgetPanel)


async def test_panels_follow_spending_and_registrations_of_the_turn(make_app):
    reached = replace(CAP, spent=CAP.limit, held=0)
    app = make_app(FakeShell((STARTED, BudgetChanged((reached,)), FINISHED), stops_at=2))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert "$0.4088 left of $0.50" in panel(app, BudgetPanel)
        assert "spent $0.0912 · held $0.0071" in panel(app, BudgetPanel)
        assert "TOOLS  2 of 4" in app.chat.query_one(ToolsPanel).title
        assert "● count_text" in panel(app, ToolsPanel)
        assert "○ read_file" in panel(app, ToolsPanel)
        await ask(pilot, app)
        await eventually(pilot, lambda: "reached" in panel(app, BudgetPanel))
        assert "100 %" in panel(app, BudgetPanel)


async def test_new_content_below_is_announced_and_end_or_sending_scrolls_to_it(make_app):
    long = (STARTED, *(Rationale(f"thought {n}", "single") for n in range(100)), FINISHED)
    app = make_app(FakeShell(long))
    async with app.run_test(size=(80, 24)) as pilot:
        transcript = app.chat.query_one(Transcript)
        await ask(pilot, app)
        await eventually(pilot, lambda: "saved" in seen(app))
        assert transcript.scroll_y == transcript.max_scroll_y
        await pilot.press("pageup", "pageup")
        left_at = transcript.scroll_y
        assert "new content below" not in text_shown(app)
        app.chat.view.handle(Rationale("one more thought", "single"))
        await eventually(pilot, lambda: "new content below" in text_shown(app))
        assert transcript.scroll_y == left_at
        await pilot.press("end")
        await eventually(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y)
        assert "new content below" not in text_shown(app)
        await pilot.press("pageup", "pageup", *"ab", "home", "end")
        assert (
            transcript.scroll_y < transcript.max_scroll_y
        )  # the first press of end moves to the end of the line
        await pilot.press("enter")
        await eventually(pilot, lambda: seen(app).count("thought 99") == 2)
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_ten_megabyte_paste_is_attached_and_sent_completely(make_app):
    shell = FakeShell()
    app = make_app(shell)
    pasted = "x" * 10_000_000
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        await pilot.press(*"sum up ")
        prompt(app).post_message(Paste(pasted))
        await eventually(pilot, lambda: "[paste-1 · 10,000,000 characters]" in prompt(app).text)
        await pilot.press("enter")
        await eventually(pilot, lambda: shell.asked)
        assert shell.asked == ["sum up [paste-1 · 10,000,000 characters]"]
        assert shell.attached == [(Attachment("paste-1", pasted),)]
        await eventually(pilot, lambda: "saved" in seen(app))
        assert len(seen(app)) < 20_000


async def test_lone_surrogates_and_control_characters_do_not_break_the_screen(make_app):
    events = (
        STARTED,
        TextArrived("\udcff\x1b[2J\x00", "answer", "single"),
        Rationale("\ud800 ok", "single"),
        FINISHED,
    )
    app = make_app(FakeShell(events))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "\\ud800 ok" in seen(app))
        assert "\x1b" not in app.export_screenshot().encode().decode()


async def test_escape_stops_a_long_command(make_app, monkeypatch):
    shell = FakeShell()
    app = make_app(shell)

    async def compact(line):
        await shell.stopped.wait()
        return Printed("Stopped. Everything stays as it was.")

    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        monkeypatch.setattr(shell, "command", compact)
        await pilot.press(*"/compact", "enter")
        await eventually(pilot, lambda: app.chat.controller.stoppable)
        await pilot.press("escape")
        await eventually(pilot, lambda: "Everything stays as it was." in seen(app))
        assert not app.chat.controller.stoppable
