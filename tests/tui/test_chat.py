"""The chat, as keystrokes."""

import asyncio
from dataclasses import replace

import pytest
from side_play import said
from textual.events import Paste
from tui_play import CAP, COUNTING, FINISHED, HIT, STARTED, WANTED, WRITING, FakeShell, eventually

from ecoshell.agent import LimitChoice
from ecoshell.agent.commands import Printed
from ecoshell.errors import ModelMissing
from ecoshell.events import (
    BudgetChanged,
    CallFinished,
    ErrorHappened,
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
    """What is shown of the messages that wait."""
    line = app.chat.query_one("#queue")
    return str(line.visual).splitlines() if line.display else []


def told(app: ChatApp) -> str:
    """What the line above the prompt says."""
    return str(app.chat.query_one(PromptBar).border_title)


async def ready(pilot, app: ChatApp) -> None:
    await eventually(pilot, lambda: app.chat.controller)


async def ask(pilot, app: ChatApp, question: str = "how many") -> None:
    await ready(pilot, app)
    await pilot.press(*question, "enter")


async def test_a_new_session_says_which_model_answers_and_how_to_get_a_better_one(make_app):
    app = make_app(FakeShell(introduced="tiny answers. Better ones are on this machine: /model mine."))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert "tiny answers. Better ones are on this machine" in " ".join(seen(app).split())


async def test_first_start_offers_requests_and_shows_all_panels(make_app):
    app = make_app(FakeShell(introduced="tiny answers.", names=("notes.txt",)))
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: "How many words are in notes.txt?" in seen(app))
        assert not any(panel.folded for panel in app.chat.query(Panel))


async def test_a_session_that_goes_on_tells_what_was_said_before_and_is_not_introduced_again(make_app):
    app = make_app(FakeShell(introduced="tiny answers.", earlier=COUNTING))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert "how many words are in notes.txt?" in seen(app)
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok") == 2)
        assert "tiny answers." not in seen(app)


async def test_the_first_letter_loads_the_model_and_has_it_read_what_a_question_comes_after(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert (shell.warmed, shell.ahead) == (0, 0)
        await pilot.press("h")
        await eventually(pilot, lambda: shell.ahead)
        await pilot.press("o", "w")
        assert (shell.warmed, shell.ahead) == (1, 1)


async def test_a_question_is_asked_and_its_events_are_told_in_order(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "saved 4.2k tok" in seen(app))
        signs = [line[0] for line in seen(app).splitlines()[5:] if line and not line[0].isspace()]
        assert signs == ["›", "·", "◊", "►", "√"]
        assert "4 tools by name · registered count_text" in seen(app)
        assert "names only is cheaper" not in seen(app)
        assert seen(app).count("I need a word counter.") == 1  # though it was streamed
        assert seen(app).count("1,204 words:") == 1
        assert shell.asked == ["how many"]
        assert prompt(app).text == ""


async def test_what_is_kept_account_of_is_folded_and_told_again_only_where_it_changes_or_no_panel_tells_it(make_app):
    shell = FakeShell([event for event in COUNTING if not isinstance(event, ToolRegistered)])
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok") == 1)
        assert seen(app).count("4 tools by name") == 1
        await pilot.press("ctrl+o")
        assert "names only is cheaper" in seen(app)
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok") == 2)
        told = seen(app).count("4 tools by name")
        await pilot.press("f9")
        await ask(pilot, app)
        await eventually(pilot, lambda: seen(app).count("saved 4.2k tok") == 3)
        assert seen(app).count("4 tools by name") == told + 1
        assert told == 2  # once in the line, once in what is open below it


async def test_a_saving_is_told_only_where_something_was_paid(make_app):
    app = make_app(FakeShell([*COUNTING[:-1], replace(FINISHED, spent_nano=0)]))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "3 steps" in seen(app))
        assert "saved" not in seen(app)
        assert "saved" not in panel(app, ToolsPanel)


