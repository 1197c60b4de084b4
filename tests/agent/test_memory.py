"""What models are told is read from the events alone, so a session that is resumed goes on with the same messages."""

import asyncio

import pytest
from agent_play import finish, register, say, turn

from ecoshell.agent.memory import Memory
from ecoshell.errors import UsageError
from ecoshell.events import (
    Answer,
    CallFinished,
    CallStarted,
    CommandRan,
    Compacted,
    Rationale,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, Attachment, Call, Message, ToolSchema, Usage

COUNT = say("Count them.", "count_text", path="notes.txt")


def stored(shell, session=None):
    return [event for _, event in shell.store.events(session or shell.session)]


def is_replayed(shell):
    """Whether the session read from the store is the session as it is."""
    live, again = shell.conversation.memory, Memory(shell.deps.catalog, stored(shell))
    return (live.messages, live.shown, live.library, live.commands, live.turns, live.answers, live.number) == (
        again.messages, again.shown, again.library, again.commands, again.turns, again.answers, again.number
    )  # fmt: skip


@pytest.mark.parametrize("presentation", ["grow", "stable"])
@pytest.mark.parametrize("registration", ["names", "all"])
async def test_a_resumed_session_tells_models_the_same(play, presentation, registration):
    lines = [register("count_text", "need it"), register("no_such_tool"), COUNT, say("Three."), COUNT, finish("3")]
    async with play(lines, registration=registration, presentation=presentation) as shell:
        await turn(shell, "How many? @notes.txt")
        await shell.run("echo hello")
        await turn(shell, "And now?")
        assert is_replayed(shell)
        told = shell.requests[-1].messages
        before = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == before
        assert told[1:] == before[: len(told) - 1]  # the system text stands before


async def test_a_call_through_tool_call_is_told_as_it_was_made(play):
    inside = {"name": "count_text", "arguments": {"path": "notes.txt"}}
    lines = [register("count_text"), say("", TOOL_CALL, **inside), finish("3"), finish("again")]
    async with play(lines, registration="names", presentation="stable") as shell:
        await turn(shell)
        await turn(shell, "And now?")
        first, second = shell.requests[2].messages, shell.requests[3].messages
        assert second[: len(first)] == first
        assert is_replayed(shell)


async def test_a_call_that_was_stopped_is_told_live_and_again(play, home):
    lines = [say("Wait.", "run_command", command="touch begun; sleep 30"), finish("never"), finish("ok")]
    async with asyncio.timeout(120), play(lines, registration="all", yes=True) as shell:
        async for event in shell.ask("Sleep."):
            if isinstance(event, CallStarted):
                while not (home / "begun").exists():  # noqa: ASYNC110 - a stop before that is told in other words
                    await asyncio.sleep(0.01)
                await shell.stop()
        assert is_replayed(shell)
        *_, call, seen, ending = shell.conversation.memory.messages
    assert call.call.name == "run_command"
    assert seen.text == "The turn ended before run_command did."
    assert ending.text == "[interrupted]"


async def test_a_turn_that_failed_is_told_live_and_again(play):
    async with play([register("count_text")], registration="names") as shell:
        await turn(shell)
        assert is_replayed(shell)
        assert shell.conversation.memory.messages[-1] == Message("assistant", "[error]")


async def test_a_question_that_is_longer_than_the_context_leaves_room_for_the_next(play):
    async with play([finish("Hello."), finish("Again.")], registration="names") as shell:
        await shell.run("echo seen")
        refused = (await turn(shell, "long " * 400_000))[-1]
        assert (refused.status, refused.steps) == ("error", 0)
        assert is_replayed(shell)
        with pytest.raises(UsageError, match="nothing to compact"):
            await shell.command("/compact")
        assert (await turn(shell, "Hi."))[-1].answer == "Hello."
        assert is_replayed(shell)
        told = [message.text for message in shell.requests[-1].messages]
        assert not any("long long" in text for text in told)
        assert "echo seen" in told[-1]
        await shell.command("/undo")
        assert (await shell.command("/retry")).value.startswith("long long")
        assert is_replayed(shell)


async def test_what_registering_and_unregistering_by_hand_leave_is_replayed(play):
    async with play([finish("ok")], registration="names") as shell:
        await shell.command("/register count_text")
        await turn(shell)
        await shell.command("/register read_file")
        await shell.command("/unregister count_text")
        assert is_replayed(shell)
        assert shell.conversation.memory.library.names == ("read_file",)


class Pool:
    """A catalog of two tools."""

    names = ("read_file", "count_text")

    def __contains__(self, name):
        return name in self.names

    def is_all(self, names):
        return {*names} == {*self.names}

    def schema(self, name):
        return ToolSchema(name, f"What {name} does.", {})


def memory(*events):
    return Memory(Pool(), events)  # type: ignore[arg-type]


def started(number=1, question="q", attachments=()):
    return TurnStarted(number, question, "m", "single", "react", attachments)


def over(number=1, status="answered"):
    return TurnFinished(number, status, "done", 5, Usage(), 1, (), 0.0)


OFFER = ToolsOffered(("read_file", "count_text"), (), "stable", 1, 2, True, "", "Tools to register: read_file")


def test_steps_are_read_with_their_thoughts_and_results():
    told = memory(
        started(), OFFER,
        Rationale("need it", "single"), ToolRegistered("read_file", 10, True, 1, "agent", "c1"),
        Rationale("read", "single"), CallStarted("c2", "read_file", {"path": "a"}),
        CallFinished("c2", "read_file", True, "text", False, 0.1),
        Answer("done"), over(),
    ).messages  # fmt: skip
    registering, reading = Call(TOOL_REGISTER, {"tool_name": "read_file"}, "c1"), Call("read_file", {"path": "a"}, "c2")
    assert told == (
        Message("user", "Tools to register: read_file\n\nq"),
        Message("assistant", "need it", (registering,)),
        Message("tool", "read_file: What read_file does.", (registering,)),
        Message("assistant", "read", (reading,)),
        Message("tool", "text", (reading,)),
        Message("assistant", "done"),
    )


def test_a_turn_that_was_killed_is_told_as_interrupted_and_so_is_its_call():
    told = memory(started(), CallStarted("c1", "read_file", {})).messages
    assert [message.text for message in told] == ["q", "", "The turn ended before read_file did.", "[interrupted]"]
    through = memory(started(), CallStarted("c1", "read_file", {}, TOOL_CALL))
    assert through.messages[2].text == told[2].text
    assert through.turns[0].ran == {"read_file"}
    assert memory(started(), started(2, "again"), Answer("yes"), over(2)).messages[-3].text == "[interrupted]"


def test_a_registration_of_a_tool_that_is_gone_is_left_out():
    seen = memory(started(), ToolRegistered("gone", 10, True, 1, "agent"), Answer("done"), over())
    assert seen.messages == (Message("user", "q"), Message("assistant", "done"))
    assert "gone" not in seen.library


def test_attachments_follow_the_question_between_marks_that_do_not_occur_in_them():
    along = (Attachment("a.md", "```\ncode\n```\n"), Attachment("b.txt", "b"))
    opening = memory(started(attachments=along), over()).messages[0].text
    assert opening == "q\n\na.md:\n````\n```\ncode\n```\n````\n\nb.txt:\n```\nb\n```"


def test_what_a_command_put_out_stands_before_the_next_question_only():
    ran = CommandRan("make", "no rule", False, False, 0.1)
    seen = memory(ran, started(), Answer("done"), over(), started(2, "next"), Answer("done"), over(2))
    first, _, second, _ = (message.text for message in seen.messages)
    assert first == "I ran a command: make\nThis is its output. It failed.\n```\nno rule\n```\n\nq"
    assert second == "next"


def test_a_turn_that_was_taken_back_gives_its_commands_to_the_next_and_keeps_what_it_registered():
    ran = CommandRan("make", "fine", True, False, 0.1)
    events = [
        ran, started(), OFFER, ToolRegistered("read_file", 10, True, 1, "agent", "c1"), Answer("done"), over(),
        TurnUndone(1),
    ]  # fmt: skip
    seen = memory(*events)
    assert (seen.messages, seen.commands, seen.library.names) == ((), (ran,), ("read_file",))
    assert seen.shown.schemas == frozenset()
    assert seen.number == 1
    again = memory(*events, started(2, "q"), Answer("yes"), over(2))
    assert "I ran a command: make" in again.messages[0].text


def test_after_compacting_the_summary_is_told_and_names_and_documents_count_as_untold():
    events = [started(), OFFER, ToolRegistered("read_file", 10, True, 1, "agent"), Answer("done"), over()]
    seen = memory(*events, Compacted("short", "m", 1, 100, 10), started(2, "next"), Answer("yes"), over(2))
    assert [message.text for message in seen.messages] == [
        "What was said and done so far, in short:\nshort", "Noted.", "next", "yes",
    ]  # fmt: skip
    assert seen.shown.names == seen.shown.schemas == frozenset()
    assert seen.shown.presentation is not None
    assert seen.library.names == ("read_file",)
    assert seen.answers == ["done", "yes"]


def test_unregistering_takes_a_tool_out_of_the_library():
    seen = memory(ToolRegistered("read_file", 10, True, 0, "user"), ToolUnregistered("read_file"))
    assert seen.library.names == ()
