import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from plan_play import ADVICE, FAILED, PLANNED, SPENT, USED

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    BranchLeft,
    BudgetHeld,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    ErrorHappened,
    Event,
    LimitHit,
    Notice,
    PlanScored,
    Rationale,
    Reasoned,
    StepProposed,
    TextArrived,
    ToolRegistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
    from_json,
    to_json,
)
from ecoshell.messages import Attachment, Usage
from ecoshell.sessions import SessionInfo
from ecoshell.sessions.export import as_json, as_markdown
from ecoshell.sessions.markdown import code, fenced, literal, prose, quoted

INFO = SessionInfo("k3f9-2q", "count *words*", 0.0, 60.0, "/home/me/project", "embedded")

TURN: list[Event] = [
    TurnStarted(1, "how many words are in notes.txt?", "embedded", "single", "react"),
    BudgetHeld(1, "single", "embedded", 0, 900, 512, False),
    TextArrived("Do they", "reasoning", "single"),
    TextArrived("I need", "thought", "single"),
    Reasoned("Do they mean lines?", "single", 5),
    Rationale("I need a word counter.", "single"),
    ToolRegistered("count_text", 142, True, 1, "agent"),
    CallStarted("c1", "count_text", {"path": "notes.txt"}),
    ApprovalGiven("c1", "once", "person"),
    CallFinished("c1", "count_text", True, "1,204 words", False, 0.012),
    Notice("half of it was guessed"),
    Answer("notes.txt has **1,204** words."),
    TurnFinished(
        1, "answered", "notes.txt has …", 3_100_000, Usage(1200, 30, 200), 3, ("count_text",), 2.1
    ),
]


def timed(events: list[Event]) -> list[tuple[float, Event]]:
    return [(float(second), event) for second, event in enumerate(events)]


def blocks(markdown: str) -> list[str]:
    """Return the types of the top-level blocks."""
    return [
        token.type
        for token in MarkdownIt().parse(markdown)
        if token.level == 0 and token.nesting >= 0
    ]


def test_markdown_contains_the_turn_in_order() -> None:
    text = as_markdown(timed(TURN), INFO)
    parts = [
        "# count \\*words\\*",
        "`k3f9-2q`",
        "## 1. how many words are in notes.txt?",
        "> I need a word counter.",
        "\\+ count_text registered · 142 tokens",
        'count_text(path="notes.txt")',
        "? approved by you",
        "```\n1,204 words\n```",
        "half of it was guessed",
        "notes.txt has **1,204** words.",
        "√ $0.0031 · 3 steps · 2.1 s · 1,200 tokens in (200 cached), 30 out",
    ]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "TextArrived" not in text
    assert "Do they" not in text


def test_results_of_parallel_calls_follow_their_calls() -> None:
    def call(number: int) -> list[Event]:
        return [
            CallStarted(f"c{number}", "read_file", {"path": f"{number}.txt"}),
            ApprovalGiven(f"c{number}", f"once-{number}", "person"),
            CallFinished(f"c{number}", "read_file", True, f"text {number}", False, 0.1),
            CallJudged(f"c{number}", "read_file", True, "rules", f"reason {number}"),
        ]

    first, second = call(1), call(2)
    parallel = [first[0], second[0], second[1], first[1], second[2], first[2], second[3], first[3]]
    start = TURN[0]
    assert as_markdown(timed([start, *parallel])) == as_markdown(timed([start, *first, *second]))
    again = as_markdown(
        timed([start, *first, start, *parallel])
    )  # Call IDs are unique within a turn.
    assert again == as_markdown(timed([start, *first, start, *first, *second]))


def test_markdown_contains_errors_limits_and_denials() -> None:
    text = as_markdown(
        timed(
            [
                CallFinished(
                    "c1", "write_file", False, "not approved", False, 0.0, refused="unapproved"
                ),
                LimitHit("session", "usd", 10, 5, "the session's cap is reached"),
                ErrorHappened("ModelUnavailable", "no network", "the session is kept", "try again"),
                Answer("so far", partial=True),
            ]
        )
    )
    for part in (
        "**Result**: denied\n",
        "cap is reached",
        "× **error: no network** · the session is kept try again",
        "Partial answer",
    ):
        assert part in text


