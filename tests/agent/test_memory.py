"""The messages of a session are rebuilt from its events alone, so a resumed session sends the same messages."""

import asyncio

import pytest
from agent_play import Recorder, finish, is_replayed, register, say, turn

from ecoshell.agent.memory import Memory
from ecoshell.errors import UsageError
from ecoshell.events import (
    Answer,
    BudgetHeld,
    CallFinished,
    CallStarted,
    CommandRan,
    Compacted,
    ModelReplied,
    Rationale,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, Attachment, Call, Message, ToolSchema, Usage
from ecoshell.models import Delta

COUNT = say("Count them.", "count_text", path="notes.txt")


@pytest.mark.parametrize("presentation", ["grow", "stable"])
@pytest.mark.parametrize("registration", ["names", "all"])
async def test_a_resumed_session_sends_the_same_messages(play, presentation, registration):
    lines = [
        register("count_text", "need it"),
        register("no_such_tool"),
        COUNT,
        say("Three."),
        COUNT,
        finish("3"),
    ]
    async with play(lines, registration=registration, presentation=presentation) as shell:
        await turn(shell, "How many? @notes.txt")
        await shell.run("echo hello")
        await turn(shell, "And now?")
        assert is_replayed(shell)
        sent = shell.requests[-1].messages
        messages = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == messages
        assert sent[1:] == messages[: len(sent) - 1]  # without the system message


async def test_a_wrapped_call_is_replayed_in_its_wrapper(play):
    inside = {"name": "count_text", "arguments": {"path": "notes.txt"}}
    lines = [register("count_text"), say("", TOOL_CALL, **inside), finish("3"), finish("again")]
    async with play(lines, registration="names", presentation="stable") as shell:
        await turn(shell)
        await turn(shell, "And now?")
        first, second = shell.requests[2].messages, shell.requests[3].messages
        assert second[: len(first)] == first
        assert is_replayed(shell)


async def test_a_stopped_call_is_replayed(play, home):
    lines = [
        say("Wait.", "run_command", command="touch started; sleep 30"),
        finish("never"),
        finish("ok"),
    ]
    async with asyncio.timeout(120), play(lines, registration="all", yes=True) as shell:
        async for event in shell.ask("Sleep."):
            if isinstance(event, CallStarted):
                while not (home / "started").exists():  # noqa: ASYNC110 - an earlier stop has another message
                    await asyncio.sleep(0.01)
                await shell.stop()
        assert is_replayed(shell)
        *_, call, result, ending = shell.conversation.memory.messages
    assert call.call.name == "run_command"
    assert result.text == "The turn ended before run_command did."
    assert ending.text == "[interrupted]"


async def test_the_output_of_a_stopped_command_is_kept(play, home):
    command = "echo before; touch started; sleep 30"
    lines = [say("Wait.", "run_command", command=command), finish("never")]
    async with asyncio.timeout(120), play(lines, registration="all", yes=True) as shell:
        async for event in shell.ask("Sleep."):
            if isinstance(event, CallStarted):
                while not (home / "started").exists():  # noqa: ASYNC110 - the command is stopped after it
                    await asyncio.sleep(0.01)
                await shell.stop()
        assert is_replayed(shell)
        result = shell.conversation.memory.messages[-2]
    expected = "The turn ended before run_command did. Its output so far:\nbefore"
    assert result.text == expected


class Pausing(Recorder):
    """Stops writing for good after the first "half "."""

    _pauses = True

    async def stream(self, request):
        async for piece in super().stream(request):
            yield piece
            if self._pauses and isinstance(piece, Delta) and piece.text == "half ":
                self._pauses = False
                await asyncio.Event().wait()


@pytest.mark.parametrize("killed", [False, True])
async def test_the_text_of_a_stopped_reply_is_part_of_the_next_prompt(play, killed):
    lines = [COUNT, say("The first half of it and the second."), finish("And the second half.")]
    async with play(lines, registration="all", recorder=Pausing) as shell:
        async for event in shell.ask("Write it."):
            if isinstance(event, TextArrived) and event.text == "half ":
                await shell.stop()
        assert is_replayed(shell)
        history = shell.store.history(shell.session)
        if killed:  # the process wrote no end of the turn
            history = [event for event in history if not isinstance(event, TurnFinished)]
        again = Memory(shell.deps.catalog, history)
        assert again.messages == shell.conversation.memory.messages
        await turn(shell, "Go on where you stopped.")
        *_, ending, _ = shell.requests[-1].messages
    assert ending == Message("assistant", "The first half\n\n[interrupted]")


async def test_the_text_before_a_stopped_continuation_is_part_of_the_next_prompt(play):
    first = "word " * 200
    lines = [say(first + "more"), say("and the half of it"), finish("And the rest.")]
    async with play(lines, registration="all", recorder=Pausing) as shell:
        shown = ""
        async for event in shell.ask("Write it."):
            if isinstance(event, TextArrived):
                shown += event.text
                if event.text == "half ":
                    await shell.stop()
        assert is_replayed(shell)
        await turn(shell, "Go on where you stopped.")
        *_, ending, _ = shell.requests[-1].messages
    assert shown.count("word") > 100
    assert ending == Message("assistant", f"{shown.strip()}\n\n[interrupted]")


async def test_a_failed_turn_is_replayed(play):
    async with play([register("count_text")], registration="names") as shell:
        await turn(shell)
        assert is_replayed(shell)
        assert shell.conversation.memory.messages[-1] == Message("assistant", "[error]")


async def test_a_question_longer_than_the_context_is_not_sent_again(play):
    async with play([finish("Hello."), finish("Again.")], registration="names") as shell:
        await shell.run("echo seen")
        refused = (await turn(shell, "long " * 400_000))[-1]
        assert (refused.status, refused.steps) == ("error", 0)
        assert is_replayed(shell)
        with pytest.raises(UsageError, match="nothing to compact"):
            await shell.command("/compact")
        assert (await turn(shell, "Hi."))[-1].answer == "Hello."
        assert is_replayed(shell)
        texts = [message.text for message in shell.requests[-1].messages]
        assert not any("long long" in text for text in texts)
        assert "echo seen" in texts[-1]
        await shell.command("/undo")
        assert (await shell.command("/retry")).value.startswith("long long")
        assert is_replayed(shell)


async def test_registration_by_the_user_is_replayed(play):
    async with play([finish("ok")], registration="names") as shell:
        await shell.command("/register count_text")
        await turn(shell)
        await shell.command("/register read_file")
        await shell.command("/unregister count_text")
        assert is_replayed(shell)
        assert shell.conversation.memory.library.names == ("read_file",)


class TwoTools:
    """A catalog of two tools."""

    names = ("read_file", "count_text")

    def __contains__(self, name):
        return name in self.names

    def is_all(self, names):
        return {*names} == {*self.names}

    def schema(self, name):
        return ToolSchema(name, f"What {name} does.", {})


def memory(*events):
    return Memory(TwoTools(), events)  # type: ignore[arg-type]


def started(number=1, question="q", attachments=()):
    return TurnStarted(number, question, "m", "single", "react", attachments)


def finished(number=1, status="answered"):
    return TurnFinished(number, status, "done", 5, Usage(), 1, (), 0.0)


def text(piece, channel="thought"):
    return TextArrived(piece, channel, "single")


def cut(*, has_unusable_call=False):
    return ModelReplied("m1", "single", "m", "length", has_unusable_call=has_unusable_call)


HELD = BudgetHeld(2, "single", "m", 0, 0, 100, clamped=False)
OFFER = ToolsOffered(
    ("read_file", "count_text"), (), "stable", 1, 2, True, "", "Tools to register: read_file"
)


def test_steps_are_replayed_with_thoughts_and_results():
    messages = memory(
        started(), OFFER,
        Rationale("need it", "single"), ToolRegistered("read_file", 10, True, 1, "agent", "c1"),
        Rationale("read", "single"), CallStarted("c2", "read_file", {"path": "a"}),
        CallFinished("c2", "read_file", True, "text", False, 0.1),
        Answer("done"), finished(),
    ).messages  # fmt: skip
    registering, reading = (
        Call(TOOL_REGISTER, {"tool_name": "read_file"}, "c1"),
        Call("read_file", {"path": "a"}, "c2"),
    )
    assert messages == (
        Message("user", "Tools to register: read_file\n\nq"),
        Message("assistant", "need it", (registering,)),
        Message("tool", "read_file: What read_file does.", (registering,)),
        Message("assistant", "read", (reading,)),
        Message("tool", "text", (reading,)),
        Message("assistant", "done"),
    )


def test_a_killed_turn_is_replayed_as_interrupted():
    messages = memory(started(), CallStarted("c1", "read_file", {})).messages
    assert [message.text for message in messages] == [
        "q",
        "",
        "The turn ended before read_file did.",
        "[interrupted]",
    ]
    wrapped = memory(started(), CallStarted("c1", "read_file", {}, TOOL_CALL))
    assert wrapped.messages[2].text == messages[2].text
    assert wrapped.turns[0].ran == {"read_file"}
    assert (
        memory(started(), started(2, "again"), Answer("yes"), finished(2)).messages[-3].text
        == "[interrupted]"
    )


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([Rationale("Why.", "planner"), text("Part")], "Why.\n\nPart\n\n[interrupted]"),
        ([text("Think."), text("Ans", "answer")], "Think.\n\nAns\n\n[interrupted]"),
        ([text("Secret", "reasoning")], "[interrupted]"),
        ([text('{"name": "read_f')], "[interrupted]"),
        ([text("Failed"), HELD, text("Retried")], "Retried\n\n[interrupted]"),
        ([text("One "), cut(), HELD, HELD, text("two")], "One two\n\n[interrupted]"),
        ([text("One "), cut(), HELD, text("tw"), HELD, text("two")], "One two\n\n[interrupted]"),
        (
            [text("Call "), cut(has_unusable_call=True), HELD, text("Again")],
            "Again\n\n[interrupted]",
        ),
        (
            [text("One"), cut(), Rationale("One", "single"), HELD, text("Tw"), HELD, text("Two")],
            "One\n\nTwo\n\n[interrupted]",
        ),
        ([text("Done."), Rationale("Done.", "single"), Answer("Done.")], "Done."),
    ],
)
def test_only_the_visible_text_of_the_last_reply_is_kept(events, ending):
    assert memory(started(), *events).messages[-1].text == ending


