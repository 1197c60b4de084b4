"""Progress of turns: several calls in one reply, repeated calls, stalled models and empty replies."""

import json

import pytest
from agent_play import Recorder, finish, is_replayed, of, register, say, turn, with_traits

from ecoshell.agent.session_settings import STEPS
from ecoshell.agent.tool_calls import MOST_CALLS
from ecoshell.events import (
    Answer,
    CallFinished,
    CallJudged,
    CallStarted,
    ErrorHappened,
    Notice,
    StepStarted,
)
from ecoshell.strategies import stalled_after

COUNT = say("", "count_text", path="notes.txt")


def calls(*pairs, text=""):
    """One reply with several calls, each a name and its arguments."""
    return {
        "text": text,
        "calls": [{"name": name, "arguments": arguments} for name, arguments in pairs],
    }


async def test_all_calls_of_a_reply_run_in_order(play):
    both = calls(
        ("count_text", {"path": "notes.txt"}),
        ("calculate", {"expression": "6 * 7"}),
        text="Both at once.",
    )
    async with play([both, finish("3 and 42")], registration="all") as shell:
        events = await turn(shell)
        messages = shell.requests[1].messages
        again = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == again
    assert (events[-1].status, events[-1].steps) == ("answered", 2)
    assert [event.name for event in of(events, CallStarted)] == ["count_text", "calculate"]
    results = [message.text for message in messages if message.speaker == "tool"]
    assert "3 lines" in results[0]
    assert "42" in results[1]
    assert [
        message.text for message in messages if message.call and message.speaker == "assistant"
    ] == ["Both at once."]


async def test_a_call_can_follow_its_registration_in_the_same_reply(play):
    both = calls(
        ("tool_register", {"tool_name": "count_text"}), ("count_text", {"path": "notes.txt"})
    )
    async with play([both, finish("3")], registration="names") as shell:
        events = await turn(shell)
    assert [event.ok for event in of(events, CallFinished)] == [True]
    assert events[-1].registered == ("count_text",)


async def test_an_answer_next_to_calls_is_discarded(play):
    both = calls(("count_text", {"path": "notes.txt"}), ("finish", {"answer": "I guess 7"}))
    async with play([both, finish("3")], registration="all") as shell:
        events = await turn(shell)
    assert events[-1].answer == "3"


async def test_calls_beyond_the_limit_of_a_reply_are_dropped_with_a_notice(play):
    many = calls(*(("calculate", {"expression": f"{number} + 1"}) for number in range(90)))
    async with play([many, finish("done")], registration="all") as shell:
        events = await turn(shell)
    assert len(of(events, CallFinished)) == MOST_CALLS
    assert f"90 calls in one reply; only the first {MOST_CALLS} run" in of(events, Notice)[0].text


def small(shell):
    """Give the scripted model 1.5 billion parameters."""
    return with_traits(shell, parameters=1_500_000_000)


async def test_a_repeated_call_of_a_small_model_gets_the_stored_result_and_is_then_refused(play):
    async with play([COUNT, COUNT, COUNT, finish("3")], registration="all") as shell:
        events = await turn(small(shell))
        results = [
            message.text for message in shell.requests[3].messages if message.speaker == "tool"
        ]
    assert [event.refused for event in of(events, CallFinished)] == ["", "repeated", "repeated"]
    assert "3 lines" in results[1]
    assert "was made before" in results[1]
    assert "was not run again" in results[2]
    assert "read_file" in results[2]


async def test_a_registration_does_not_allow_a_repeated_call(play):
    lines = [register("count_text"), COUNT, register("run_command"), COUNT, finish("3")]
    async with play(lines, registration="names") as shell:
        events = await turn(small(shell))
    assert [event.refused for event in of(events, CallFinished)] == ["", "repeated"]


async def test_a_capable_model_counts_again_what_someone_else_changed(play, home):
    class Changing(Recorder):
        async def stream(self, request):
            if self.requests:
                (home / "notes.txt").write_text("one\ntwo\nthree\nfour\n")
            async for piece in super().stream(request):
                yield piece

    lines = [COUNT, COUNT, finish("4")]
    async with play(lines, registration="all", recorder=Changing) as shell:
        first, second = of(await turn(shell), CallFinished)
    assert "3 lines" in first.observation
    assert "4 lines" in second.observation
    assert not second.refused


