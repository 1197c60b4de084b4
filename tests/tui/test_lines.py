"""What is said about each event."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_play import PLANNED, QUOTA, TOKEN_PLAN, USED
from rich.style import Style

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallStarted,
    CommandRan,
    Compacted,
    ContextPart,
    ContextTold,
    CostWanted,
    ErrorHappened,
    PlanScored,
    ResultsTrimmed,
    StepProposed,
    ToolRegistered,
    ToolsOffered,
    TrimmedResult,
    TrustGiven,
    TurnFinished,
    TurnUndone,
)
from ecoshell.events.describe import describe, duration
from ecoshell.messages import Attachment, Usage
from ecoshell.tui.text import money, tokens
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import TONES, folded, sections_of
from ecoshell.tui.transcript.painting import Painter

STARTED = CallStarted("c1", "count_text", {"path": "notes.txt", "deep": True})


def finished(**changes: object) -> CallFinished:
    known = {"ok": True, "observation": "1,204 words", "truncated": False, "seconds": 0.012, "refused": ""}
    return CallFinished("c1", "count_text", **(known | changes))


def ended(**changes: object) -> TurnFinished:
    known = {"status": "answered", "spent_nano": 3_100_000, "steps": 3, "seconds": 2.1, "saved_tokens": 0}
    return TurnFinished(turn=1, answer="", usage=Usage(), registered=(), **(known | changes))


def test_a_call_shows_its_arguments_its_time_and_its_observation():
    block = event_blocks.call(STARTED, finished())
    assert block.sign == "►"
    assert block.text() == "count_text(path=notes.txt, deep=true)  12 ms  $0\n└ 1,204 words"


def test_going_back_says_to_where_and_why():
    block = event_blocks.block_of(BranchLeft(("c1", "c2"), 3, "given up: no\nsuch file"))
    assert (block.sign, block.text()) == ("←", "back to step 2  given up: no such file")
    assert event_blocks.block_of(BranchLeft((), 1, "x")).text() == "back to the beginning  x"


def test_a_proposal_shows_its_step_and_its_reason_if_there_is_one():
    assert (
        event_blocks.block_of(StepProposed("Look around.", "list_files()", "m")).text()
        == "proposed  list_files()  Look around."
    )
    assert event_blocks.block_of(StepProposed(" ", "answer", "m")).text() == "proposed  answer"


def test_what_a_plan_was_worth_takes_a_line_that_obeys_nothing():
    known = {"cost_nano": 2_100_000, "most_nano": 50_000_000, "alpha": 0.5, "quality": 0.314}
    block = event_blocks.block_of(PlanScored(3, 0.67, "you + rules\x1b[2J", **known))
    assert block.text() == "plan of turn 3: QoP 0.31: P 0.67 by you + rules␛[2J, C $0.0021 of $0.05"
    unknown = PlanScored(3, None, "", None, 50_000_000, 0.5, None, resources_nano=None)
    assert "QoP unknown: P unknown, C unknown (not every run was measured)" in event_blocks.block_of(unknown).text()


def test_a_call_that_still_runs_says_so():
    assert event_blocks.under_way(STARTED).text() == "count_text(path=notes.txt, deep=true)  running …"
    told = event_blocks.under_way(STARTED, progress="2 of 3\x1b[2J").text()
    assert told == "count_text(path=notes.txt, deep=true)  2 of 3␛[2J …"


def test_a_call_that_was_paid_for_shows_its_price():
    assert event_blocks.call(STARTED, finished(spent_nano=3_100_000)).text().splitlines()[0].endswith("12 ms  $0.0031")


def test_a_call_that_changed_files_shows_how_much_and_what():
    changes = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n"
    block = event_blocks.call(STARTED, finished(changes=changes))
    assert block.text().splitlines()[2] == "└ +2 −1"
    assert block.bodies[-1].kind == "diff"
    assert block.text(opened=True).endswith("+2\n+three")


def test_a_call_of_which_nobody_heard_the_end_says_that_it_was_stopped():
    assert event_blocks.under_way(STARTED, event_blocks.STOPPED).text().endswith("stopped")


def test_what_goes_along_with_a_question_is_named_with_its_lines_and_folded_away():
    block = event_blocks.question("sum up", attachments=[Attachment("data.csv", "a\nb\nc\n")])
    assert block.text() == "sum up\n¶ data.csv · 3 lines"
    assert block.text(opened=True).endswith("a\nb\nc")


def test_a_command_the_person_ran_shows_its_output_and_whether_it_failed():
    block = event_blocks.block_of(CommandRan("make test", "boom", ok=False, truncated=True, seconds=1.5))
    assert block.sign == "$"
    assert block.text() == "make test  failed after 1.5 s\n└ boom\n  … truncated by the tool's output limit"


def test_a_turn_that_was_taken_back_names_the_files():
    plain = event_blocks.block_of(TurnUndone(3, ("a.txt",), ("b.txt",))).text()
    assert plain.splitlines()[0].startswith("turn 3 was undone")
    assert "restored  a.txt" in plain
    assert "changed since  b.txt" in plain


def test_a_compaction_shows_what_it_saves_and_keeps_its_summary():
    block = event_blocks.block_of(Compacted("All of it.\n\nAnd more.\n\nAnd more.", "embedded", 12, 14_000, 900))
    assert block.text().splitlines()[0] == "12 turns summarized by embedded · 14k → 900 tok"
    assert block.foldable
    assert block.text(opened=True).endswith("And more.\n\nAnd more.")


def test_an_automatic_compaction_says_its_price_and_what_it_replaces():
    event = Compacted("All of it.", "gpt", 0, 14_000, 900, ("c1", "c2"), automatic=True, spent_nano=10_000_000)
    assert event_blocks.block_of(event).text().startswith("2 earlier calls summarized by gpt for $0.01 · 14k → 900 tok")
    trimmed = event_blocks.block_of(ResultsTrimmed((TrimmedResult(1, "c1"),), 1_200, 30_000, 12_000))
    assert trimmed.text() == "1 large result trimmed to make room: 30,000 tokens became 12,000"


def test_an_expensive_step_says_what_it_may_cost_and_from_where_on_it_asks():
    plain = event_blocks.block_of(CostWanted("single", "gpt", 1_000_000, 50_000_000, 20_000_000)).text()
    assert "gpt may cost $0.001 to $0.05" in plain
    assert "from $0.02 on" in plain


def test_arguments_that_were_edited_are_shown():
    plain = event_blocks.approval("write_file", ApprovalGiven("c1", "once", "person", {"path": "b.txt"})).text()
    assert plain.splitlines()[1:] == ["with arguments edited by you:", "path = b.txt"]


@pytest.mark.parametrize("status", ["gave_up", "limit", "error", "interrupted"])
def test_an_answer_that_is_none_does_not_carry_the_sign_of_one(status: str):
    assert event_blocks.answer(Answer("I could not find it."), status).sign != "√"


def test_a_refused_call_says_which_guard_refused_it():
    assert "refused: unregistered" in event_blocks.call(STARTED, finished(ok=False, refused="unregistered")).text()


def test_a_failed_call_says_that_it_failed():
    assert "failed after 12 ms" in event_blocks.call(STARTED, finished(ok=False)).text()


def test_a_long_observation_is_folded_to_four_lines_and_says_how_much_is_left_out():
    block = event_blocks.call(STARTED, finished(observation="\n".join(f"line {n}" for n in range(1200))))
    assert block.text().splitlines()[-2:] == ["line 3", "… 1,196 more lines"]
    assert block.text(opened=True).splitlines()[-1] == "line 1199"


def test_a_truncated_observation_says_so():
    assert "truncated" in event_blocks.call(STARTED, finished(truncated=True)).text()


def test_a_long_argument_is_cut():
    long = CallStarted("c1", "write_file", {"text": "x" * 1_000_000})
    assert len(event_blocks.under_way(long).text()) < 120


def test_escape_sequences_in_what_tools_print_are_shown_and_not_obeyed():
    block = event_blocks.call(STARTED, finished(observation="\x1b]0;owned\x07\x1b[2J[bold]text[/bold]"))
    assert "\x1b" not in block.text()
    assert "\x07" not in block.text()
    assert "[bold]text[/bold]" in block.text()


def test_a_registration_shows_the_tokens_it_costs():
    assert (
        event_blocks.block_of(ToolRegistered("count_text", 142, True, 1, "agent")).text()
        == "registered count_text  +142 tok"
    )


def test_an_estimated_count_of_tokens_is_marked():
    assert "+≈ 142 tok" in event_blocks.block_of(ToolRegistered("count_text", 142, False, 1, "agent")).text()


def test_the_offer_says_how_many_names_and_documents_the_model_is_given_and_why():
    event = ToolsOffered(("a", "b", "c"), ("a",), "grow", 1_942, 14_120, True, "cheaper")
    assert event_blocks.block_of(event).text() == "3 tools by name, 1 registered up front · 1.9k of 14k tok · cheaper"


def test_instructions_that_go_along_take_a_line_and_facts_alone_none():
    facts = ContextPart("facts", 92)
    told = ContextTold("…", (ContextPart("project", 1_340, cut=True), facts), exact=False, workspace="/p")
    said = "told: AGENTS.md of this project (≈ 1,340 tokens, cut), facts of the workspace (≈ 92 tokens)"
    assert event_blocks.block_of(told).text() == said
    assert event_blocks.block_of(ContextTold("…", (facts,), exact=True, workspace="/p")) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (TrustGiven("yes", "person"), "AGENTS.md of this project is trusted until it changes"),
        (TrustGiven("no", "person"), "AGENTS.md of this project is not read until it changes"),
    ],
)
def test_the_word_on_a_projects_instructions_is_told(given, words):
    assert event_blocks.block_of(given).text() == words
    assert event_blocks.block_of(TrustGiven("later", "nobody")) is None  # a note says so


def test_the_footer_names_cost_steps_time_and_tokens_saved():
    assert event_blocks.footer(ended(saved_tokens=4_200)).text() == "$0.0031 · 3 steps · 2.1 s · saved 4.2k tok"


@pytest.mark.parametrize(
    ("status", "word"),
    [("limit", "limit reached"), ("gave_up", "gave up"), ("error", "error"), ("interrupted", "stopped")],
)
def test_a_turn_without_an_answer_says_how_it_ended(status: str, word: str):
    assert event_blocks.footer(ended(status=status, steps=1)).text().startswith(f"{word} · $0.0031 · 1 step")


def test_a_cost_that_is_not_known_is_not_shown_as_zero():
    assert event_blocks.footer(ended(spent_nano=None)).text().startswith("cost unknown")


def test_a_decision_names_who_took_it():
    assert event_blocks.approval("write_file", ApprovalGiven("c1", "no", "rule")).text() == (
        "write_file  denied by a rule in the settings"
    )


def test_an_error_says_what_happened_what_was_kept_and_what_to_do():
    block = event_blocks.error(ErrorHappened("ModelUnavailable", "No answer.", "The session is kept.", "Try again."))
    assert block.text() == "No answer.\nThe session is kept.\nTry again."


def test_a_payment_without_reported_usage_says_that_the_whole_reservation_counts():
    told = describe(BudgetSettled(1, "single", "m", 7_100_000, Usage(), False, 1.0))
    assert "whole reservation ($0.0071) counts until `ecoshell cost --reconcile 1=AMOUNT`" in told
    stopped = BudgetSettled(
        *(20, "single", "m", 7_100_000, Usage(7_200, 1_000), False, 3.0),
        estimate=Usage(812, 40),
        estimate_nano=1_200_000,
        why="the call was stopped",
    )
    assert describe(stopped).startswith(
        "The call was stopped, so nobody knows what it took: ≈ 812 tokens in and 40 out by a tokenizer, ≈ $0.0012."
    )


def test_a_partial_answer_is_called_partial():
    assert event_blocks.answer(Answer("so far", partial=True)).text().startswith("partial answer")


def test_a_question_of_ten_megabytes_is_folded():
    block = event_blocks.question("word " * 2_000_000)
    assert len(block.text()) < 5_000
    assert "more characters" in block.text()


@given(st.text(), st.integers(1, 5), st.integers(1, 20))
def test_folding_keeps_the_beginning_and_never_loses_silently(text: str, most_lines: int, most_characters: int):
    shown, more = folded(text, lines=most_lines, characters=most_characters)
    assert text.startswith(shown)
    assert bool(more) == (shown != text)


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
    ("count", "text"), [(0, "0"), (812, "812"), (1_942, "1.9k"), (14_120, "14k"), (2_100_000, "2.1M")]
)
def test_tokens_are_written_short(count: int, text: str):
    assert tokens(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12 ms"), (0.9996, "1.0 s"), (2.1, "2.1 s"), (59.96, "1 min 0 s"), (200, "3 min 20 s")],
)
def test_times_are_written_short(seconds: float, text: str):
    assert duration(seconds) == text


def test_the_first_plan_of_a_turn_says_what_it_allows_and_what_the_turn_may_cost():
    assert event_blocks.planned(PLANNED, None).text() == "plan: 3 of 5 tools, about $0.002 to $0.011"
    assert event_blocks.planned(TOKEN_PLAN, None).text() == "plan: 3 of 5 tools, about 900 tok to 6.1k tok"


def test_a_plan_made_anew_is_worth_a_line_only_where_it_has_come_to_forbid_something():
    assert event_blocks.planned(USED, PLANNED) is None
    assert event_blocks.planned(QUOTA, USED).text() == "plan: count_text (quota) may not be used any more"


def test_what_the_person_said_of_a_result_outweighs_the_judge():
    def said(judged: bool | None, marked: bool | None) -> str:
        return "".join(piece.text for piece in event_blocks.verdict(judged, marked)).strip()

    assert [said(judged, None) for judged in (True, False, None)] == ["√", "× unhelpful", ""]
    assert [said(judged, True) for judged in (True, False, None)] == ["√ helpful, marked by you"] * 3
    assert [said(judged, False) for judged in (True, False, None)] == ["× unhelpful, marked by you"] * 3


def test_a_verdict_stands_at_the_end_of_the_calls_own_line():
    block = replace(event_blocks.call(STARTED, finished()), verdict=event_blocks.verdict(False, None))
    assert block.text().splitlines() == [
        "count_text(path=notes.txt, deep=true)  12 ms  $0  × unhelpful",
        "└ 1,204 words",
    ]
    assert replace(block, verdict=()).text() == event_blocks.call(STARTED, finished()).text()


def test_a_line_of_a_table_goes_on_below_its_last_column():
    block = event_blocks.plain("  mode    who thinks\n› single  one model that does it all, and says so at some length")
    painter = Painter(dict.fromkeys(TONES, Style()), 40)
    sections = sections_of(block, opened=False)
    shown = [line.strip.text.rstrip() for part in sections for line in painter.paint(part)]
    assert shown[-2:] == [
        "   › single  one model that does it all,",
        "             and says so at some length",
    ]
