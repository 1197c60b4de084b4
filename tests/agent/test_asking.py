"""Approval requests of a turn: their reasons, edited arguments, and calls that the budget does not cover."""

import asyncio
import sqlite3
import time

import pytest
from agent_play import User, finish, of, register, say, turn

from ecoshell.agent import Approval, LimitChoice
from ecoshell.budget import Amount, amount_text
from ecoshell.errors import UsageError
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    CallFinished,
    CallStarted,
    PlanChanged,
    TurnFinished,
)
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore
from ecoshell.tools.function import FunctionTool

WRITE = say(
    "The second line is wanted in capitals.",
    "write_file",
    path="notes.txt",
    content="one\nTWO\nthree\n",
)
PRICE_NANO = 2_000_000


def priced(shell, function, **more):
    """Replace write_file by a tool with a price."""
    tool = FunctionTool(
        function, effects=more.pop("effects", ()), name="write_file", price_nano=PRICE_NANO, **more
    )
    shell.deps.catalog._tools["write_file"] = tool


async def test_an_approval_request_shows_the_rationale_and_the_changes(play, home):
    user = User("no")
    async with play(
        [register("write_file"), WRITE, finish("no")], registration="names", user=user
    ) as shell:
        events = await turn(shell)
    request = user.asked[0]
    assert request.rationale == "The second line is wanted in capitals."
    assert request.effects == ("read", "write")
    assert "-two\n+TWO" in request.changes
    assert of(events, ApprovalWanted) == [request]
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_an_edit_is_previewed(play):
    edit = say("", "edit_file", path="notes.txt", old="two", new="TWO")
    user = User("no")
    async with play([edit, finish("no")], registration="all", user=user) as shell:
        await turn(shell)
    assert "-two\n+TWO" in user.asked[0].changes


async def test_edited_arguments_run_and_the_model_is_informed(play, home):
    user = User(Approval("once", {"path": "other.txt", "content": "mine\n"}))
    lines = [register("write_file"), WRITE, finish("done")]
    async with play(lines, registration="names", presentation="grow", user=user) as shell:
        events = await turn(shell)
        result = [message for message in shell.requests[-1].messages if message.speaker == "tool"][
            -1
        ]
    ended = of(events, CallFinished)[-1]
    assert (home / "other.txt").read_text() == "mine\n"
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert ended.observation.startswith(
        'The user changed the arguments to path="other.txt", content="mine\\n".\n'
    )
    assert result.text == ended.observation
    assert ended.id == of(events, CallStarted)[-1].id
    assert of(events, ApprovalGiven)[0].arguments == {"path": "other.txt", "content": "mine\n"}


async def test_the_model_gets_the_users_instruction_in_place_of_a_refused_call(play, home):
    user = User(Approval("no", instead="Append to other.txt."))
    async with play([WRITE, finish("no")], registration="all", user=user) as shell:
        events = await turn(shell)
        result = [message for message in shell.requests[-1].messages if message.speaker == "tool"][
            -1
        ]
    assert (
        result.text
        == "write_file was not run: the user said no. Do this instead: Append to other.txt."
    )
    assert of(events, ApprovalGiven)[0].instead == "Append to other.txt."
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_call_stopped_during_its_approval_did_not_run(play):
    class Waits(User):
        async def approve(self, request):
            self.stopping = asyncio.ensure_future(shell.stop())
            await asyncio.Event().wait()

    async with play([WRITE, finish("no")], registration="all", user=Waits()) as shell:
        events = await turn(shell)
        assert of(events, CallFinished)[-1].refused == "stopped"
        assert "cannot be restored" not in (await shell.command("/undo")).text


async def test_a_resumed_session_contains_the_note_about_edited_arguments(play):
    user = User(Approval("once", {"path": "other.txt", "content": "mine\n"}))
    lines = [register("write_file"), WRITE, finish("done")]
    async with play(lines, registration="names", presentation="grow", user=user) as shell:
        await turn(shell)
        live = shell.conversation.memory.messages
        await shell.open(shell.session)
        again = shell.conversation.memory.messages
    assert any("The user changed the arguments" in message.text for message in live)
    assert again == live


