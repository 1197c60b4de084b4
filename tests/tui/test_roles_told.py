"""Whose thought, whose call and whose answer it is: in the transcript and in the line shell."""

from dataclasses import replace

import pytest
from roles_play import ALONE, CALLED, CALLER_THINKS, MIXED, PLANNER_THINKS, trio
from telling import printed, told
from tui_play import COUNTING

from ecoshell.events import Answer

TRIO = trio()


@pytest.mark.parametrize("width", [60, 130])
def test_thoughts_and_calls_stand_beside_the_sign_and_the_name_of_their_role(width: int):
    lines = told(*TRIO, width=width)
    assert "◊  planner  I need a word counter." in lines
    assert "►  caller  count_text(path=notes.txt)  12 ms  $0" in lines
    assert "◊  planner  That is all that was asked." in lines


def test_the_end_of_a_turn_says_who_has_answered():
    lines = told(*TRIO)
    assert lines[-2].startswith("√  notes.txt has 1,204 words.")
    assert lines[-1].endswith("· by the summarizer")
    gave_up = (*TRIO[:-2], Answer("No such file.", role="planner"), replace(TRIO[-1], status="gave_up"))
    lines = told(*gave_up)
    assert lines[-2] == "Ø  No such file."
    assert lines[-1].endswith("· by the planner")


def test_one_model_alone_is_not_named():
    lines = told(*COUNTING)
    assert "◊  I need a word counter." in lines
    assert not any("single" in line or "by the" in line for line in lines)


def test_what_arrives_says_whose_it_is_and_each_reply_begins_a_line():
    assert told(*TRIO[: PLANNER_THINKS + 1])[-1] == "◦  planner  I need a word counter. Next: caller."
    lines = told(*TRIO[: CALLER_THINKS + 1])
    assert lines[-2:] == ["◦  planner  I need a word counter. Next: caller.", 'caller  {"name": "count_text"}']
    lines = told(*TRIO[:CALLED])
    assert not any("Next: caller" in line or "{" in line for line in lines)


def test_the_line_shell_says_in_words_who_thinks_who_calls_and_who_answers():
    said = [line for line in printed(*TRIO) if any(role in line for role, _ in MIXED)]
    (_, planner), (_, caller), (_, summarizer) = MIXED
    assert said == [
        f"| planner is thinking | {planner}",
        "- planner: I need a word counter. Next: caller.",
        f"| caller is thinking | {caller}",
        '* caller: call count_text(path="notes.txt")',
        f"| planner is thinking | {planner}",
        "- planner: That is all that was asked.",
        f"| summarizer is thinking | {summarizer}",
        "- summarizer: notes.txt has **1,204** words.",
    ]


def test_where_nobody_watches_only_what_is_finished_is_printed():
    said = [line for line in printed(*TRIO, streaming=False) if any(role in line for role, _ in ALONE)]
    assert said == [
        "- planner: I need a word counter.",
        '* caller: call count_text(path="notes.txt")',
        "- planner: That is all that was asked.",
        "answer by the summarizer: notes.txt has **1,204** words.",
    ]


def test_the_line_shell_names_nobody_where_one_model_does_it_all():
    assert not any("single" in line or "thinking" in line or "by the" in line for line in printed(*COUNTING))
