"""Questions in the chat: their content, answers by key and click, and their size."""

import asyncio
from dataclasses import replace

import pytest
from asking_play import COST, LIMIT, OFFERS, RUNS, TRUST, WRITES, AskingApp, asked, asks
from textual.content import Content
from textual.widgets import Input, TextArea
from tui_play import eventually

from ecoshell.agent import Approval, CostChoice, LimitChoice
from ecoshell.messages import visible
from ecoshell.tui.keys import LineInput
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.questions import ArgumentsEditor, Choices, Question
from ecoshell.tui.terminal import TerminalParser

WIDE, NARROW = (120, 36), (80, 24)


def shown(pilot) -> str:
    """The full text of the question, starting with its title."""
    question = pilot.app.question
    texts = [str(static.render()) for static in question.query("Static") if static.display]
    return "\n".join([Content.from_markup(question.border_title).plain, *texts])


async def answered(answer: "asyncio.Future[object]") -> object:
    return await asyncio.wait_for(answer, 600)


def send_packet(pilot, text: str) -> None:
    """Send letters at once, as a slow connection delivers them."""
    for key in TerminalParser().feed(text):
        pilot.app._driver.process_message(key)


async def click(pilot, words: str) -> None:
    """Click on the choice with these words."""
    for choices in pilot.app.question.query(Choices):
        for row, strip in enumerate(choices.render_line(at) for at in range(choices.size.height)):
            if (column := strip.text.find(words)) >= 0:
                await pilot.click(choices, offset=(column + 1, row))
                return
    raise AssertionError(f"nothing says {words!r}")


async def test_approval_shows_reason_arguments_changes_and_price():
    async with asked(WRITES) as (pilot, _):
        message = shown(pilot)
    assert "? may write_file run" in message
    assert "The second line is wanted in capitals" in message
    assert "path = notes.txt" in message
    assert "-two\n+TWO" in message
    assert "content =" not in message
    assert "It would change files." in message
    assert "One use costs $0.002." in message


async def test_key_and_click_give_the_same_answer():
    async with AskingApp().run_test() as pilot:
        for keys, words in (
            ("1 y", "once"),
            ("2", "session"),
            ("3", "project"),
            ("n escape", "no"),
        ):
            for key in keys.split():
                answer = await asks(pilot, WRITES)
                await pilot.press(key)
                assert await answered(answer) == Approval(words), key
            answer = await asks(pilot, WRITES)
            await click(pilot, words)
            assert await answered(answer) == Approval(words)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)])
async def test_question_is_at_most_half_the_screen_with_visible_choices(size):
    async with AskingApp().run_test(size=size) as pilot:
        for event in (WRITES, RUNS, LIMIT, COST):
            answer = await asks(pilot, event)
            question, last = pilot.app.question, pilot.app.question.query(Choices).last()
            assert question.outer_size.height <= size[1] // 2, event
            assert question.region.contains_region(last.region), event
            assert last.region.width <= size[0], event
            answer.cancel()


@pytest.mark.parametrize("size", [(40, 12), (40, 16), (60, 14)])
@pytest.mark.parametrize(
    ("event", "first", "last"),
    [(WRITES, "path = notes.txt", " three"), (RUNS, "command = echo line 0", "seconds = 20")],
)
async def test_a_call_is_in_sight_on_a_small_screen_and_can_be_scrolled(size, event, first, last):
    def drawn() -> str:
        strips = pilot.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    async with asked(event, size=size) as (pilot, _):
        await eventually(pilot, lambda: first in drawn())
        assert " n  no" in drawn().replace("│", "")
        for key, text in (("end", last), ("home", "◊ ")):
            await pilot.press(key)
            await eventually(pilot, lambda text=text: text in drawn())


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_choices_are_never_wrapped_and_fit_one_line_at_80_columns(width: int):
    async with asked(RUNS, size=(width, 36)) as (pilot, _):
        for keys in ([], ["f"]):
            await pilot.press(*keys)
            await pilot.pause()
            choices = pilot.app.question.query(Choices).last()
            lines = [choices.render_line(at).text.rstrip() for at in range(choices.size.height)]
            fold = "f  fold" if keys else "f  all"
            for words in (
                "1  once",
                "2  session",
                "3  project",
                "n  no",
                "d  instead",
                "e  edit",
                fold,
            ):
                assert any(words in line for line in lines), (words, lines)
            assert len(lines) == 1 or width == 60


async def test_long_arguments_are_folded_unfolded_and_scrolled():
    async with asked(RUNS) as (pilot, _):
        assert "echo line 5" in shown(pilot)
        assert "echo line 6\n" not in shown(pilot)
        assert "54 more lines" in shown(pilot)
        await pilot.press("f")
        assert "echo line 59" in shown(pilot)
        await pilot.press("end")
        await pilot.pause()
        assert pilot.app.question.scroll_offset.y > 0
        await pilot.press("f")
        assert "54 more lines" in shown(pilot)


