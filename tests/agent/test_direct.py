"""Tools of models that can call what their tool array does not list, as local models can, over turns and resumed."""

import pytest
from agent_play import of, register, say, turn, with_traits

from ecoshell.catalog.presentation import LOCAL_ARRAY
from ecoshell.errors import LimitReached
from ecoshell.events import Answer, CallFinished, PlanChanged
from ecoshell.messages import Call, Message, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.modes.requests import repair_request

COUNT = say("", "count_text", path="notes.txt")


def with_grammar(shell):
    """Give the scripted model a grammar and 4 billion parameters."""
    return with_traits(shell, calls_undeclared=True, parameters=4_000_000_000)


def weak(shell):
    """Give the scripted model a grammar and 1.5 billion parameters."""
    return with_traits(shell, calls_undeclared=True, parameters=1_500_000_000)


def arrays(shell):
    return [tuple(schema.name for schema in request.tools) for request in shell.requests]


async def test_a_tool_registered_during_a_turn_is_sent_as_text_and_called_by_name(play):
    lines = [register("count_text"), COUNT, say("3 lines."), COUNT, say("Still 3.")]
    async with play(lines, registration="names") as shell:
        events = await turn(with_grammar(shell))
        again = await turn(shell, "And now?")
        assert set(arrays(shell)) == {("tool_register",)}
        results = [
            message.text for message in shell.requests[1].messages if message.speaker == "tool"
        ]
        assert results[0].startswith("count_text: Count the lines")
        settled, messages = (
            shell.conversation.memory.presentation,
            shell.conversation.memory.messages,
        )
        await shell.open(shell.session)
        assert shell.conversation.memory.presentation == settled
        assert shell.conversation.memory.messages == messages
    assert [event.ok for event in of([*events, *again], CallFinished)] == [True, True]


async def test_registration_all_puts_every_tool_into_the_array_in_brief(play):
    async with play([COUNT, say("3 lines."), say("Yes.")], registration="all") as shell:
        await turn(with_grammar(shell))
        await turn(shell, "Sure?")
        (array,) = set(arrays(shell))
        assert array[: len(LOCAL_ARRAY)] == LOCAL_ARRAY
        assert sorted(array) == sorted(shell.deps.catalog.names)
        assert all(schema.brief for schema in shell.requests[0].tools)
        read = next(
            schema for schema in shell.requests[0].callable_now if schema.name == "read_file"
        )
        assert "start_line" not in read.entry
        assert (
            "start_line" in read.parameters["properties"]
        )  # an undescribed parameter can still be used
        assert shell.conversation.memory.presentation.name == "direct"
        assert not shell.conversation.memory.presentation.registers
        opening = shell.requests[0].messages[1].text
    assert "Tools to register" not in opening
    assert "count_text:" not in opening


@pytest.mark.parametrize(("tool", "want"), [("rename", "call"), ("count_text", "either")])
def test_the_repair_of_an_unknown_call_requires_a_known_tool(tool, want):
    schema = ToolSchema("count_text", "Count.", {})
    request = Request((Message("user", "Rename a."),), (schema,), (schema,))
    broken = Reply("", usage=None, attempt=Call(tool, {}), fault="It cannot be used.")
    assert (request.want, repair_request(request, broken, broken.fault).want) == ("either", want)


async def test_a_model_that_gives_up_after_one_failure_is_asked_once_for_another_call(play):
    missing = say("", "read_file", path="missing.txt")
    lines = [missing, say("I cannot."), COUNT, say("3 lines.")]
    async with play(lines, registration="all") as shell:
        events = await turn(with_grammar(shell))
        assert [request.want for request in shell.requests] == [
            "either",
            "either",
            "call",
            "either",
        ]
        assert shell.requests[2].messages[-2].text == "I cannot."
    assert events[-1].answer == "3 lines."
    async with play([missing, missing, say("I cannot.")], registration="all") as shell:
        assert (await turn(with_grammar(shell)))[
            -1
        ].answer == "I cannot."  # it has tried more than once
    async with play([missing, say("I cannot.")], registration="all") as shell:
        assert (await turn(shell))[
            -1
        ].answer == "I cannot."  # without a grammar a call cannot be enforced


