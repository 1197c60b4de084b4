"""Attachments, `!command`, /undo, /retry and /copy in a whole shell, with files and sessions on disk."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal

import pytest
from agent_play import finish, of, register, say, turn

from ecoshell.assembly.viewing import assemble_view
from ecoshell.budget import NANO, Account, Ask
from ecoshell.errors import UsageError
from ecoshell.events import (
    BudgetReconciled,
    BudgetSettled,
    CallFinished,
    CallStarted,
    CommandRan,
    Notice,
    TextArrived,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import Attachment
from ecoshell.models import Delta
from ecoshell.options import Options
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore

EDIT = say("", "edit_file", path="notes.txt", old="two", new="zwei")
CREATE = say("", "write_file", path="new/made.txt", content="made\n")


def request_texts(shell, number=-1):
    """The texts of one request, without the system message."""
    return [message.text for message in shell.requests[number].messages[1:]]


async def test_an_unknown_cost_is_listed_and_set_in_its_session(play):
    async with play([finish("ok")], price=(Decimal(1), Decimal(4)), budget="0.50") as shell:

        def unreported(session):
            account = Account(session, 1, "single", "m", "step")
            hold = shell.ledger.hold(Ask(shell.deps.models.current.price, 1_000, 500, account))
            shell.ledger.settle(hold, None)
            return hold.entry

        mine, other = unreported(shell.session), unreported("another")
        listed = (await shell.command("/cost reconcile")).text
        assert f"/cost reconcile {mine}=0.0031" in listed
        assert "another" not in listed
        for typed in (f"{other}=0.1", "x=1", f"{mine}=lots"):
            with pytest.raises(UsageError):
                await shell.command(f"/cost reconcile {typed}")
        await shell.command(f"/cost reconcile {mine}=0.1")
        assert (await shell.deps.budget.caps())[0].spent == NANO // 10
        assert (await shell.command("/cost reconcile")).text.startswith("The cost of every call")
        assert [entry.id for entry in shell.ledger.unreconciled()] == [other]


async def test_after_a_corrected_cost_the_plan_leaves_no_more_than_the_cap(play, monkeypatch):
    async def hang(request):
        yield Delta("One moment. ")
        await asyncio.Event().wait()

    async with play([], price=(Decimal(1), Decimal(40)), budget="1") as shell:
        monkeypatch.setattr(shell.deps.models.current.model._model, "stream", hang)
        async for event in shell.ask("How many lines has notes.txt?"):
            if isinstance(event, TextArrived):
                await shell.stop()
        (entry,) = shell.ledger.unreconciled()
        stopped = await shell.conversation.planned()
        await shell.command(f"/cost reconcile {entry.id}=0.0075")
        corrected = await shell.conversation.planned()
        stored = [event for _, event in shell.store.events(shell.session)]
    (settled,), (reconciled,) = of(stored, BudgetSettled), of(stored, BudgetReconciled)
    now = reconciled.applied_to(settled)
    assert (now.entry, now.spent_nano, now.estimate_nano) == (entry.id, 7_500_000, None)
    assert (now.estimate, now.seconds) == (settled.estimate, settled.seconds)
    assert stopped.cap < corrected.cap
    assert (stopped.whole, corrected.whole) == (NANO, NANO)


async def test_a_mentioned_file_is_attached_recorded_and_sent(play):
    async with play([finish("3")], registration="all") as shell:
        events = await turn(shell, "How many lines has @notes.txt?")
        assert of(events, TurnStarted)[0].attachments == (
            Attachment("notes.txt", "one\ntwo\nthree\n"),
        )
        assert of(events, TurnStarted)[0].question == "How many lines has @notes.txt?"
        assert request_texts(shell)[0].endswith(
            "How many lines has @notes.txt?\n\nnotes.txt:\n```\none\ntwo\nthree\n```"
        )


async def test_a_paste_is_attached_after_mentioned_files(play):
    async with play([finish("3")], registration="all") as shell:
        paste = Attachment("pasted text 1", "pasted")
        events = [event async for event in shell.ask("See @notes.txt", (paste,))]
        assert [attachment.name for attachment in of(events, TurnStarted)[0].attachments] == [
            "notes.txt",
            "pasted text 1",
        ]


async def test_a_file_that_cannot_be_attached_is_reported(play):
    async with play([finish("3")], registration="all") as shell:
        events = await turn(shell, "See @missing.txt")
        assert "@missing.txt was not attached" in of(events, Notice)[0].text
        assert request_texts(shell)[0].endswith("See @missing.txt")


async def test_mentionable_files_are_listed(play, home):
    async with play([]) as shell:
        (home / "docs").mkdir()
        (home / "docs" / "a.md").write_text("a")
        assert await shell.mentionable() == ["docs/", "docs/a.md", "notes.txt"]


async def test_the_output_of_a_command_is_sent_with_the_next_question(play, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hidden-value")
    async with play([finish("ok")], registration="all") as shell:
        result = await shell.run("cat notes.txt; env | grep -c hidden-value; exit 3")
        await turn(shell, "What was that?")
        assert (result.ok, result.output) == (False, "one\ntwo\nthree\n0\n[exit status 3]")
        assert "I ran a command: cat notes.txt" in request_texts(shell)[0]
        assert request_texts(shell)[0].index("two") < request_texts(shell)[0].index(
            "What was that?"
        )
        stored = [event for _, event in shell.store.events(shell.session)]
        assert of(stored, CommandRan) == [result]


async def test_the_output_of_a_command_has_a_size_limit(play):
    async with play([]) as shell:
        result = await shell.run("yes | head -c 1000000")
        assert result.truncated
        assert len(result.output) < 10_000


async def test_a_stopped_command_is_killed_and_recorded(play, home):
    async with play([finish("ok")], registration="all") as shell:
        os.mkfifo(home / "pipe")
        running = asyncio.ensure_future(shell.run("echo $$ > pipe; sleep 60"))
        pid = int(await asyncio.to_thread((home / "pipe").read_text))
        assert shell.conversation.busy
        await shell.stop()
        result = await running
        assert (result.ok, result.output) == (False, "[stopped]")
        assert result.seconds > 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert (await turn(shell, "And?"))[-1].status == "answered"


async def test_no_command_runs_during_a_turn_or_in_a_read_only_shell(play):
    async with play(
        [say("", "run_command", command="sleep 30")], registration="all", yes=True
    ) as shell:
        async for event in shell.ask("Sleep."):
            if isinstance(event, CallStarted):
                for refused in (shell.run("ls"), shell.command("/undo"), shell.command("/compact")):
                    with pytest.raises(UsageError, match="A turn is running"):
                        await refused
                await shell.stop()
    async with play([], read_only=True) as shell:
        with pytest.raises(UsageError, match="read-only"):
            await shell.run("ls")
        with pytest.raises(UsageError, match="command is empty"):
            async with play([]) as other:
                await other.run("  ")


async def test_undo_restores_files_and_removes_the_turn_from_the_prompt(play, home):
    async with play(
        [CREATE, EDIT, finish("done"), finish("next")], registration="all", yes=True
    ) as shell:
        events = await turn(shell, "Change it.")
        assert "-two\n+zwei" in of(events, CallFinished)[1].changes
        printed = await shell.command("/undo")
        assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"
        assert not (home / "new").exists()
        assert "Restored: notes.txt." in printed.text
        assert "Removed, because the turn created them: new/made.txt." in printed.text
        await turn(shell, "What now?")
        assert not any("Change it." in text for text in request_texts(shell))
        assert of([event for _, event in shell.store.events(shell.session)], TurnUndone) == [
            TurnUndone(1, ("new/made.txt", "notes.txt"), removed=("new/made.txt",))
        ]


async def test_undo_lists_what_it_cannot_restore(play, home):
    run = say("", "run_command", command="echo more >> notes.txt")
    usage = {"input": 1000, "output": 100}
    lines = [CREATE, run, finish("done", usage=usage)]
    async with play(lines, registration="all", yes=True, price=(Decimal(1), Decimal(4))) as shell:
        end = (await turn(shell))[-1]
        (home / "new" / "made.txt").write_text("mine now")
        printed = await shell.command("/undo")
    assert (home / "new" / "made.txt").read_text() == "mine now"
    assert (
        "Not restored, because they changed later, cannot be written, or have no copy: new/made.txt."
        in printed.text
    )
    assert "-mine now" in printed.text
    assert "/undo new/made.txt" in printed.text
    assert "Changes by run_command cannot be restored." in printed.text
    assert end.spent_nano > 0
    assert "Its cost of $0.00" in printed.text


async def test_a_file_changed_since_the_turn_is_restored_on_request(play, home):
    async with play([EDIT, finish("done")], registration="all", yes=True) as shell:
        await turn(shell)
        (home / "notes.txt").write_text("mine\n")
        assert "-mine" in (await shell.command("/undo")).text
        assert (await shell.command("/undo notes.txt")).text == "Restored: notes.txt."
        with pytest.raises(UsageError, match="has not skipped"):
            await shell.command("/undo notes.txt")
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_created_file_that_changed_since_the_turn_is_removed_on_request(play, home):
    async with play([CREATE, finish("done")], registration="all", yes=True) as shell:
        await turn(shell)
        (home / "new" / "made.txt").write_text("mine now")
        await shell.command("/undo")
        assert (await shell.command("/undo new/made.txt")).text == "Removed: new/made.txt."
    assert not (home / "new").exists()


async def test_a_file_that_cannot_be_written_is_restored_later(play, home):
    async with play([EDIT, finish("done")], registration="all", yes=True) as shell:
        await turn(shell)
        (home / "notes.txt").rename(home / "mine.txt")
        (home / "notes.txt").mkdir()
        assert "cannot be written" in (await shell.command("/undo")).text
        (home / "notes.txt").rmdir()
        assert (await shell.command("/undo notes.txt")).text == "Restored: notes.txt."
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_session_is_open_in_one_shell_at_a_time(play):
    elsewhere = "open in another ecoshell. Close it there first, or start a new session."
    async with play([finish("1"), finish("2")]) as first:
        await turn(first)
        session = first.session
        with pytest.raises(UsageError, match=elsewhere):
            async with play([], resume=session):
                pass
        async with play([finish("3")]) as second:
            with pytest.raises(UsageError, match=elsewhere):
                await second.command(f"/resume {session}")
            with pytest.raises(UsageError, match="open in another ecoshell"):
                await second.archive.delete(session)
            assert (await turn(second))[-1].answer == "3"
        await first.command("/new")
        async with play([finish("4")], resume=session) as second:
            assert (await turn(second))[-1].turn == 2
            with pytest.raises(UsageError, match=elsewhere):
                await first.command(f"/resume {session}")
        await first.command(f"/resume {session}")
        await first.open(session)
        assert first.conversation.turn == 2


async def test_an_open_session_can_be_displayed(play):
    async with play([finish("1")]) as shell:
        await turn(shell)
        view = await assemble_view(Options(resume=shell.session))
        assert any(isinstance(event, TurnFinished) for event in view.past)
        await view.aclose()


async def test_undo_reverts_turn_by_turn(play, home):
    write = [say("", "write_file", path="a.txt", content=text) for text in ("1", "2")]
    async with play(
        [write[0], finish("1"), write[1], finish("2"), finish("3")], registration="all", yes=True
    ) as shell:
        await turn(shell, "first")
        await turn(shell, "second")
        await shell.command("/undo")
        assert (home / "a.txt").read_text() == "1"
        await shell.command("/undo")
        assert not (home / "a.txt").exists()
        with pytest.raises(UsageError, match="no turn"):
            await shell.command("/undo")
        assert of(await turn(shell, "third"), TurnStarted)[0].turn == 3


async def test_undo_keeps_registrations_and_sends_the_schema_again(play):
    lines = [
        register("count_text"),
        finish("done"),
        say("", "count_text", path="notes.txt"),
        finish("3"),
    ]
    async with play(lines, registration="names", presentation="stable") as shell:
        await turn(shell)
        printed = await shell.command("/undo")
        events = await turn(shell, "Count.")
        schema = shell.conversation.known("count_text").as_text()
        assert "Registered tools stay registered: count_text." in printed.text
        assert of(events, CallFinished)[0].ok
        assert sum(text.count(schema) for text in request_texts(shell)) == 1


async def test_undo_works_in_a_resumed_session(play, home):
    async with play([EDIT, finish("done")], registration="all", yes=True) as shell:
        await turn(shell)
        session = shell.session
    async with play([], resume=session) as shell:
        await shell.command("/undo")
        assert shell.conversation.memory.messages == ()
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


def kill_after_edit(home, script):
    """Run a process that edits a file and is killed during the next call."""
    lines = [EDIT, say("", "run_command", command="sleep 5")]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = [
        "--model",
        f"script:{script}",
        "--workspace",
        str(home),
        "--registration",
        "all",
        "--yes",
    ]
    command = [sys.executable, "-m", "ecoshell", "ask", "Change it.", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if '"call_started"' in line and "run_command" in line:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.stdout.read()


async def test_undo_reverts_the_turn_of_a_killed_process(play, home, tmp_path):
    await asyncio.to_thread(kill_after_edit, home, tmp_path / "killed.jsonl")
    assert "zwei" in (home / "notes.txt").read_text()
    store = SessionStore(user_paths().sessions_file)
    session = store.list(1)[0].id
    store.close()
    async with play([], resume=session) as shell:
        printed = await shell.command("/undo")
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert "Changes by run_command cannot be restored." in printed.text
    assert "Its cost, which is unknown, stays spent." in printed.text


async def test_a_file_too_large_to_restore_is_reported(play, home):
    async with play([EDIT, finish("done")], registration="all", yes=True) as shell:
        shell.deps.workspace.undo.file_bytes = 3
        events = await turn(shell)
        assert "/undo will not restore notes.txt" in of(events, Notice)[0].text


async def test_a_read_only_shell_cannot_undo(play, home):
    async with play([EDIT, finish("done")], registration="all", yes=True) as shell:
        await turn(shell)
        session = shell.session
    async with play([], resume=session, read_only=True) as shell:
        with pytest.raises(UsageError, match="read-only"):
            await shell.command("/undo")
    assert "zwei" in (home / "notes.txt").read_text()


async def test_retry_reverts_the_turn_and_sends_the_same_question_and_attachments(play, home):
    async with play([EDIT, finish("bad"), finish("good")], registration="all", yes=True) as shell:
        paste = Attachment("pasted text 1", "pasted")
        first = [event async for event in shell.ask("Fix @notes.txt", (paste,))]
        printed = await shell.command("/retry")
        assert (printed.effect, printed.value) == ("ask", "Fix @notes.txt")
        assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"
        (home / "notes.txt").write_text("changed meanwhile")
        second = [event async for event in shell.ask(printed.value, printed.attachments)]
        assert of(second, TurnStarted)[0].attachments == of(first, TurnStarted)[0].attachments
        assert request_texts(shell, -1)[0] == request_texts(shell, 0)[0]


async def test_copy_returns_the_last_or_an_earlier_answer(play):
    async with play([finish("first"), finish("second")], registration="all") as shell:
        with pytest.raises(UsageError, match="0 answers"):
            await shell.command("/copy")
        await turn(shell)
        await turn(shell)
        assert (await shell.command("/copy")).value == "second"
        assert (await shell.command("/copy 2")).value == "first"
        for wrong in ("/copy 0", "/copy x", "/copy 3"):
            with pytest.raises(UsageError) as refused:
                await shell.command(wrong)
            assert refused.value.fix in (
                "N counts from the last answer.",
                "Use /copy, or /copy 2 for an earlier answer.",
            )


async def test_a_new_session_ends_the_running_turn_and_keeps_its_events(play):
    async with play(
        [say("", "run_command", command="sleep 30")], registration="all", yes=True
    ) as shell:
        old, received = shell.session, []
        async for event in shell.ask("Sleep."):
            received.append(event)
            if isinstance(event, CallStarted):
                await shell.command("/new")
        stored = [event for _, event in shell.store.events(old)]
        assert isinstance(received[-1], CallStarted)
        assert isinstance(stored[-1], TurnFinished)
        assert stored[-1].status == "interrupted"
        assert shell.session != old
        assert not shell.conversation.busy


async def test_resuming_the_session_during_its_own_turn_ends_that_turn(play):
    async with play(
        [say("", "run_command", command="sleep 30")], registration="all", yes=True
    ) as shell:
        async for event in shell.ask("Sleep."):
            if isinstance(event, CallStarted):
                await shell.command(f"/resume {shell.session}")
        assert isinstance(shell.past[-2], TurnFinished)
        assert shell.conversation.memory.messages[-1].text == "[interrupted]"


async def test_concurrent_commands_keep_their_order(play):
    async with play([]) as shell:
        await asyncio.gather(*(shell.command(f"/budget {number}.00") for number in range(1, 9)))
        assert (await shell.deps.budget.caps())[0].limit == 8_000_000_000


async def test_the_session_list_shows_the_model_used_last(play, tmp_path):
    async with play([finish("one")]) as shell:
        await turn(shell)
        other = tmp_path / "other.jsonl"
        other.write_text(json.dumps(finish("two")) + "\n")
        await shell.command(f"/model script:{other}")
        await turn(shell)
        assert shell.store.info(shell.session).model == f"script:{other}"
        assert f"script:{other}" in (await shell.command("/sessions")).text


async def test_a_deleted_session_leaves_no_copies(play, home):
    async with play([EDIT, finish("done")], registration="all", yes=True) as shell:
        await turn(shell)
        old = shell.session
        assert (user_paths().undo_folder / old).exists()
        await shell.command("/new")
        await shell.archive.delete(old)
        assert not (user_paths().undo_folder / old).exists()
