"""How tools stand before a model that may call what its array does not hold, as local ones: over turns and resumed."""

import pytest
from agent_play import of, register, say, turn, with_traits

from ecoshell.errors import LimitReached
from ecoshell.events import Answer, CallFinished
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.modes.requests import repair_request

COUNT = say("", "count_text", path="notes.txt")


def free(shell):
    """The shell, its scripted model one of moderate size that is held to a grammar."""
    return with_traits(shell, calls_undeclared=True, parameters=4_000_000_000)


def weak(shell):
    """The shell, its scripted model one of few weights that is held to a grammar."""
    return with_traits(shell, calls_undeclared=True, parameters=1_500_000_000)


def arrays(shell):
    return [tuple(schema.name for schema in request.tools) for request in shell.requests]


async def test_a_tool_registered_on_the_way_is_text_and_called_by_its_own_name(play):
    lines = [register("count_text"), COUNT, say("3 lines."), COUNT, say("Still 3.")]
    async with play(lines, registration="names") as shell:
        events = await turn(free(shell))
        again = await turn(shell, "And now?")
        assert set(arrays(shell)) == {("tool_register",)}
        told = [message.text for message in shell.requests[1].messages if message.speaker == "tool"]
        assert told[0].startswith("count_text: Count the lines")
        settled, messages = shell.conversation.memory.presentation, shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.memory.presentation == settled
        assert shell.conversation.memory.messages == messages
    assert [event.ok for event in of([*events, *again], CallFinished)] == [True, True]


async def test_everything_up_front_stands_in_the_array_in_brief_and_stays_there(play):
    async with play([COUNT, say("3 lines."), say("Yes.")], registration="all") as shell:
        await turn(free(shell))
        await turn(shell, "Sure?")
        (array,) = set(arrays(shell))
        assert array == shell.deps.catalog.names
        assert all(schema.brief for schema in shell.requests[0].tools)
        read = next(schema for schema in shell.requests[0].callable_now if schema.name == "read_file")
        assert "start_line" not in read.entry
        assert "start_line" in read.parameters["properties"]  # what is not told may be called all the same
        assert shell.conversation.memory.presentation.name == "direct"
        assert not shell.conversation.memory.presentation.registers
        opening = shell.requests[0].messages[1].text
    assert "Tools to register" not in opening
    assert "count_text:" not in opening


@pytest.mark.parametrize(("tool", "want"), [("rename", "call"), ("count_text", "either")])
def test_after_a_call_of_no_tool_there_is_one_of_those_there_are_is_wanted(tool, want):
    schema = ToolSchema("count_text", "Count.", {})
    request = Request((Message("user", "Rename a."),), (schema,), (schema,))
    broken = Reply("", usage=None, attempt=Call(tool, {}), fault="It cannot be used.")
    assert (request.want, repair_request(request, broken, broken.fault).want) == ("either", want)


async def test_a_model_that_gives_up_at_its_first_failure_is_asked_once_for_another_call(play):
    missing = say("", "read_file", path="missing.txt")
    lines = [missing, say("I cannot."), COUNT, say("3 lines.")]
    async with play(lines, registration="all") as shell:
        events = await turn(free(shell))
        assert [request.want for request in shell.requests] == ["either", "either", "call", "either"]
        assert shell.requests[2].messages[-2].text == "I cannot."
    assert events[-1].answer == "3 lines."
    async with play([missing, missing, say("I cannot.")], registration="all") as shell:
        assert (await turn(free(shell)))[-1].answer == "I cannot."  # it has tried more than once
    async with play([missing, say("I cannot.")], registration="all") as shell:
        assert (await turn(shell))[-1].answer == "I cannot."  # nothing could hold this one to a call


async def test_one_of_the_smallest_models_is_not_asked_for_another_call(play):
    async with play([say("", "read_file", path="none.txt"), say("It is not there.")], registration="all") as shell:
        with_traits(shell, calls_undeclared=True, parameters=135_000_000)
        events = await turn(shell, "Read none.txt")
    assert [event.ok for event in of(events, CallFinished)] == [False]
    assert events[-1].answer == "It is not there."


async def test_a_model_that_shows_what_it_might_run_is_asked_once_to_run_it(play):
    shown = say("Run this:\n```sh\nwc -l notes.txt\n```")
    lines = [say("", "list_files"), shown, COUNT, shown]
    async with play(lines, registration="all") as shell:
        events = await turn(free(shell))
        assert [request.want for request in shell.requests] == ["either", "either", "call", "either"]
        assert "list_files" not in {schema.name for schema in shell.requests[2].callable_now}
    assert events[-1].answer.startswith("Run this:")  # it was asked once


async def test_a_program_that_was_asked_for_or_read_is_an_answer(play):
    shown = say("```python\nprint(1)\n```")
    async with play([shown], registration="all") as shell:
        await turn(free(shell), "How do I print 1?")
        assert len(shell.requests) == 1
    quoted = say("```sh\none\ntwo\n```")
    async with play([say("", "read_file", path="notes.txt"), quoted], registration="all") as shell:
        await turn(free(shell), "Show me notes.txt")
        assert len(shell.requests) == 2


