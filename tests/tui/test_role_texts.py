"""Names of roles at thoughts, calls and answers, in the transcript and the line shell."""

from dataclasses import replace

import pytest
from roles_play import ALONE, CALLED, CALLER_THINKS, MIXED, PLANNER_THINKS, trio
from telling import printed, told
from tui_play import COUNTING

from ecoshell.events import Answer

TRIO = trio()


@pytest.mark.parametrize("width", [60, 130])
def test_thoughts_and_calls_show_their_role(width: int):
    lines = told(*TRIO, width=width)
    assert "◊  planner  I need a word counter." in lines
    (call,) = (line for line in lines if line.startswith("►  caller  count_text(path=notes.txt)  "))
    assert call.endswith("  12 ms")
    assert "◊  planner  That is all that was asked." in lines


def test_footer_names_the_answering_role():
    lines = told(*TRIO)
    assert lines[-2].startswith("√  notes.txt has 1,204 words.")
    assert lines[-1].endswith("· by the summarizer")
    gave_up = (
        *TRIO[:-2],
        Answer("No such file.", role="planner"),
        replace(TRIO[-1], status="gave_up"),
    )
    lines = told(*gave_up, width=130)
    assert lines[-2] == "Ø  No such file."
    assert lines[-1].endswith("· by the planner")


def test_single_model_is_not_named():
    lines = told(*COUNTING)
    assert "◊  I need a word counter." in lines
    assert not any("single" in line or "by the" in line for line in lines)


def test_arriving_text_shows_its_role_on_a_new_line():
    assert (
        told(*TRIO[: PLANNER_THINKS + 1])[-1] == "◦  planner  I need a word counter. Next: caller."
    )
    lines = told(*TRIO[: CALLER_THINKS + 1])
    assert lines[-2:] == [
        "◦  planner  I need a word counter. Next: caller.",
        'caller  {"name": "count_text"}',
    ]
    lines = told(*TRIO[:CALLED])
    assert not any("Next: caller" in line or "{" in line for line in lines)


def test_line_shell_names_the_roles():
    message = [line for line in printed(*TRIO) if any(role in line for role, _ in MIXED)]
    (_, planner), (_, caller), (_, summarizer) = MIXED
    assert message == [
        f"| planner: thinking | {planner}",
        "- planner: I need a word counter. Next: caller.",
        f"| caller: thinking | {caller}",
        "* caller: call count_text(path=notes.txt)",
        f"| planner: thinking | {planner}",
        "- planner: That is all that was asked.",
        f"| summarizer: thinking | {summarizer}",
        "- summarizer: notes.txt has **1,204** words.",
    ]


def test_output_without_a_terminal_prints_finished_parts_only():
    message = [
        line for line in printed(*TRIO, streaming=False) if any(role in line for role, _ in ALONE)
    ]
    assert message == [
        "- planner: I need a word counter.",
        "* caller: call count_text(path=notes.txt)",
        "- planner: That is all that was asked.",
        "answer by the summarizer: notes.txt has **1,204** words.",
    ]


def test_line_shell_names_no_role_for_one_model():
    assert not any(
        "single" in line or "thinking" in line or "by the" in line for line in printed(*COUNTING)
    )