def test_markdown_explains_calls_that_did_not_run() -> None:
    calls = [
        CallFinished("c1", "read_file", False, "…", False, 0.0, refused=why)
        for why in ("stopped", "unregistered")
    ]
    text = as_markdown(timed([TURN[0], *calls]))
    assert "**Result**: not run: the turn was stopped\n" in text
    assert "**Result**: refused: unregistered\n" in text


def test_markdown_contains_proposals_and_backtracking_of_a_search() -> None:
    proposed = StepProposed("Look *around*.", "list_files()", "single")
    abandoned = BranchLeft(("c1",), 1, "given up: <nothing>")
    text = as_markdown(
        timed([proposed, abandoned, BranchLeft((), 2, "no answer after 8 steps", ("read_file",))])
    )
    assert "◦ proposed list_files() · Look \\*around\\*." in text
    assert "← **back to step 1** · given up: \\<nothing\\>" in text
    assert "← **back to the beginning** · no answer after 8 steps" in text


def test_branch_left_survives_a_json_round_trip() -> None:
    abandoned = BranchLeft(("c1", "c2"), 1, "given up", ("read_file",))
    assert from_json(json.loads(json.dumps(to_json(abandoned)))) == abandoned


def test_question_longer_than_its_heading_is_quoted() -> None:
    question = "look at this:\n\n    def f():\n        return 1"
    text = as_markdown(timed([TurnStarted(1, question, "embedded", "single", "react")]))
    assert "## 1. look at this: def f(): return 1" in text
    assert ">     def f():\n>         return 1" in text


def test_json_contains_every_event_with_its_time() -> None:
    document = json.loads(as_json(timed(TURN), INFO))
    assert document["session"]["id"] == "k3f9-2q"
    assert document["events"][0]["at"] == "1970-01-01T00:00:00.000+00:00"
    assert [from_json(event) for event in document["events"]] == TURN


hostile = st.text(st.sampled_from("`~>#<!-a \n\t*[]\\|\x1b"), max_size=40)


@given(hostile)
def test_result_cannot_end_its_code_block(observation: str) -> None:
    document = f"before\n\n{fenced(observation)}\n\nafter"
    assert blocks(document) == ["paragraph_open", "fence", "paragraph_open"]


@given(hostile)
def test_text_cannot_end_its_quotation(text: str) -> None:
    document = f"before\n\n{quoted(text)}\n\nafter"
    assert blocks(document) == ["paragraph_open", "blockquote_open", "paragraph_open"]


@given(hostile)
def test_answer_cannot_swallow_what_follows(answer: str) -> None:
    document = f"{prose(answer)}\n\n## after\n"
    tokens = MarkdownIt().parse(document)
    assert any(token.type == "inline" and token.content == "after" for token in tokens)


HOSTILE_LINES = (
    *("", "- a", "  - b", "1. z", "> q", "  x", "<b>x</b>", "\\<b>"),
    *("```", "  ```", "\t```", "> ```", "``` a``` <u>", "~~~"),
)


@given(
    st.lists(st.sampled_from(HOSTILE_LINES), max_size=6).map("\n".join),
    st.sampled_from([prose, quoted]),
)
@example("```x``` <img src=x>", prose)
@example("- a\n\n  ```\n<script>x</script>", prose)
@example("- a\n\n  ```\n  x", prose)
@example("\\<b>", prose)
def test_html_is_escaped_and_cannot_swallow_what_follows(
    text: str, write: Callable[[str], str]
) -> None:
    tokens = MarkdownIt().parse(f"{write(text)}\n\n## after\n")
    parts = [part for token in tokens for part in (token, *(token.children or ()))]
    assert not [part for part in parts if part.type.startswith("html")]
    assert any(token.type == "inline" and token.content == "after" for token in tokens)


