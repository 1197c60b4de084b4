"""Updates that an editor receives for single events."""

import pytest
from acp import schema
from shipped_tools import shipped_tools
from spoken_events import SPOKEN

from ecoshell.catalog import Catalog
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    CallFinished,
    CallStarted,
    CommandRan,
    CostChosen,
    ErrorHappened,
    LimitChosen,
    LimitHit,
    Notice,
    Quote,
    Rationale,
    Reasoned,
    StepStarted,
    TextArrived,
    TrustGiven,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.tools.diffs import unified
from ecoshell.tools.workspace import Workspace
from ecoshell_acp.updates import Updates

STARTED = TurnStarted(1, "why?", "m", "single", "react")
ENDED = TurnFinished(1, "interrupted", "", 0, Usage(), 1, (), 0.1)
STEP = StepStarted(1, "agent", "m")


@pytest.fixture
def updates(tmp_path):
    return Updates(Catalog(shipped_tools(Workspace(tmp_path)).values()), str(tmp_path))


def convert(updates, *events):
    return [update for event in events for update in updates.convert(event)]


def texts(updates, *events):
    """Return the texts of messages and of thoughts."""
    chunks = convert(updates, STARTED, STEP, *events)
    kinds = (schema.AgentMessageChunk, schema.AgentThoughtChunk)
    return tuple(
        "".join(item.content.text for item in chunks if isinstance(item, kind)) for kind in kinds
    )


def arrived(text, channel="thought", role="agent", node=""):
    return TextArrived(text, channel, role, node)


def test_reasoning_is_a_thought_and_sent_once(updates):
    streamed = (arrived(" Hm", "reasoning"), arrived("m.", "reasoning"), Reasoned("Hmm.", "agent"))
    assert texts(updates, *streamed) == ("", "Hmm.")
    assert texts(updates, Reasoned("Hmm.", "agent")) == ("", "Hmm.")


@pytest.mark.parametrize(
    ("events", "message", "thought"),
    [
        ([arrived("It "), arrived("is so."), Answer("It is so.")], "It is so.", ""),
        ([arrived("It", "answer"), Answer("It")], "It", ""),
        ([Answer("It is.", partial=True)], "It is.", ""),
        (
            [
                arrived("It", "answer"),
                arrived("Hm.", "reasoning"),
                arrived(" is.", "answer"),
                Answer("It is."),
            ],
            "It is.",
            "Hm.",
        ),
        ([arrived("Look."), STEP, Answer("Look.")], "Look.Look.", ""),
        ([arrived("I look.", role="planner"), Answer("I look.")], "I look.", "I look."),
        ([arrived('{"name": "x"'), arrived("}"), Answer("It is.")], "It is.", ""),
        ([arrived("```py\n1\n```"), Answer("```py\n1\n```")], "```py\n1\n```", ""),
        ([arrived("filling", node="read_file")], "", ""),
        ([arrived("I look."), Rationale("I look.", "agent")], "I look.", ""),
        ([Rationale("It fits.", "agent"), Notice("A\nnote.")], "", "It fits.A note.\n"),
        ([arrived("\x1b[31m\u202ered")], "␛[31m\\u202ered", ""),
    ],
)
def test_each_text_is_sent_once_as_message_or_thought(updates, events, message, thought):
    assert texts(updates, *events) == (message, thought)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (event, words)
        for event, words in SPOKEN
        if not isinstance(
            event, CommandRan | CostChosen | LimitChosen | LimitHit | Quote | TrustGiven
        )
    ],
    ids=lambda value: getattr(value, "type", ""),
)
def test_an_editor_reads_the_words_of_the_other_interfaces(updates, event, words):
    message, thoughts = texts(updates, event)
    assert words in (message if isinstance(event, ErrorHappened) else thoughts)


def test_texts_of_different_kinds_are_separate_messages(updates):
    chunks = convert(
        updates,
        STARTED,
        STEP,
        arrived("a"),
        arrived("b"),
        arrived("c", "answer"),
        STEP,
        arrived("d"),
    )
    assert [chunk.message_id for chunk in chunks] == ["m1.1", "m1.1", "m1.2", "m1.3"]


@pytest.mark.parametrize(
    ("previous", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("-- a\nb\n", "b\n"),
        (
            "".join(f"{n}\n" for n in range(60)),
            "".join(f"{n}\n" for n in range(60) if n not in (3, 40)),
        ),
        ("one\n", ""),
    ],
)
def test_a_change_becomes_one_diff_per_hunk(updates, tmp_path, previous, after):
    (update,) = convert(
        updates,
        CallFinished(
            "c1", "edit_file", True, "ok", False, 0.1, changes=unified("a.txt", previous, after)
        ),
    )
    diffs = [item for item in update.content if item.type == "diff"]
    text = previous
    for diff in diffs:
        assert diff.path == str(tmp_path / "a.txt")
        assert diff.old_text in text
        text = text.replace(diff.old_text, diff.new_text, 1)
    assert text == after
    assert len(diffs) == (2 if "59" in previous else 1)