async def test_a_deny_rule_applies_to_a_call_the_user_edited(play, tmp_path):
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[approval]\ndeny = ["write_file:secret*"]\n')
    user = User(Approval("once", {"path": "secret.txt", "content": "x"}))
    async with play([WRITE, finish("no")], registration="all", user=user) as shell:
        events = await turn(shell)
    ended = of(events, CallFinished)[-1]
    assert (ended.ok, ended.refused) == (False, "unapproved")
    assert "a rule in the settings forbids it" in ended.observation
    assert of(events, ApprovalGiven)[0].by == "rule"


async def test_the_price_of_a_tool_appears_on_the_call_and_the_turn(play):
    async with play([WRITE, finish("done")], registration="all", budget="1.00") as shell:
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, CallFinished)[-1].spent_nano == PRICE_NANO
    assert of(events, TurnFinished)[0].spent_nano == PRICE_NANO
    assert caps[0].spent == PRICE_NANO


async def test_a_refused_tool_costs_nothing(play):
    user = User("no")
    async with play([WRITE, finish("done")], registration="all", budget="1.00", user=user) as shell:
        priced(shell, lambda path, content: "written", effects=("write",))
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert user.asked[0].price_nano == PRICE_NANO
    assert of(events, CallFinished)[-1].spent_nano == 0
    assert caps[0].spent == 0


async def test_a_tool_over_the_cap_is_refused_before_the_approval_request(play):
    user = User(limit=LimitChoice("answer"))
    async with play(
        [WRITE, finish("done")], registration="all", budget="0.001", user=user
    ) as shell:
        shell.deps.settings.plan = "off"  # the plan would refuse it earlier
        priced(shell, lambda path, content: "written", effects=("write",))
        events = await turn(shell)
    ended = of(events, CallFinished)[-1]
    assert (ended.refused, ended.spent_nano) == ("unaffordable", 0)
    assert of(user.asked, ApprovalWanted) == []


async def test_a_cap_lowered_during_the_approval_request_still_holds(play):
    class Spends(User):
        async def approve(self, request):
            await shell.deps.budget.set_cap("session", Amount(1, "usd"))
            return Approval("once")

    async with play(
        [WRITE, finish("done")],
        registration="all",
        budget="1.00",
        user=Spends(limit=LimitChoice("answer")),
    ) as shell:
        priced(shell, lambda path, content: "written", effects=("write",))
        events = await turn(shell)
    ended = of(events, CallFinished)[-1]
    assert (ended.refused, ended.spent_nano) == ("unaffordable", 0)


async def test_a_stopped_call_shows_its_cost(play):
    began = asyncio.Event()

    async def endless(path: str, content: str) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    async with play([WRITE, finish("done")], registration="all", budget="1.00") as shell:
        priced(shell, endless)
        asking = asyncio.ensure_future(turn(shell))
        await asyncio.wait_for(began.wait(), 600)
        await shell.stop()
        events = await asking
    ended = of(events, CallFinished)[-1]
    assert (ended.ok, ended.spent_nano) == (False, PRICE_NANO)
    assert events[-1].spent_nano == PRICE_NANO


async def test_a_call_stopped_during_its_payment_shows_its_cost(play, monkeypatch):
    async with play([WRITE, finish("done")], registration="all", budget="1.00") as shell:
        priced(shell, lambda path, content: "written", effects=("read",))
        ledger, loop, paying = (
            shell.deps.budget.gate.ledger,
            asyncio.get_running_loop(),
            asyncio.Event(),
        )
        pay = ledger.start_tool

        def slowly(*account):
            loop.call_soon_threadsafe(paying.set)
            time.sleep(0.2)
            return pay(*account)

        monkeypatch.setattr(ledger, "start_tool", slowly)
        asking = asyncio.ensure_future(turn(shell))
        await asyncio.wait_for(paying.wait(), 600)
        await shell.stop()
        events = await asking
        spent = ledger.session_row(shell.session).spent_nano
    ended = of(events, CallFinished)[-1]
    assert (ended.ok, ended.spent_nano, spent) == (False, PRICE_NANO, PRICE_NANO)