async def test_text_that_a_cut_diff_lacks_is_shown_among_the_arguments():
    content = "x" * 1_200 + "end of the line"
    changes = f"--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+{content[:999]}…"
    arguments = {"path": "a", "content": content}
    async with asked(replace(WRITES, arguments=arguments, changes=changes)) as (pilot, _):
        await pilot.press("f")
        assert "end of the line" in shown(pilot).replace("\n", "")


async def test_server_question_is_shown_in_full_and_answered_once():
    fields = "\n".join(f"- field {number} (string): Number {number}." for number in range(40))
    form = replace(WRITES, name="asks:form", rationale=f"Who are you?\n{fields}", changes="")
    async with asked(form, size=NARROW) as (pilot, answer):
        message = shown(pilot)
        assert "? asks asks" in message
        assert "- field 39 (string): Number 39." in message
        assert [item for item in ("session", "project", "instead") if item in message] == []
        await pilot.press("e")
        await pilot.pause()
        editor = pilot.app.query_one(ArgumentsEditor)
        await eventually(pilot, lambda: pilot.app.question.region.contains_region(editor.region))
        assert not answer.done()
        await pilot.press("enter")
        assert (await answered(answer)).decision == "once"


async def test_arguments_are_edited_as_json_and_enter_runs_them():
    async with asked(WRITES) as (pilot, answer):
        await pilot.press("e")
        editor = pilot.app.query_one(ArgumentsEditor)
        assert '"path": "notes.txt"' in editor.text
        editor.text = '{"path": "b.txt", "content": ""}'
        await pilot.press("enter")
        assert await answered(answer) == Approval("once", {"path": "b.txt", "content": ""})


async def test_control_characters_in_arguments_are_edited_as_escapes():
    results = {"path": "a\x1b\x9b2J\u202egpj.exe", "content": "é\U000e0041 日本"}
    async with asked(replace(WRITES, arguments=results)) as (pilot, answer):
        await pilot.press("e")
        text = pilot.app.query_one(ArgumentsEditor).text
        assert visible(text) == text
        assert "é" in text
        assert "日本" in text
        await pilot.press("enter")
        assert await answered(answer) == Approval("once", results)


async def test_refusal_can_carry_instructions_and_escape_leaves_the_input():
    async with asked(WRITES) as (pilot, answer):
        await pilot.press("d", *"no ya", "escape")
        assert not answer.done()
        await pilot.press("d", *"y", "enter")
        assert await answered(answer) == Approval("no", instead="no yay")


async def test_control_s_runs_edited_arguments_and_control_j_adds_a_line():
    async with asked(WRITES) as (pilot, answer):
        await pilot.press("e")
        pilot.app.query_one(ArgumentsEditor).text = '{"path": "b.txt"}'
        await pilot.press("ctrl+j", "ctrl+s")
        assert await answered(answer) == Approval("once", {"path": "b.txt"})


async def test_invalid_json_is_reported_and_stays_in_the_editor():
    async with asked(WRITES) as (pilot, answer):
        await pilot.press("e")
        editor = pilot.app.query_one(ArgumentsEditor)
        editor.text = '{"path": }'
        await pilot.press("enter")
        assert "This is not JSON: Expecting value (line 1, column 10)." in shown(pilot)
        assert (editor.text, answer.done()) == ('{"path": }', False)


async def test_second_escape_after_the_editor_denies():
    async with asked(WRITES) as (pilot, answer):
        await pilot.press("e", "x", "escape")
        assert "run it with these" not in shown(pilot)
        assert not answer.done()
        await pilot.press("escape")
        assert await answered(answer) == Approval("no")


async def test_rejected_arguments_are_edited_again():
    again = replace(
        WRITES, arguments={"path": 3}, changes="", fault="path: 3 is not of type 'string'"
    )
    async with asked(again, typed="half a question") as (pilot, answer):
        assert isinstance(pilot.app.focused, ArgumentsEditor)
        assert "path: 3 is not of type" in shown(pilot)
        pilot.app.focused.text = '{"path": "c.txt"}'
        await pilot.press("enter")
        assert await answered(answer) == Approval("once", {"path": "c.txt"})


async def test_editor_text_is_not_stored_as_a_draft():
    heard = []

    class Listens(AskingApp):
        def on_text_area_changed(self, event: TextArea.Changed) -> None:
            heard.append(event.text_area)

    app = Listens(WRITES)
    async with app.run_test() as pilot:
        await pilot.pause()
        await pilot.press("e", "x")
        await pilot.pause()
        assert app.query_one(ArgumentsEditor).text.startswith("x")
    assert not any(isinstance(area, ArgumentsEditor) for area in heard)


