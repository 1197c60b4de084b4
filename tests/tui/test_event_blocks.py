"""The blocks of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_play import PLANNED, QUOTA, TOKEN_PLAN, USED
from rich.style import Style

from ecoshell.agent.command_table import caps_table
from ecoshell.budget import CapState
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    ContextPart,
    ContextTold,
    CostWanted,
    ErrorHappened,
    TurnFinished,
)
from ecoshell.events.figures import duration
from ecoshell.messages import Attachment, Usage
from ecoshell.tui.text import money, tokens
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import TONES, preview, sections_of
from ecoshell.tui.transcript.painting import Painter

STARTED = CallStarted("c1", "count_text", {"path": "notes.txt", "deep": True})


def finished(**changes: object) -> CallFinished:
    usage_value = {
        "ok": True,
        "observation": "1,204 words",
        "truncated": False,
        "seconds": 0.012,
        "refused": "",
    }
    return CallFinished("c1", **({"name": "count_text"} | usage_value | changes))


def ended(**changes: object) -> TurnFinished:
    usage_value = {
        "status": "answered",
        "spent_nano": 3_100_000,
        "steps": 3,
        "seconds": 2.1,
        "saved_tokens": 0,
    }
    return TurnFinished(turn=1, answer="", usage=Usage(), registered=(), **(usage_value | changes))


def test_call_shows_its_arguments_its_time_and_its_observation():
    block = event_blocks.call(STARTED, finished())
    assert block.sign == "►"
    assert block.text() == "count_text(path=notes.txt, deep=true)  12 ms\n└ 1,204 words"


def test_running_call_is_marked():
    assert (
        event_blocks.running_call(STARTED).text()
        == "count_text(path=notes.txt, deep=true)  running …"
    )
    text_shown = event_blocks.running_call(STARTED, progress="2 of 3\x1b[2J").text()
    assert text_shown == "count_text(path=notes.txt, deep=true)  2 of 3␛[2J …"


def test_call_with_changes_shows_counts_and_diff():
    changes = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n"
    block = event_blocks.call(STARTED, finished(changes=changes))
    assert block.text().splitlines()[2] == "└ +2 −1"
    assert block.bodies[-1].kind == "diff"
    assert block.text(opened=True).endswith("+2\n+three")


def test_call_without_an_ending_is_stopped():
    assert event_blocks.running_call(STARTED, event_blocks.STOPPED).text().endswith("stopped")


def test_attachments_are_folded_with_name_and_size():
    block = event_blocks.question("sum up", attachments=[Attachment("data.csv", "a\nb\nc\n")])
    assert block.text() == "sum up\n¶ data.csv · 3 lines"
    assert block.text(opened=True).endswith("a\nb\nc")


def test_user_command_shows_output_and_failure():
    block = event_blocks.block_of(
        CommandRan("make test", "boom", ok=False, truncated=True, seconds=1.5)
    )
    assert block.sign == "$"
    assert block.text() == "make test  failed after 1.5 s · output truncated\n└ boom"


def test_compaction_shows_what_it_saves_and_keeps_its_summary():
    block = event_blocks.block_of(
        Compacted("All of it.\n\nAnd more.\n\nAnd more.", "embedded", 12, 14_000, 900)
    )
    assert block.text().splitlines()[0] == (
        "12 turns summarized by embedded · 14,000 tokens became 900"
    )
    assert block.foldable
    assert block.text(opened=True).endswith("And more.\n\nAnd more.")


def test_expensive_step_shows_price_range_and_threshold():
    plain = event_blocks.block_of(
        CostWanted("single", "gpt", 1_000_000, 50_000_000, 20_000_000)
    ).text()
    assert "gpt may cost $0.001 to $0.05" in plain
    assert "more than ask_above ($0.02)" in plain


def test_edited_arguments_are_shown():
    plain = event_blocks.approval(
        "write_file", ApprovalGiven("c1", "once", "person", {"path": "b.txt"})
    ).text()
    assert plain.splitlines()[1:] == ["with arguments edited by you:", "path = b.txt"]


@pytest.mark.parametrize("status", ["gave_up", "limit", "error", "interrupted"])
def test_missing_answer_has_its_own_sign(status: str):
    assert event_blocks.answer(Answer("I could not find it."), status).sign != "√"


def test_long_observation_is_folded_with_a_note():
    block = event_blocks.call(
        STARTED, finished(observation="\n".join(f"line {n}" for n in range(1200)))
    )
    assert block.text().splitlines()[-2:] == ["line 3", "… 1,196 more lines"]
    assert block.text(opened=True).splitlines()[-1] == "line 1199"


@pytest.mark.parametrize("name", ["run_command", "run_python", "run_program", "command_output"])
def test_output_of_a_program_is_folded_to_its_end(name: str):
    output = "\n".join([f"line {n}" for n in range(12)] + ["5 failed", "[exit status 1]"])
    block = event_blocks.call(None, finished(name=name, ok=False, observation=output))
    assert block.text().splitlines()[1:] == [
        "└ … 10 earlier lines",
        "line 10",
        "line 11",
        "5 failed",
        "[exit status 1]",
    ]
    assert block.text(opened=True).splitlines()[1] == "└ line 0"
    short = event_blocks.call(None, finished(name=name, observation="4 passed"))
    assert short.text().splitlines()[1:] == ["└ 4 passed"]


@pytest.mark.parametrize("name", ["read_file", "list_files", "search_text"])
def test_successful_reading_takes_one_row_until_it_is_opened(name: str):
    block = event_blocks.call(None, finished(name=name, observation="one"))
    assert block.text().count("\n") == 0
    assert block.foldable
    assert block.rows[0].folds
    assert block.text(opened=True).splitlines()[1] == "└ one"
    failed = event_blocks.call(None, finished(name=name, ok=False, observation="No such file."))
    assert failed.text().splitlines()[1] == "└ No such file."


def test_long_argument_is_cut():
    long = CallStarted("c1", "write_file", {"text": "x" * 1_000_000})
    assert len(event_blocks.running_call(long).text()) < 120


def test_escape_sequences_of_tools_are_escaped():
    block = event_blocks.call(
        STARTED, finished(observation="\x1b]0;owned\x07\x1b[2J[bold]text[/bold]")
    )
    assert "\x1b" not in block.text()
    assert "\x07" not in block.text()
    assert "[bold]text[/bold]" in block.text()


def test_instructions_have_a_line_and_facts_do_not():
    facts = ContextPart("facts", 92)
    text_shown = ContextTold(
        "…", (ContextPart("project", 1_340, cut=True), facts), exact=False, workspace="/p"
    )
    message = "context: AGENTS.md of this project (≈ 1,340 tokens, cut), facts of the workspace (≈ 92 tokens)"
    assert event_blocks.block_of(text_shown).text() == message
    assert event_blocks.block_of(ContextTold("…", (facts,), exact=True, workspace="/p")) is None


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("limit", "limit reached"),
        ("gave_up", "gave up"),
        ("error", "error"),
        ("interrupted", "stopped"),
    ],
)
def test_turn_without_an_answer_shows_its_ending(status: str, word: str):
    assert (
        event_blocks.footer(ended(status=status, steps=1))
        .text()
        .startswith(f"{word} · $0.0031 · 1 step")
    )


def test_unknown_cost_is_not_zero():
    assert event_blocks.footer(ended(spent_nano=None)).text().startswith("cost unknown")


def test_decision_names_its_author():
    assert event_blocks.approval("write_file", ApprovalGiven("c1", "no", "rule")).text() == (
        "write_file  denied by a rule in the settings"
    )


def test_error_shows_message_kept_and_fix():
    block = event_blocks.error(
        ErrorHappened("ModelUnavailable", "No answer.", "The session is kept.", "Try again.")
    )
    assert block.text() == "No answer.\nThe session is kept.\nTry again."


def test_missing_usage_notes_that_the_full_reservation_counts():
    text_shown = BudgetSettled(1, "single", "m", 7_100_000, Usage(), False, 1.0).render().words
    assert "whole reservation ($0.0071) counts until you correct it with" in text_shown
    assert "`/cost reconcile 1=AMOUNT` in this session" in text_shown
    assert "`ecoshell cost --reconcile 1=AMOUNT`" in text_shown
    stopped = BudgetSettled(
        *(20, "single", "m", 7_100_000, Usage(7_200, 1_000), False, 3.0),
        estimate=Usage(812, 40),
        estimate_nano=1_200_000,
        why="the call was stopped",
    )
    assert stopped.render().words.startswith(
        "The call was stopped, so its cost is unknown: ≈ 812 tokens in and 40 out by a tokenizer, ≈ $0.0012."
    )


def test_partial_answer_is_called_partial():
    assert event_blocks.answer(Answer("so far", partial=True)).text().startswith("partial answer")


def test_question_of_ten_megabytes_is_folded():
    block = event_blocks.question("word " * 2_000_000)
    assert len(block.text()) < 5_000
    assert "more characters" in block.text()


@given(st.text(), st.integers(1, 5), st.integers(1, 20))
def test_preview_keeps_the_start_and_reports_the_rest(
    text: str, most_lines: int, most_characters: int
):
    output_value, more = preview(text, lines=most_lines, characters=most_characters)
    assert text.startswith(output_value)
    assert bool(more) == (output_value != text)


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (None, "price unknown"),
        (0, "$0"),
        (1, "$0.000000001"),
        (3_141_592, "$0.003142"),
        (12_345_678_901, "$12.35"),
        (3_100_000, "$0.0031"),
        (500_000_000, "$0.50"),
        (2 * 10**9, "$2"),
    ],
)
def test_money_is_rounded_to_four_digits_and_never_to_nothing(nano: int | None, text: str):
    assert money(nano) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (812, "812"), (1_942, "1.9k"), (14_120, "14k"), (2_100_000, "2.1M")],
)
def test_tokens_are_written_short(count: int, text: str):
    assert tokens(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.012, "12 ms"),
        (0.9996, "1.0 s"),
        (2.1, "2.1 s"),
        (59.96, "1 min 0 s"),
        (200, "3 min 20 s"),
    ],
)
def test_times_are_written_short(seconds: float, text: str):
    assert duration(seconds) == text


def test_first_plan_shows_allowed_tools_and_price_range():
    assert event_blocks.plan(PLANNED, None).text() == "plan: 3 of 5 tools, about $0.002 to $0.011"
    assert (
        event_blocks.plan(TOKEN_PLAN, None).text()
        == "plan: 3 of 5 tools, about 900 tokens to 6,100 tokens"
    )


def test_replanning_has_a_line_only_for_newly_forbidden_tools():
    assert event_blocks.plan(USED, PLANNED) is None
    assert event_blocks.plan(QUOTA, USED).text() == "plan: count_text (quota) may no longer be used"


def test_users_mark_overrides_the_judge():
    def message(judged: bool | None, marked: bool | None) -> str:
        mark = None if marked is None else CallMarked(1, "c1", "count_text", marked)
        pieces = event_blocks.verdict(CallJudged("c1", "count_text", judged, "rules"), mark)
        return "".join(piece.text for piece in pieces)

    assert [message(judged, None) for judged in (True, False, None)] == ["√", "× unhelpful", ""]
    assert [message(judged, True) for judged in (True, False, None)] == [
        "√ helpful, marked by you"
    ] * 3
    assert [message(judged, False) for judged in (True, False, None)] == [
        "× unhelpful, marked by you"
    ] * 3


def test_verdict_ends_the_calls_line():
    block = replace(
        event_blocks.call(STARTED, finished()),
        verdict=event_blocks.verdict(CallJudged("c1", "count_text", False, "rules"), None),
    )
    assert block.text().splitlines() == [
        "count_text(path=notes.txt, deep=true)  × unhelpful  12 ms",
        "└ 1,204 words",
    ]
    assert replace(block, verdict=()).text() == event_blocks.call(STARTED, finished()).text()


@pytest.mark.parametrize("width", range(14, 80, 6))
def test_table_loses_no_column_on_a_narrow_screen(width: int):
    caps = [CapState("session", "usd", 500_000_000, 91_200_000, 7_100_000)]
    block = event_blocks.command_output(caps_table(caps, None))
    painter = Painter(dict.fromkeys(TONES, Style()), width)
    sections = sections_of(block, opened=False)
    text = "".join(line.strip.text for part in sections for line in painter.paint(part))
    for cell in ("limit", "spent", "held", "left", "$0.50", "$0.0912", "$0.0071", "$0.4017"):
        assert cell in text


def test_table_lines_wrap_below_their_last_column():
    block = event_blocks.command_output(
        "  mode    who thinks\n› single  one model that does it all, and says so at some length"
    )
    painter = Painter(dict.fromkeys(TONES, Style()), 40)
    sections = sections_of(block, opened=False)
    output_value = [line.strip.text.rstrip() for part in sections for line in painter.paint(part)]
    assert output_value[-2:] == [
        "   › single  one model that does it all,",
        "             and says so at some length",
    ]