async def test_an_approval_request_does_not_wait_for_a_locked_session_store(play, monkeypatch):
    monkeypatch.setattr(
        "ecoshell.assembly.shell.open_store",
        lambda paths: SessionStore(paths.sessions_file, busy_seconds=120),
    )
    requested = asyncio.Event()

    class Waits(User):
        async def approve(self, request):
            requested.set()
            await asyncio.Event().wait()

    async with play([WRITE], registration="all", user=Waits()) as shell:
        events = shell.ask("Write it.")
        await anext(events)
        lock = sqlite3.connect(user_paths().sessions_file)
        lock.execute("BEGIN IMMEDIATE")
        reading = asyncio.ensure_future(_drained(events))
        await asyncio.wait_for(requested.wait(), 600)
        waits_for_the_store = not reading.done()
        lock.close()
        await shell.stop()
        await reading
    assert waits_for_the_store


async def _drained(events):
    return [event async for event in events]


async def test_a_tool_over_the_cap_runs_after_the_user_raises_the_cap(play):
    user = User(LimitChoice("raise", "50c"))
    async with play(
        [WRITE, finish("done")], registration="all", budget="0.001", user=user
    ) as shell:
        shell.deps.settings.plan = "off"
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    (hit,) = user.asked
    assert (hit.need, hit.left, of(events, CallFinished)[-1].observation) == (
        PRICE_NANO,
        1_000_000,
        "written",
    )
    assert (caps[0].limit, caps[0].spent, of(events, TurnFinished)[0].answer) == (
        500_000_000,
        PRICE_NANO,
        "done",
    )


async def test_a_tool_the_plan_cannot_afford_is_reported_with_the_figures_of_the_plan(play):
    user = User(LimitChoice("raise", "50c"))
    lines = [register("write_file"), WRITE, finish("done")]
    async with play(lines, registration="names", budget="0.001", user=user) as shell:
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
    (hit,), first = user.asked, of(events, PlanChanged)[0]
    assert f"{amount_text(first.budget, 'usd')} is for tools" in hit.message
    assert f"has {amount_text(hit.left, 'usd')} left" in hit.message
    assert (first.budget, hit.left < hit.need <= hit.enough) == (1_000_000, True)
    assert of(events, CallFinished)[-1].observation == "written"


async def test_a_user_who_chooses_the_answer_at_a_limit_gets_it_without_the_tool(play):
    user = User(LimitChoice("answer"))
    lines = [WRITE, say("from the results so far")]
    async with play(lines, registration="all", budget="0.001", user=user) as shell:
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
    assert [event.refused for event in of(events, CallFinished)] == ["forbidden"]
    assert len(user.asked) == 1
    ended = of(events, TurnFinished)[0]
    assert (ended.status, ended.answer) == ("limit", "from the results so far")


@pytest.mark.parametrize(
    ("budget", "spent", "refused"), [("1", 2_000_000, ""), ("0.001", 0, "unaffordable")]
)
async def test_a_tool_priced_in_the_settings_is_paid_when_it_runs(play, budget, spent, refused):
    file = user_paths().settings_file
    file.parent.mkdir(parents=True)
    file.write_text('[plan]\nmode = "off"\n[tools.prices]\ncount_text = "0.002"\n')
    lines = [say("", "count_text", path="notes.txt"), finish("3 lines")]
    async with play(lines, registration="all", budget=budget) as shell:
        (ended,) = of(await turn(shell), CallFinished)
        assert (ended.spent_nano, ended.refused) == (spent, refused)
        assert (await shell.status()).spent_nano == spent


async def test_a_price_for_an_unknown_tool_is_rejected(play):
    file = user_paths().settings_file
    file.parent.mkdir(parents=True)
    file.write_text('[tools.prices]\ncount_txt = "0.002"\n')
    with pytest.raises(UsageError, match="count_txt"):
        async with play([]):
            pass
