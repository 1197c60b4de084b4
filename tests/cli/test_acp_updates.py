"""What an editor is told of single events."""

import pytest
from acp import schema

from ecoshell.catalog import Catalog
from ecoshell.cli.editor.updates import Updates
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    CallFinished,
    CallStarted,
    CommandRan,
    LimitHit,
    Notice,
    Rationale,
    Reasoned,
    StepStarted,
    TextArrived,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.builtin.files import unified
from ecoshell.tools.workspace import Workspace

STARTED = TurnStarted(1, "why?", "m", "single", "react")
ENDED = TurnFinished(1, "interrupted", "", 0, Usage(), 1, (), 0.1)
STEP = StepStarted(1, "agent", "m")


@pytest.fixture
def updates(tmp_path):
    return Updates(Catalog(builtin_tools(Workspace(tmp_path))), str(tmp_path))


def told(updates, *events):
    return [update for event in events for update in updates.of(event)]


def texts(updates, *events):
    """What is said in messages and in thoughts."""
    chunks = told(updates, STARTED, STEP, *events)
    kinds = (schema.AgentMessageChunk, schema.AgentThoughtChunk)
    return tuple("".join(one.content.text for one in chunks if isinstance(one, kind)) for kind in kinds)


def arrived(text, channel="thought", role="agent", node=""):
    return TextArrived(text, channel, role, node)


def test_what_a_model_reasons_is_a_thought_and_is_told_once(updates):
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
            [arrived("It", "answer"), arrived("Hm.", "reasoning"), arrived(" is.", "answer"), Answer("It is.")],
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
def test_each_text_is_told_once_as_what_it_is(updates, events, message, thought):
    assert texts(updates, *events) == (message, thought)


def test_texts_of_different_kinds_are_messages_of_their_own(updates):
    chunks = told(updates, STARTED, STEP, arrived("a"), arrived("b"), arrived("c", "answer"), STEP, arrived("d"))
    assert [chunk.message_id for chunk in chunks] == ["m1.1", "m1.1", "m1.2", "m1.3"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("-- a\nb\n", "b\n"),
        ("".join(f"{n}\n" for n in range(60)), "".join(f"{n}\n" for n in range(60) if n not in (3, 40))),
        ("one\n", ""),
    ],
)
def test_a_change_becomes_a_diff_for_each_hunk_that_makes_the_new_text(updates, tmp_path, before, after):
    (update,) = told(
        updates, CallFinished("c1", "edit_file", True, "ok", False, 0.1, changes=unified("a.txt", before, after))
    )
    diffs = [one for one in update.content if one.type == "diff"]
    text = before
    for diff in diffs:
        assert diff.path == str(tmp_path / "a.txt")
        assert diff.old_text in text
        text = text.replace(diff.old_text, diff.new_text, 1)
    assert text.split() == after.split()
    assert len(diffs) == (2 if "59" in before else 1)


def test_a_new_file_has_no_old_text_and_a_diff_that_was_cut_is_a_text(updates):
    finished = CallFinished("c1", "write_file", True, "ok", False, 0.1, changes=unified("a.txt", None, "a\n"))
    assert told(updates, finished)[0].content[0].old_text is None
    long = "".join(f"line {n}\n" for n in range(2_000))
    cut = CallFinished("c1", "write_file", True, "ok", False, 0.1, changes=unified("a.txt", None, long))
    (shown, _) = told(updates, cut)[0].content
    assert (shown.type, "[truncated" in shown.content.text) == ("content", True)


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
def test_a_call_has_the_kind_of_its_tool_and_the_files_it_names(updates, tmp_path, name, arguments, kind, places):
    (start,) = told(updates, CallStarted("c1", name, arguments))
    assert (start.kind, start.status) == (kind, "in_progress")
    assert [place.path for place in start.locations] == [str(tmp_path / place) for place in places]


def test_ids_of_calls_differ_between_turns_and_finishing_is_no_call(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    again = TurnStarted(2, "again", "m", "single", "react")
    finish = CallStarted("c2", "finish", {"answer": "a"})
    first, _, second = told(updates, STARTED, call, again, call, finish)
    assert first.tool_call_id != second.tool_call_id


def test_what_a_server_asks_beside_a_call_is_a_call_that_ends_with_the_answer(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    wanted = ApprovalWanted("f0", "srv:form", {"name": "Jo"}, ("network",), "A server asks.", "Who?\n- name (string)")
    for decision, status in (("once", "completed"), ("no", "failed")):
        started, asked, given = told(updates, STARTED, call, wanted, ApprovalGiven("f0", decision, "person"))
        assert (asked.session_update, asked.status) == ("tool_call", "pending")
        assert "Who?\n- name (string)" in asked.content[0].content.text
        assert (given.session_update, given.status) == ("tool_call_update", status)
        assert given.tool_call_id == asked.tool_call_id != started.tool_call_id
        assert [one.tool_call_id for one in told(updates, ENDED)] == [started.tool_call_id]


def test_what_never_ended_has_failed_once_the_turn_is_over(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    hit = LimitHit("session", "usd", 5, 1, "The cap is reached.")
    begun = told(updates, STARTED, call, hit)
    ended = told(updates, ENDED)
    assert [one.tool_call_id for one in ended] == [one.tool_call_id for one in begun]
    assert {one.status for one in ended} == {"failed"}
    assert told(updates, ENDED) == []


def test_the_turn_before_a_kill_is_settled_when_the_next_begins(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    told(updates, STARTED, call)
    settled, question = updates.of(TurnStarted(2, "again?", "m", "single", "react"), past=True)
    assert (settled.status, question.content.text) == ("failed", "again?")


def test_a_call_that_a_rule_refuses_was_never_under_way_again(updates):
    call = CallStarted("c1", "calculate", {"expression": "1"})
    wanted = ApprovalWanted("c1", "calculate", {"expression": "1"}, (), "It would read.", "Why not?", price_nano=5)
    assert told(updates, STARTED, call, ApprovalGiven("c1", "no", "rule"))[1:] == []
    asked, allowed = told(updates, wanted, ApprovalGiven("c1", "once", "person", {"expression": "2"}))
    assert "Why not?" in asked.content[0].content.text
    assert (allowed.status, allowed.raw_input) == ("in_progress", {"expression": "2"})


def test_a_command_of_the_persons_own_is_a_call_that_has_ended(updates):
    (ran,) = told(updates, CommandRan("git status", "clean", True, False, 0.1))
    assert (ran.title, ran.kind, ran.status) == ("git status", "execute", "completed")