def test_code_in_a_list_is_unchanged() -> None:
    listed = "1. Do:\n   ```sh\n   ls <b>\n   ```\n2. Then"
    assert prose(listed) == listed


@given(hostile)
def test_title_has_no_markup(title: str) -> None:
    rendered = MarkdownIt().renderInline(literal(title))
    assert not any(tag in rendered for tag in ("<em>", "<strong>", "<a ", "<code>", "<img"))


@pytest.mark.parametrize(
    ("name", "markdown"), [("gpt-4", "`gpt-4`"), ("a`b", "`` a`b ``"), ("x\ny", "`x y`")]
)
def test_name_is_inline_code(name: str, markdown: str) -> None:
    assert code(name) == markdown


def test_control_characters_are_exported_as_text() -> None:
    events: list[Event] = [
        CallFinished("c", "t", True, "\x1b[2Jgone", False, 0.0),
        Answer("\x1b]0;title\x07"),
    ]
    assert "\x1b" not in as_markdown(timed(events))
    assert "\x07" not in as_markdown(timed(events))


def test_markdown_contains_attachments_commands_edits_undos_and_summaries() -> None:
    events: list[Event] = [
        CommandRan("make", "no `rule`", False, False, 0.5),
        TurnStarted(3, "fix @a.txt", "m", "single", "react", (Attachment("a.txt", "```\nx"),)),
        CallFinished("c1", "edit_file", True, "edited", False, 0.1, changes="-x\n+y"),
        TurnUndone(3, ("a.txt",), ("b.txt",)),
        Compacted("They *fixed* a file.", "m", 3, 1200, 100),
        Compacted("[an extract]", "", 1, 1200, 100),
    ]
    text = as_markdown(timed(events))
    for block in (
        "$ **make** · failed after 500 ms\n\n```\nno `rule`\n```",
        "¶ a.txt · 2 lines\n\n````\n```\nx\n````",
        "```diff\n-x\n+y\n```",
        "« **turn 3 was undone** · restored a.txt · not restored because of later changes: b.txt",
        "≡ 3 turns summarized by m · 1,200 tokens became 100\n\n> They *fixed* a file.",
        "≡ 1 turn replaced by an extract that no model wrote · 1,200 tokens became 100",
    ):
        assert block in text
    assert [from_json(record) for record in json.loads(as_json(timed(events)))["events"]] == events


def test_markdown_contains_the_plan_once_per_turn():
    document = as_markdown(timed([PLANNED, USED]))
    assert document.count("plan") == 1
    assert (
        "plan: 3 of 5 tools, about $0.002 to $0.011\n\n"
        "`count_text` up to 2×, `read_file` up to 1×, `list_folder` up to 1×\n" in document
    )


def test_markdown_contains_the_score_of_a_plan():
    scored = PlanScored(1, 0.5, "you + rules", 2_000_000, 50_000_000, 0.5, 0.23)
    assert "plan of turn 1: QoP 0.23: P 0.50 by you + rules, C $0.002 of $0.05" in as_markdown(
        timed([scored])
    )


def test_markdown_marks_plans_without_price_enforcement_or_tools():
    for plan in (replace(ADVICE, low=None, high=None), replace(SPENT, number=1, low=None)):
        assert ", price unknown" in as_markdown(timed([plan]))
    assert "· no cap: advice only\n" in as_markdown(timed([ADVICE]))
    assert "plan: 0 of 5 tools, about" in as_markdown(timed([replace(SPENT, number=1)]))


def test_markdown_contains_verdicts_notes_and_marks():
    verdict = CallJudged("c1", "a", None, "", note="Not to be used any more: <b>x</b>.")
    document = as_markdown(timed([*FAILED, verdict, CallMarked(1, "c2", "read_file", True)]))
    assert "× **unhelpful** · an empty result" in document
    assert "> Not to be used any more: \\<b>x\\</b>." in document
    assert "√ helpful, marked by you · read_file of turn 1" in document
    assert as_markdown(timed([CallJudged("c1", "a", None, "")])).count("\n") == 1