async def test_an_error_that_was_met_three_times_stands_once(make_app):
    notes = [Notice(f"[none] did not answer. It is asked again ({at} of 3).") for at in (2, 3)]
    error = ErrorHappened("ModelUnavailable", "[none] did not answer.", "", "Try again.")
    app = make_app(FakeShell([STARTED, *notes, error, replace(FINISHED, status="error")]))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "3 steps" in seen(app))
        assert seen(app).count("did not answer") == 1
        assert "×  [none] did not answer." in seen(app)
        assert "Try again." in seen(app)


async def test_what_is_typed_and_sent_before_the_shell_is_ready_waits_for_it(make_app):
    gate, shell = asyncio.Event(), FakeShell()
    app = make_app(shell, gate=gate)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press(*"how many", "enter", *"and then")
        assert "waits until embedded is ready" in seen(app)
        assert shell.asked == []
        gate.set()
        await eventually(pilot, lambda: "saved" in seen(app))
        assert shell.asked == ["how many"]
        assert "waits until" not in seen(app)
        assert prompt(app).text == "and then"


async def test_a_shell_that_cannot_be_opened_says_why_and_keeps_the_question(paths):
    async def build(options: Options, person: object) -> FakeShell:
        raise ModelMissing("There is no file x.gguf.", fix="Give the path of a GGUF file.")

    app = ChatApp(Options(model="local:x.gguf"), build=build, paths=paths)
    async with app.run_test() as pilot:
        await eventually(pilot, lambda: "There is no file x.gguf." in seen(app))
        assert "Give the path of a GGUF file." in seen(app)
        await pilot.press("ctrl+q")
    assert app.return_value == 1


async def test_a_defect_while_opening_does_not_take_the_screen(paths):
    async def build(options: Options, person: object) -> FakeShell:
        raise RuntimeError("a defect")

    app = ChatApp(Options(), build=build, paths=paths)
    async with app.run_test() as pilot:
        await eventually(pilot, lambda: "unexpected happened: a defect" in seen(app))
        await pilot.press("a")
        assert prompt(app).text == "a"


@pytest.mark.parametrize("broken", ["command", "ask", "standing"])
async def test_a_defect_in_the_shell_is_told_and_the_chat_goes_on(make_app, broken, monkeypatch):
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
        await eventually(pilot, lambda: "saved 4.2k tok" in seen(app))
    assert "and now" in shell.asked


async def test_an_empty_question_only_hints(make_app):
    shell = FakeShell()
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ask(pilot, app, "  ")
        assert "Nothing was typed" in hint(app)
        assert shell.asked == []
        await pilot.press("a")
        assert hint(app) == ""


async def test_escape_stops_the_turn_and_what_arrived_stays(make_app):
    events = (STARTED, TextArrived("half a thou", "thought", "single"), FINISHED)
    app = make_app(FakeShell(events, stops_at=2))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "half a thou" in seen(app))
        await pilot.press("escape")
        await eventually(pilot, lambda: "stopped · $0.0031" in seen(app))
        assert "half a thou" in seen(app)


async def test_what_is_sent_during_a_turn_waits_comes_back_with_up_and_is_asked_after_it(make_app):
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


async def test_escape_empties_the_queue_before_it_stops_the_turn(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "how many" in seen(app))
        await pilot.press(*"more", "enter", "escape")
        assert queued(app) == []
        assert "Nothing is queued any more" in hint(app)
        assert not shell.stopped.is_set()
        await pilot.press("escape")
        await eventually(pilot, lambda: "stopped · $0.0031" in seen(app))
        await pilot.press("up")
        assert prompt(app).text == "more"
    assert shell.asked == ["how many"]


async def test_what_is_queued_when_the_program_ends_is_the_draft_of_the_next(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "how many" in seen(app) and app.chat.query_one(PromptBar).is_restored)
        await pilot.press(*"more", "enter", *"half", "ctrl+q")
        await pilot.pause()
    assert shell.asked == ["how many"]
    again = make_app(FakeShell())
    async with again.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: prompt(again).text)
        assert prompt(again).text == "more\nhalf"


async def test_a_question_that_waits_for_the_shell_when_the_program_ends_is_the_draft_of_the_next(make_app):
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
        assert [one.text.count("a line") for one in prompt(again).draft.attachments] == [100]