async def test_letters_that_no_choice_names_start_a_message():
    async with asked(WRITES) as (pilot, answer):
        await pilot.press(*"ps")
        await eventually(pilot, lambda: pilot.app.query_one(Prompt).text == "ps")
        assert not answer.done()


async def test_prompt_keeps_the_focus_while_it_has_text():
    async with asked(WRITES, typed="half") as (pilot, answer):
        await pilot.press("y")
        assert not answer.done()
        assert pilot.app.question.border_subtitle == "shift+tab to answer"
        await pilot.press("shift+tab")
        assert pilot.app.question.border_subtitle == ""
        await pilot.press("y")
        assert await answered(answer) == Approval("once")


async def test_question_of_a_stopped_turn_disappears():
    async with asked(WRITES) as (pilot, answer):
        answer.cancel()
        await pilot.pause()
        await pilot.pause()
        assert not pilot.app.query(Question)
        assert pilot.app.focused is pilot.app.prompt


async def test_questions_are_asked_one_at_a_time():
    async with asked(WRITES) as (pilot, answer):
        second = asyncio.ensure_future(pilot.app.ask(COST))
        await pilot.pause()
        assert len(pilot.app.query(Question)) == 1
        await pilot.press("1")
        await answered(answer)
        await pilot.pause()
        await pilot.press("g")
        assert await answered(second) == CostChoice("go")


async def test_markup_and_escapes_in_a_question_are_literal():
    nasty = replace(
        WRITES,
        name="x[b]",
        arguments={"[red]a": "\x1b[31mred[/]"},
        rationale="[bold]why\x1b]0;t\x07",
    )
    async with asked(nasty) as (pilot, _):
        message = shown(pilot)
    assert "\x1b" not in message
    assert "[red]a" in message
    assert "[bold]why" in message
    assert "may x[b] run" in message


async def test_keys_choose_at_a_limit():
    async with AskingApp().run_test() as pilot:
        for keys, choice in (
            (["1"], LimitChoice("model", "embedded")),
            (["3"], LimitChoice("model", OFFERS[2].name)),
            (["9", "a"], LimitChoice("answer")),
            (["r", "enter"], LimitChoice("raise", "0.53")),
            (["r", *"2.50", "enter"], LimitChoice("raise", "2.50")),
            (["m", *"local:x.gguf", "enter"], LimitChoice("model", "local:x.gguf")),
            (["m", "escape", "s"], LimitChoice("stop")),
            (["escape"], LimitChoice("stop")),
        ):
            answer = await asks(pilot, LIMIT)
            await pilot.press(*keys)
            assert await answered(answer) == choice, keys


async def test_click_selects_an_offered_model():
    async with asked(LIMIT) as (pilot, answer):
        await click(pilot, "openai/gpt-5-nano")
        assert await answered(answer) == LimitChoice("model", "openai/gpt-5-nano")


async def test_the_title_of_a_limit_does_not_call_the_reserve_of_the_answer_used():
    """The panel and the title bar count it as left."""
    hit = replace(LIMIT, unit="ms", need=1_000, left=0, enough=16_000)
    async with asked(hit) as (pilot, _):
        assert shown(pilot).startswith("■ session cap: needs 1 s, 0 s not reserved\n")


async def test_offers_show_location_price_and_fit():
    async with asked(LIMIT, size=(120, 36)) as (pilot, _):
        rows = shown(pilot).split("\n")
    offers = [row.split() for row in rows if "remote" in row or "local" in row]
    assert offers[0] == ["1", "embedded", "local", "free"]
    assert offers[1] == ["2", "openai/gpt-5-nano", "remote", "≤", "$0.0012"]
    assert offers[2][-3:] == ["may", "not", "fit"]


async def test_offers_show_tokens_under_a_token_cap():
    hit = replace(LIMIT, unit="tokens", need=9_300, left=100, enough=21_000)
    async with asked(hit, size=(120, 36)) as (pilot, answer):
        assert "≤ 9.3k tok  ≤ $0.0012" in shown(pilot)
        await pilot.press("r", "enter")
        assert await answered(answer) == LimitChoice("raise", "21000tok")


async def test_invalid_amount_is_reported_and_can_be_corrected():
    async with asked(LIMIT) as (pilot, answer):
        await pilot.press("r", *"nothing", "enter")
        assert "'nothing' is not an amount." in shown(pilot)
        assert "raise cap" not in shown(pilot)
        assert not answer.done()
        assert pilot.app.query_one(LineInput).value == "nothing"
        await pilot.press("ctrl+u", *"2", "enter")
        assert await answered(answer) == LimitChoice("raise", "2")


