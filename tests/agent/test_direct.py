"""How tools stand before a model that may call what its array does not hold, as local ones: over turns and resumed."""

from dataclasses import replace

from agent_play import of, register, say, turn

from ecoshell.catalog.presentation import Direct
from ecoshell.events import CallFinished

COUNT = say("", "count_text", path="notes.txt")


def free(shell):
    """The shell, its scripted model one that may call what its array does not hold."""
    model = shell.deps.models.current.model._model
    model.traits = replace(model.traits, calls_undeclared=True)
    return shell


def arrays(shell):
    return [tuple(document.name for document in request.tools) for request in shell.requests]


async def test_a_tool_registered_on_the_way_is_text_and_called_by_its_own_name(play):
    lines = [register("count_text"), COUNT, say("3 lines."), COUNT, say("Still 3.")]
    async with play(lines, registration="names") as shell:
        events = await turn(free(shell))
        again = await turn(shell, "And now?")
        assert set(arrays(shell)) == {("tool_register",)}
        told = [message.text for message in shell.requests[1].messages if message.speaker == "tool"]
        assert told[0].startswith("count_text: Count the lines")
        settled, messages = shell.conversation.presentation, shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.presentation == settled
        assert shell.conversation.memory.messages == messages
    assert [event.ok for event in of([*events, *again], CallFinished)] == [True, True]


async def test_everything_up_front_stands_in_the_array_in_brief_and_stays_there(play):
    async with play([COUNT, say("3 lines."), say("Yes.")], registration="all") as shell:
        await turn(free(shell))
        await turn(shell, "Sure?")
        (array,) = set(arrays(shell))
        assert array == shell.deps.catalog.names
        assert all(document.brief for document in shell.requests[0].tools)
        read = next(document for document in shell.requests[0].callable_now if document.name == "read_file")
        assert "start_line" not in read.entry
        assert "start_line" in read.parameters["properties"]  # what is not told may be called all the same
        assert isinstance(shell.conversation.presentation, Direct)
        assert not shell.conversation.presentation.registers
        opening = shell.requests[0].messages[1].text
    assert "Tools to register" not in opening
    assert "count_text:" not in opening