@pytest.mark.parametrize("typed", [("/budget 1", "hello"), ("one", "/budget 1", "two")])
async def test_what_waits_behind_a_command_is_sent_after_it(make_app, typed):
    gate, shell = asyncio.Event(), FakeShell()
    app = make_app(shell, gate=gate)
    async with app.run_test(size=(120, 36)) as pilot:
        for line in typed:
            await pilot.press(*line, "enter")
        gate.set()
        await eventually(pilot, lambda: shell.asked == [one for one in typed if not one.startswith("/")])
        await eventually(pilot, lambda: not queued(app))
    assert shell.commands == ["/budget 1"]


async def test_a_question_waits_for_a_command_that_is_going_to_ask(make_app, monkeypatch):
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


async def test_a_command_can_be_given_while_a_turn_runs(make_app):
    shell = FakeShell((STARTED, TextArrived("thinking", "thought", "single"), FINISHED), stops_at=2)
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await pilot.press(*"/budget 2", "enter")
        await eventually(pilot, lambda: "done: /budget 2" in seen(app))
        assert seen(app).rstrip().endswith("◦  thinking")


async def test_an_unknown_command_is_answered_with_the_nearest(make_app):
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
async def test_the_chat_can_be_left(make_app, keys):
    app = make_app(FakeShell())
    typed, last = keys
    async with app.run_test() as pilot:
        await ready(pilot, app)
        await pilot.press(*typed, last, *(["ctrl+c"] if last == "ctrl+c" else []))
        await eventually(pilot, lambda: app.return_value is not None)
    assert app.return_value == 0


async def test_the_chat_can_be_left_before_the_shell_is_ready(make_app):
    app = make_app(FakeShell(), gate=asyncio.Event())
    async with app.run_test() as pilot:
        await pilot.press(*"/quit", "enter")
        await eventually(pilot, lambda: app.return_value is not None)
    assert app.return_value == 0


async def test_control_c_once_stops_the_turn_or_clears_the_prompt_and_does_not_leave(make_app, monkeypatch):
    monkeypatch.setattr("ecoshell.tui.app._TWICE", 0.0)
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


async def test_leaving_stops_the_turn_first(make_app):
    shell = FakeShell(stops_at=2)
    app = make_app(shell)
    async with app.run_test() as pilot:
        await ask(pilot, app)
        await pilot.press("ctrl+q")
        await eventually(pilot, lambda: app.return_value is not None)
    assert shell.stopped.is_set()


async def test_one_key_decides_on_a_call(make_app):
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
            await eventually(pilot, lambda: not app.chat.query(Question) and not app.chat.controller.stoppable)
            assert app.focused is prompt(app)


async def test_keys_meant_for_the_prompt_do_not_answer_a_question(make_app):
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


async def test_a_letter_that_answers_nothing_begins_a_message_and_sending_it_gives_the_keys_back(make_app):
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


async def test_a_question_that_comes_during_a_search_is_not_answered_by_what_is_sought(make_app):
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


async def test_a_long_draft_is_kept_aside_with_the_pastes_it_names(make_app):
    app = make_app(FakeShell())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        draft = Draft("word " * 2_500 + "[paste-1 · 30 lines]", (Attachment("paste-1", "a line\n" * 30),))
        prompt(app).put(draft)
        (kept,) = prompt(app).draft.attachments
        assert (kept.text.count("word"), kept.text.count("a line")) == (2_500, 30)


async def test_what_was_pasted_before_the_draft_came_back_is_no_other_paste(make_app):
    app = make_app(FakeShell())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, app)
        prompt(app).post_message(Paste("a new line\n" * 100))
        await eventually(pilot, lambda: prompt(app).text)
        prompt(app).put_before(Draft("[paste-1 · 30 lines]", (Attachment("paste-1", "an old line\n" * 30),)))
        draft = prompt(app).draft
        assert [(one.name, one.text.count("an old line")) for one in draft.attachments] == [("paste-1", 30)]
        assert draft.text.count("a new line") == 100


async def test_a_key_typed_a_moment_before_a_question_does_not_answer_it(make_app, monkeypatch):
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