def test_the_registration_of_a_removed_tool_is_omitted():
    replayed = memory(
        started(), ToolRegistered("gone", 10, True, 1, "agent"), Answer("done"), finished()
    )
    assert replayed.messages == (Message("user", "q"), Message("assistant", "done"))
    assert "gone" not in replayed.library


def test_attachments_follow_the_question_in_unambiguous_fences():
    attachments = (Attachment("a.md", "```\ncode\n```\n"), Attachment("b.txt", "b"))
    opening = memory(started(attachments=attachments), finished()).messages[0].text
    assert opening == "q\n\na.md:\n````\n```\ncode\n```\n````\n\nb.txt:\n```\nb\n```"


def test_the_output_of_a_command_precedes_the_next_question_only():
    ran = CommandRan("make", "no rule", False, False, 0.1)
    replayed = memory(
        ran, started(), Answer("done"), finished(), started(2, "next"), Answer("done"), finished(2)
    )
    first, _, second, _ = (message.text for message in replayed.messages)
    assert first == "I ran a command: make\nThis is its output. It failed.\n```\nno rule\n```\n\nq"
    assert second == "next"


def test_an_undone_turn_keeps_its_commands_and_registrations():
    ran = CommandRan("make", "fine", True, False, 0.1)
    events = [
        ran, started(), OFFER, ToolRegistered("read_file", 10, True, 1, "agent", "c1"), Answer("done"), finished(),
        TurnUndone(1),
    ]  # fmt: skip
    replayed = memory(*events)
    assert (replayed.messages, replayed.commands, replayed.library.names) == (
        (),
        (ran,),
        ("read_file",),
    )
    assert replayed.shown.schemas == frozenset()
    assert replayed.number == 1
    again = memory(*events, started(2, "q"), Answer("yes"), finished(2))
    assert "I ran a command: make" in again.messages[0].text


def test_compaction_replaces_turns_and_resends_names_and_schemas():
    events = [
        started(),
        OFFER,
        ToolRegistered("read_file", 10, True, 1, "agent"),
        Answer("done"),
        finished(),
    ]
    replayed = memory(
        *events, Compacted("short", "m", 1, 100, 10), started(2, "next"), Answer("yes"), finished(2)
    )
    assert [message.text for message in replayed.messages] == [
        "What was said and done so far, in short:\nshort", "Noted.", "next", "yes",
    ]  # fmt: skip
    assert replayed.shown.names == replayed.shown.schemas == frozenset()
    assert replayed.shown.presentation is not None
    assert replayed.library.names == ("read_file",)
    assert replayed.answers == ["done", "yes"]


def test_unregistering_removes_a_tool_from_the_library():
    replayed = memory(
        ToolRegistered("read_file", 10, True, 0, "user"), ToolUnregistered("read_file")
    )
    assert replayed.library.names == ()