async def test_keys_choose_before_an_expensive_step():
    async with AskingApp().run_test() as pilot:
        for keys, choice in (
            (["g"], CostChoice("go")),
            (["y"], CostChoice("go")),
            (["d"], CostChoice("always")),
            (["a"], CostChoice("answer")),
            (["2"], CostChoice("model", "openai/gpt-5-nano")),
            (["m", *"embedded", "enter"], CostChoice("model", "embedded")),
            (["s"], CostChoice("stop")),
            (["m", "escape", "escape"], CostChoice("stop")),
        ):
            answer = await asks(pilot, COST)
            await pilot.press(*keys)
            assert await answered(answer) == choice, keys


async def test_expensive_step_shows_its_range_and_threshold():
    async with asked(COST) as (pilot, _):
        message = shown(pilot)
    assert "$ the next step with openai/gpt-5 may cost $0.012 to $0.084" in message
    assert "more than ask_above ($0.05) in the settings" in message


async def test_key_and_click_answer_the_trust_question():
    async with AskingApp().run_test() as pilot:
        for key, words, word in (
            ("1", "trust it", "yes"),
            ("n", " no", "no"),
            ("escape", "not now", "later"),
        ):
            answer = await asks(pilot, TRUST)
            await pilot.press(key)
            assert await answered(answer) == word
            answer = await asks(pilot, TRUST)
            await click(pilot, words)
            assert await answered(answer) == word


async def test_project_instructions_can_be_read_before_trusting():
    async with asked(TRUST) as (pilot, _):
        folded = shown(pilot)
        await pilot.press("f")
        full_text = shown(pilot)
    assert "? may the model follow AGENTS.md of this project, which has changed" in folded
    assert "/home/me/project/AGENTS.md" in folded
    assert "Use tabs." in folded
    assert "The end." not in folded
    assert "The end." in full_text


async def test_keys_of_one_packet_act_in_order_in_the_input():
    async with asked(LIMIT) as (pilot, answer):
        await pilot.press("m")
        pilot.app.query_one(Input).value = ""
        await pilot.press("a", "b", "backspace", "c", "enter")
        assert await answered(answer) == LimitChoice("model", "ac")


@pytest.mark.parametrize(
    ("event", "keys", "size"),
    [
        pytest.param(WRITES, [], NARROW, id="approval-narrow"),
        pytest.param(WRITES, ["e"], NARROW, id="edit"),
        pytest.param(RUNS, [], NARROW, id="long"),
        pytest.param(LIMIT, ["r"], WIDE, id="raise"),
        pytest.param(COST, [], NARROW, id="cost"),
        pytest.param(TRUST, [], WIDE, id="trust"),
    ],
)
def test_how_a_question_looks(snap_compare, monkeypatch, size, event, keys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(TextArea, "cursor_blink", False)
    monkeypatch.setattr(Input, "cursor_blink", False)

    async def ready(pilot) -> None:
        await eventually(pilot, lambda: pilot.app.query(Question))
        await pilot.press(*keys)
        await pilot.pause()

    assert snap_compare(AskingApp(event), terminal_size=size, run_before=ready)


@pytest.mark.parametrize(
    ("event", "text"),
    [(WRITES, "why"), (WRITES, "/cost last"), (RUNS, "why"), (LIMIT, "q8"), (COST, "what")],
)
async def test_a_packet_of_letters_that_starts_with_no_answer_goes_to_the_prompt(event, text):
    async with asked(event) as (pilot, answer):
        send_packet(pilot, text)
        await eventually(pilot, lambda: pilot.app.focused is pilot.app.prompt)
        assert (pilot.app.prompt.text, answer.done()) == (text, False)


@pytest.mark.parametrize(
    ("event", "text", "choice"),
    [
        (WRITES, "dstop it", Approval("no", instead="stop it")),
        (LIMIT, "mas", LimitChoice("model", "as")),
        (COST, "mgo", CostChoice("model", "go")),
    ],
)
async def test_a_packet_that_opens_an_input_is_typed_into_it(event, text, choice):
    async with asked(event) as (pilot, answer):
        send_packet(pilot, text)
        await eventually(pilot, lambda: isinstance(pilot.app.focused, LineInput))
        await pilot.press("enter")
        assert await answered(answer) == choice


async def test_letters_after_an_answer_in_one_packet_go_to_the_prompt():
    async with asked(WRITES) as (pilot, answer):
        send_packet(pilot, "yes")
        assert await answered(answer) == Approval("once")
        await eventually(pilot, lambda: pilot.app.focused is pilot.app.prompt)
        assert pilot.app.prompt.text == "es"