async def test_what_a_model_said_is_its_answer_where_no_cap_has_room_to_ask_for_another_call(play, monkeypatch):
    async with play([say("", "read_file", path="missing.txt"), say("I cannot.")], registration="all") as shell:
        metered = shell.deps.models.current.model
        ask = metered.ask

        async def limited(request, *arguments, **named):
            if request.purpose == "repair":
                raise LimitReached("The cap is spent.", scope="turn", need=2, left=1, unit="tokens")
            return await ask(request, *arguments, **named)

        monkeypatch.setattr(metered, "ask", limited)
        events = await turn(free(shell))
    assert (events[-1].status, events[-1].answer) == ("answered", "I cannot.")


async def test_a_call_that_is_repeated_to_no_avail_makes_room_for_another_tool(play):
    async with play([COUNT, COUNT, say("3 lines.")], registration="all") as shell:
        await turn(free(shell))
        may = [{schema.name for schema in request.callable_now} for request in shell.requests]
        (_,) = set(arrays(shell))
    assert may[0] == may[1] == may[2] | {"count_text"}
    assert "count_text" not in may[2]


async def test_a_weak_model_that_asks_again_for_what_it_got_is_asked_for_the_answer(play):
    async with play([COUNT, COUNT, say("3 lines.")], registration="all") as shell:
        events = await turn(weak(shell), "How long is it?")
        first, second, third = shell.requests
    assert [request.want for request in (first, second, third)] == ["either", "either", "text"]
    assert third.messages[-1].text.endswith("How long is it?")
    (answer,) = of(events, Answer)
    assert (answer.text, answer.partial) == ("3 lines.", False)


async def test_a_weak_model_that_repeats_a_failure_may_call_another_tool(play):
    missing = say("", "count_text", path="nothing.txt")
    async with play([missing, missing, say("There is none.")], registration="all") as shell:
        await turn(weak(shell))
        third = shell.requests[2]
    assert third.want == "either"
    assert "count_text" not in {schema.name for schema in third.callable_now}


def trained(shell):
    """The shell, its scripted model one of few weights that was trained on what the shell asks."""
    return with_traits(weak(shell), trained="single")


async def test_a_trained_model_that_calls_again_what_it_called_answers_with_the_result(play):
    async with play([COUNT, COUNT], registration="all") as shell:
        events = await turn(trained(shell), "How long is it?")
        asked = shell.requests
    result, again = of(events, CallFinished)
    assert again.refused == "repeated"
    assert events[-1].answer == result.observation.strip()
    assert len(asked) == 2


async def test_a_small_trained_model_is_not_asked_to_conclude_and_what_was_found_is_quoted(play):
    lines = [COUNT, say("", "count_text", path="gone.txt"), say("Five.")]
    async with play(lines, registration="all", max_steps=2) as shell:
        with_traits(trained(shell), small=True)
        events = await turn(shell, "How long is it?")
    assert events[-1].status == "limit"
    assert events[-1].answer.startswith("The last result, as returned by count_text:")
    assert "notes.txt: 3 lines" in events[-1].answer


@pytest.mark.parametrize("held", [weak, free, trained])
async def test_only_a_weak_model_is_asked_at_each_result_whether_that_is_enough(play, held):
    async with play([COUNT, register("read_file"), say("3 lines."), say("Yes.")], registration="all") as shell:
        await turn(held(shell), "How long is it?")
        await turn(shell, "Sure?")
        told = [[one.text for one in request.messages if one.speaker == "tool"] for request in shell.requests]
    reminded = [[text.endswith("How long is it?") for text in texts] for texts in told]
    assert reminded == [[], [held is weak], [False, held is weak], [False, False]]


def registrable(request):
    return [
        one.parameters["properties"]["tool_name"].get("enum")
        for one in request.callable_now
        if one.name == "tool_register"
    ]


async def test_a_model_that_is_held_to_a_grammar_can_register_what_is_not_registered_yet(play):
    async with play([register("count_text"), COUNT, say("3 lines.")], registration="names") as shell:
        await turn(free(shell))
        asked = shell.requests
        names = shell.deps.catalog.names
    assert registrable(asked[0]) == [list(names)]
    assert registrable(asked[1]) == [[name for name in names if name != "count_text"]]
    assert asked[0].tools == asked[1].tools == asked[2].tools  # what it is shown stays as it was


async def test_after_two_registrations_a_model_that_is_held_to_a_grammar_calls(play):
    lines = [register("count_text"), register("read_file"), COUNT, register("list_files"), say("3 lines.")]
    async with play(lines, registration="names") as shell:
        await turn(free(shell))
        may = ["tool_register" in {one.name for one in request.callable_now} for request in shell.requests]
    assert may == [True, True, False, True, True]


async def test_other_models_register_by_any_name_and_are_told(play):
    async with play([register("count_lines"), say("I cannot.")], registration="names") as shell:
        events = await turn(shell)
        assert registrable(shell.requests[0]) == [None]
    assert [event.refused for event in of(events, CallFinished)] == ["unknown"]