async def test_the_smallest_models_are_not_asked_for_another_call(play):
    async with play(
        [say("", "read_file", path="none.txt"), say("It is not there.")], registration="all"
    ) as shell:
        with_traits(shell, calls_undeclared=True, parameters=135_000_000)
        events = await turn(shell, "Read none.txt")
    assert [event.ok for event in of(events, CallFinished)] == [False]
    assert events[-1].answer == "It is not there."


async def test_a_model_that_shows_a_command_is_asked_once_to_run_it(play):
    command = say("Run this:\n```sh\nwc -l notes.txt\n```")
    lines = [say("", "list_files"), command, COUNT, command]
    async with play(lines, registration="all") as shell:
        events = await turn(with_grammar(shell))
        assert [request.want for request in shell.requests] == [
            "either",
            "either",
            "call",
            "either",
        ]
        assert "list_files" not in {schema.name for schema in shell.requests[2].callable_now}
    assert events[-1].answer.startswith("Run this:")  # it is asked only once


async def test_a_program_is_an_answer_if_it_was_requested_or_read(play):
    program = say("```python\nprint(1)\n```")
    async with play([program], registration="all") as shell:
        await turn(with_grammar(shell), "How do I print 1?")
        assert len(shell.requests) == 1
    quoted = say("```sh\none\ntwo\n```")
    async with play([say("", "read_file", path="notes.txt"), quoted], registration="all") as shell:
        await turn(with_grammar(shell), "Show me notes.txt")
        assert len(shell.requests) == 2


async def test_the_text_is_the_answer_if_the_cap_cannot_cover_another_call(play, monkeypatch):
    async with play(
        [say("", "read_file", path="missing.txt"), say("I cannot.")], registration="all"
    ) as shell:
        metered = shell.deps.models.current.model
        ask = metered.ask

        async def limited(request, *arguments, **keywords):
            if request.purpose == "repair":
                raise LimitReached("The cap is spent.", scope="turn", need=2, left=1, unit="tokens")
            return await ask(request, *arguments, **keywords)

        monkeypatch.setattr(metered, "ask", limited)
        events = await turn(with_grammar(shell))
    assert (events[-1].status, events[-1].answer) == ("answered", "I cannot.")


async def test_a_repeated_tool_is_withheld_for_one_step(play):
    async with play([COUNT, COUNT, say("3 lines.")], registration="all") as shell:
        await turn(with_grammar(shell))
        callable_tools = [
            {schema.name for schema in request.callable_now} for request in shell.requests
        ]
        (_,) = set(arrays(shell))
    assert callable_tools[0] == callable_tools[1] == callable_tools[2] | {"count_text"}
    assert "count_text" not in callable_tools[2]


async def test_a_weak_model_that_repeats_a_call_is_asked_for_the_answer(play):
    async with play([COUNT, COUNT, say("3 lines.")], registration="all") as shell:
        events = await turn(weak(shell), "How long is it?")
        first, second, third = shell.requests
    assert [request.want for request in (first, second, third)] == ["either", "either", "text"]
    assert third.messages[-1].text.endswith("How long is it?")
    (answer,) = of(events, Answer)
    assert (answer.text, answer.partial) == ("3 lines.", False)


async def test_a_weak_model_that_repeats_a_failed_call_can_call_another_tool(play):
    missing = say("", "count_text", path="nothing.txt")
    async with play(
        [missing, missing, say("The file does not exist.")], registration="all"
    ) as shell:
        await turn(weak(shell))
        third = shell.requests[2]
    assert third.want == "either"
    assert "count_text" not in {schema.name for schema in third.callable_now}


def trained(shell):
    """Give the scripted model a grammar, 1.5 billion parameters and training on single turns."""
    return with_traits(weak(shell), trained="single")


async def test_a_trained_model_that_repeats_a_call_answers_with_the_result(play):
    async with play([COUNT, COUNT], registration="all") as shell:
        events = await turn(trained(shell), "How long is it?")
        requests = shell.requests
    result, again = of(events, CallFinished)
    assert again.refused == "repeated"
    assert events[-1].answer == result.observation.strip()
    assert len(requests) == 2