def test_a_new_file_has_no_old_text_and_a_truncated_diff_is_text(updates):
    finished = CallFinished(
        "c1", "write_file", True, "ok", False, 0.1, changes=unified("a.txt", None, "a\n")
    )
    assert convert(updates, finished)[0].content[0].old_text is None
    long = "".join(f"line {n}\n" for n in range(2_000))
    cut = CallFinished(
        "c1", "write_file", True, "ok", False, 0.1, changes=unified("a.txt", None, long)
    )
    (display, _) = convert(updates, cut)[0].content
    assert (display.type, "[truncated" in display.content.text) == ("content", True)


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "places"),
    [
        ("read_file", {"path": "a/../b.txt"}, "read", ["b.txt"]),
        ("write_file", {"path": "b.txt", "content": ""}, "edit", ["b.txt"]),
        ("list_files", {}, "search", []),
        ("search_text", {"text": "a"}, "search", []),
        ("run_command", {"command": "ls"}, "execute", []),
        ("fetch_url", {"url": "http://x"}, "fetch", []),
        ("calculate", {"expression": "1"}, "other", []),
        ("read_file", {"path": 5}, "read", []),
        ("gone.tool", {"path": "b.txt"}, "other", []),
    ],
)
def test_a_call_has_the_kind_of_its_tool_and_its_files(
    updates, tmp_path, name, arguments, kind, places
):
    (start,) = convert(updates, CallStarted("c1", name, arguments))
    assert (start.kind, start.status) == (kind, "in_progress")
    assert [place.path for place in start.locations] == [str(tmp_path / place) for place in places]


def test_call_ids_differ_between_turns_and_finish_is_not_a_call(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    again = TurnStarted(2, "again", "m", "single", "react")
    finish = CallStarted("c2", "finish", {"answer": "a"})
    first, _, second = convert(updates, STARTED, call, again, call, finish)
    assert first.tool_call_id != second.tool_call_id


def test_a_request_of_a_server_is_a_call_that_ends_with_its_approval(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    request = ApprovalWanted(
        "f0", "srv:form", {"name": "Jo"}, ("network",), "A server asks.", "Who?\n- name (string)"
    )
    for decision, status in (("once", "completed"), ("no", "failed")):
        started, questions, values = convert(
            updates, STARTED, call, request, ApprovalGiven("f0", decision, "person")
        )
        assert (questions.session_update, questions.status) == ("tool_call", "pending")
        assert "Who?\n- name (string)" in questions.content[0].content.text
        assert (values.session_update, values.status) == ("tool_call_update", status)
        assert values.tool_call_id == questions.tool_call_id != started.tool_call_id
        assert [item.tool_call_id for item in convert(updates, ENDED)] == [started.tool_call_id]


def test_unfinished_calls_fail_at_the_end_of_the_turn(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    hit = LimitHit("session", "usd", 5, 1, "The cap is reached.")
    start = convert(updates, STARTED, call, hit)
    ended = convert(updates, ENDED)
    assert [item.tool_call_id for item in ended] == [item.tool_call_id for item in start]
    assert {item.status for item in ended} == {"failed"}
    assert convert(updates, ENDED) == []


def test_calls_of_a_killed_turn_fail_when_the_next_starts(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    convert(updates, STARTED, call)
    settled, question = updates.convert(TurnStarted(2, "again?", "m", "single", "react"), past=True)
    assert (settled.status, question.content.text) == ("failed", "again?")


def test_a_call_refused_by_a_rule_has_no_update_and_an_approved_one_continues(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    request = ApprovalWanted(
        "c1", "calculate", {"expression": "1"}, (), "It would read.", "Why not?", price_nano=5
    )
    assert convert(updates, STARTED, call, ApprovalGiven("c1", "no", "rule"))[1:] == []
    questions, allowed = convert(
        updates, request, ApprovalGiven("c1", "once", "person", {"expression": "2"})
    )
    assert "Why not?" in questions.content[0].content.text
    assert (allowed.status, allowed.raw_input) == ("in_progress", {"expression": "2"})


def test_a_command_of_the_user_is_a_finished_call(updates):
    (ran,) = convert(updates, CommandRan("git status", "clean", True, False, 0.1))
    assert (ran.title, ran.kind, ran.status) == ("git status", "execute", "completed")