async def test_a_call_waits_for_approval_and_is_denied_in_these_words(make_app):
    refused = CallFinished("c1", "write_file", False, "write_file was not run.", False, 0.0, refused="unapproved")
    app = make_app(FakeShell((STARTED, WRITING, WANTED, refused, FINISHED)))
    async with app.run_test(size=(100, 30)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: app.chat.query(Question))
        assert "waits for your approval" in seen(app)
        assert "running" not in seen(app)
        await pilot.press("n")
        await eventually(pilot, lambda: "saved 4.2k tok" in seen(app))
        assert "denied by you" in seen(app)
        assert all(word not in seen(app) for word in ("failed", "refused", "changed", "not approved"))


async def test_a_limit_can_be_raised_in_place(make_app):
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


async def test_the_panels_say_what_is_spent_and_registered_and_follow_the_turn(make_app):
    reached = replace(CAP, spent=CAP.limit, held=0)
    app = make_app(FakeShell((STARTED, BudgetChanged((reached,)), FINISHED), stops_at=2))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        assert "$0.4017 left of $0.50" in panel(app, BudgetPanel)
        assert "spent $0.0912 · held $0.0071" in panel(app, BudgetPanel)
        assert "TOOLS  2 of 4" in app.chat.query_one(ToolsPanel).title
        assert "● count_text" in panel(app, ToolsPanel)
        assert "○ read_file" in panel(app, ToolsPanel)
        await ask(pilot, app)
        await eventually(pilot, lambda: "reached" in panel(app, BudgetPanel))
        assert "100 %" in panel(app, BudgetPanel)


@pytest.mark.parametrize("width", [60, 80])
async def test_a_narrow_screen_sums_the_panels_up_in_a_line_and_shows_them_on_f2(make_app, width: int):
    app = make_app(FakeShell())
    async with app.run_test(size=(width, 24)) as pilot:
        await ready(pilot, app)
        tools = app.chat.query_one(ToolsPanel)
        assert not tools.is_on_screen
        assert "session: $0.4017 of $0.50 left · tools 2/4" in str(app.chat.query_one("SummaryLine").render())
        await pilot.press("f2")
        await eventually(pilot, lambda: tools.region.width == width)
        await pilot.press("f2")
        await eventually(pilot, lambda: not tools.is_on_screen)
        assert prompt(app).has_focus


async def test_what_arrives_below_is_told_end_goes_there_and_so_does_sending(make_app):
    long = (STARTED, *(Rationale(f"thought {n}", "single") for n in range(100)), FINISHED)
    app = make_app(FakeShell(long))
    async with app.run_test(size=(80, 24)) as pilot:
        transcript = app.chat.query_one(Transcript)
        await ask(pilot, app)
        await eventually(pilot, lambda: "saved" in seen(app))
        assert transcript.scroll_y == transcript.max_scroll_y
        await pilot.press("pageup", "pageup")
        left_at = transcript.scroll_y
        assert "new below" not in told(app)
        app.chat.view.hear(Rationale("one more thought", "single"))
        await eventually(pilot, lambda: "new below" in told(app))
        assert transcript.scroll_y == left_at
        await pilot.press("end")
        await eventually(pilot, lambda: transcript.scroll_y == transcript.max_scroll_y)
        assert "new below" not in told(app)
        await pilot.press("pageup", "pageup", *"ab", "home", "end")
        assert transcript.scroll_y < transcript.max_scroll_y  # end has gone to the end of the line first
        await pilot.press("enter")
        await eventually(pilot, lambda: seen(app).count("thought 99") == 2)
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_a_paste_of_ten_megabytes_is_attached_and_sent_whole(make_app):
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
    events = (STARTED, TextArrived("\udcff\x1b[2J\x00", "answer", "single"), Rationale("\ud800 ok", "single"), FINISHED)
    app = make_app(FakeShell(events))
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, app)
        await eventually(pilot, lambda: "\\ud800 ok" in seen(app))
        assert "\x1b" not in app.export_screenshot().encode().decode()


async def test_esc_stops_a_command_that_takes_a_while(make_app, monkeypatch):
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