async def test_a_command_runs_as_often_as_a_capable_model_calls_it(play, home):
    run = say("", "run_command", command="echo x >> runs; wc -l < runs")
    async with play([run] * 4 + [finish("4")], registration="all", yes=True) as shell:
        events = await turn(shell)
    assert [event.observation.strip() for event in of(events, CallFinished)] == ["1", "2", "3", "4"]
    assert not any("in a row" in event.note for event in of(events, CallJudged))


async def test_a_capable_model_is_told_when_a_call_has_the_same_result_for_the_third_time(play):
    async with play([COUNT] * 4 + [finish("3")], registration="all") as shell:
        events = await turn(shell)
        results = [
            message.text for message in shell.requests[4].messages if message.speaker == "tool"
        ]
        assert is_replayed(shell)
    assert [event.refused for event in of(events, CallFinished)] == [""] * 4
    assert results[0] == results[1]
    assert "3 lines" in results[2]
    assert results[2].endswith(
        "[count_text had this result 3 times in a row with these arguments.]"
    )
    assert "4 times in a row" in results[3]


async def test_a_write_allows_a_repeated_call(play):
    write = say("", "write_file", path="notes.txt", content="one\ntwo\nthree\nfour\n")
    async with play([COUNT, write, COUNT, finish("4")], registration="all", yes=True) as shell:
        events = await turn(shell)
    finished = of(events, CallFinished)
    assert [event.refused for event in finished] == ["", "", ""]
    assert "4 lines" in finished[2].observation


async def test_a_failed_program_allows_a_repeated_call(play):
    run = say("", "run_command", command="echo four >> notes.txt; exit 1")
    async with play([COUNT, run, COUNT, finish("4")], registration="all", yes=True) as shell:
        events = await turn(shell)
    first, failed, repeated = of(events, CallFinished)
    assert (failed.ok, repeated.refused) == (False, "")
    assert first.observation != repeated.observation


@pytest.mark.parametrize("strategy", ["react", "dfsdt"])
async def test_a_model_that_repeats_itself_is_stopped_and_its_result_is_kept(play, strategy):
    script = [COUNT] * 24
    async with play(script, registration="all", strategy=strategy) as shell:
        events = await turn(small(shell))
        steps = len(of(events, StepStarted))
    made = [event for event in of(events, CallFinished) if not event.refused]
    assert len(made) == 1
    assert "3 lines" in events[-1].answer
    assert steps <= 2 * (1 + stalled_after(STEPS))


async def test_similar_failures_end_the_turn(play):
    lines = [
        say("", "convert_units", value=number, from_unit="parsnip", to_unit="m")
        for number in range(24)
    ]
    async with play([*lines[:7], say("Unknown unit.")], registration="all") as shell:
        events = await turn(shell)
    assert [event.ok for event in of(events, CallFinished)] == [False] * (1 + stalled_after(STEPS))
    assert "nothing new" in of(events, Notice)[-1].text


@pytest.mark.parametrize("empty", [say(""), finish("  ")])
async def test_an_empty_reply_after_a_result_is_retried_once(play, empty):
    async with play([COUNT, empty, say("It has 3 lines.")], registration="all") as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].answer) == ("answered", "It has 3 lines.")
    assert not of(events, ErrorHappened)


@pytest.mark.parametrize("last", [[say("")], []])
async def test_two_empty_replies_make_the_result_the_answer(play, last):
    async with play([COUNT, say(""), *last], registration="all") as shell:
        events = await turn(shell)
    assert events[-1].status == "answered"
    assert "3 lines" in events[-1].answer
    assert [event.text for event in of(events, Answer)] == [events[-1].answer]


def test_a_script_with_malformed_calls_is_rejected_with_its_line(tmp_path):
    from ecoshell.errors import UsageError
    from ecoshell.models.script import ScriptModel

    file = tmp_path / "script.jsonl"
    file.write_text(json.dumps({"calls": "read_file"}))
    with pytest.raises(UsageError, match="line 1"):
        ScriptModel(file)