async def test_the_last_result_answers_for_a_small_trained_model_at_the_step_limit(play):
    lines = [COUNT, say("", "count_text", path="gone.txt"), say("Five.")]
    async with play(lines, registration="all", max_steps=2) as shell:
        with_traits(trained(shell), small=True)
        events = await turn(shell, "How long is it?")
    assert events[-1].status == "limit"
    assert events[-1].answer.startswith("The last result, as returned by count_text:")
    assert "notes.txt: 3 lines" in events[-1].answer


@pytest.mark.parametrize("configure", [weak, with_grammar, trained])
async def test_only_a_weak_model_is_reminded_of_the_question_after_a_result(play, configure):
    async with play(
        [COUNT, register("read_file"), say("3 lines."), say("Yes.")], registration="all"
    ) as shell:
        await turn(configure(shell), "How long is it?")
        await turn(shell, "Sure?")
        results = [
            [message.text for message in request.messages if message.speaker == "tool"]
            for request in shell.requests
        ]
    reminded = [[text.endswith("How long is it?") for text in texts] for texts in results]
    assert reminded == [[], [configure is weak], [False, configure is weak], [False, False]]


def registrable(request):
    return [
        schema.parameters["properties"]["tool_name"].get("enum")
        for schema in request.callable_now
        if schema.name == "tool_register"
    ]


async def test_a_grammar_allows_registration_of_unregistered_tools_only(play):
    async with play(
        [register("count_text"), COUNT, say("3 lines.")], registration="names"
    ) as shell:
        await turn(with_grammar(shell))
        requests = shell.requests
        names = shell.deps.catalog.names
    assert registrable(requests[0]) == [list(names)]
    assert registrable(requests[1]) == [[name for name in names if name != "count_text"]]
    assert (
        requests[0].tools == requests[1].tools == requests[2].tools
    )  # the tool array does not change


async def test_a_grammar_requires_another_call_after_two_registrations(play):
    lines = [
        register("count_text"),
        register("read_file"),
        COUNT,
        register("list_files"),
        say("3 lines."),
    ]
    async with play(lines, registration="names") as shell:
        await turn(with_grammar(shell))
        can_register = [
            "tool_register" in {schema.name for schema in request.callable_now}
            for request in shell.requests
        ]
    assert can_register == [True, True, False, True, True]


async def test_a_model_without_a_grammar_gets_an_error_for_an_unknown_name(play):
    async with play([register("count_lines"), say("I cannot.")], registration="names") as shell:
        events = await turn(shell)
        assert registrable(shell.requests[0]) == [None]
    assert [event.refused for event in of(events, CallFinished)] == ["unknown"]


def tiny(shell):
    """Give the scripted model a grammar and the size of the embedded model."""
    return with_traits(shell, calls_undeclared=True, parameters=135_000_000)


async def test_the_first_call_that_registers_a_tool_costs_no_registration_step(play):
    async with play([COUNT, say("3 lines.")], budget="60000tok") as shell:
        before = await tiny(shell).conversation.setup.forecast("How long is it?")
        first, *_ = of(await turn(shell), PlanChanged)
    for plan in (before.event(), first):
        costs = {row.tool: row.cost for row in plan.rows}
        assert costs["count_text"] == costs["read_file"] > 0


async def test_a_small_model_reads_no_list_of_tools_that_its_grammar_excludes(play):
    async with play([COUNT, say("3 lines."), say("Yes.")], budget="60000tok") as shell:
        tiny(shell).deps.settings.strict, shell.deps.settings.earned = True, False
        events = await turn(shell, "How long is it?")
        await turn(shell, "Sure?")
        requests = shell.requests
    assert {row.tool: row.why for row in of(events, PlanChanged)[-1].rows}["count_text"] == "quota"
    assert "count_text" not in {schema.name for schema in requests[1].callable_now}
    texts = [message.text for request in requests for message in request.messages]
    assert not [text for text in texts if "Not to be used" in text]
