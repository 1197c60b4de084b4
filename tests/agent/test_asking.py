"""Approval requests of a turn: their reasons, edited arguments, and calls that the budget does not cover."""

import asyncio
import sqlite3
import time

import pytest
from agent_play import finish, of, register, say, turn

from ecoshell.agent import Approval, CostChoice, LimitChoice
from ecoshell.budget import Amount, amount_text
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalGiven, ApprovalWanted, CallFinished, CallStarted, PlanChanged, TurnFinished
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore
from ecoshell.tools.function import FunctionTool

WRITE = say("The second line is wanted in capitals.", "write_file", path="notes.txt", content="one\nTWO\nthree\n")
PRICE_NANO = 2_000_000


class Approves:
    """A user who answers approval requests with these words in turn."""

    def __init__(self, *words):
        self.words = [word if isinstance(word, Approval) else Approval(word) for word in words]
        self.asked = []

    async def approve(self, wanted):
        self.asked.append(wanted)
        return self.words.pop(0)

    async def at_limit(self, hit):
        return LimitChoice("answer")

    async def at_cost(self, wanted):
        return CostChoice("go")


def priced(shell, function, **more):
    """Put a tool that costs something in the place of write_file."""
    tool = FunctionTool(function, effects=more.pop("effects", ()), name="write_file", price_nano=PRICE_NANO, **more)
    shell.deps.catalog._tools["write_file"] = tool


async def test_a_person_sees_why_and_what_a_call_would_change_before_it_does(play, home):
    user = Approves("no")
    async with play([register("write_file"), WRITE, finish("no")], registration="names", user=user) as shell:
        events = await turn(shell)
    asked = user.asked[0]
    assert asked.rationale == "The second line is wanted in capitals."
    assert asked.effects == ("read", "write")
    assert "-two\n+TWO" in asked.changes
    assert of(events, ApprovalWanted) == [asked]
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_an_edit_is_previewed_too(play):
    edit = say("", "edit_file", path="notes.txt", old="two", new="TWO")
    user = Approves("no")
    async with play([edit, finish("no")], registration="all", user=user) as shell:
        await turn(shell)
    assert "-two\n+TWO" in user.asked[0].changes


async def test_changed_arguments_run_and_the_model_is_told(play, home):
    user = Approves(Approval("once", {"path": "other.txt", "content": "mine\n"}))
    lines = [register("write_file"), WRITE, finish("done")]
    async with play(lines, registration="names", presentation="grow", user=user) as shell:
        events = await turn(shell)
        seen = [message for message in shell.requests[-1].messages if message.speaker == "tool"][-1]
    ended = of(events, CallFinished)[-1]
    assert (home / "other.txt").read_text() == "mine\n"
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert ended.observation.startswith('The person changed the arguments to path="other.txt", content="mine\\n".\n')
    assert seen.text == ended.observation
    assert ended.id == of(events, CallStarted)[-1].id
    assert of(events, ApprovalGiven)[0].arguments == {"path": "other.txt", "content": "mine\n"}


async def test_a_model_is_told_what_a_person_wants_instead_of_a_call(play, home):
    user = Approves(Approval("no", instead="Append to other.txt."))
    async with play([WRITE, finish("no")], registration="all", user=user) as shell:
        events = await turn(shell)
        seen = [message for message in shell.requests[-1].messages if message.speaker == "tool"][-1]
    assert seen.text == "write_file was not run: the person said no. Do this instead: Append to other.txt."
    assert of(events, ApprovalGiven)[0].instead == "Append to other.txt."
    assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_call_that_is_stopped_before_anybody_allowed_it_did_not_run_and_changed_nothing(play):
    class Waits(Approves):
        async def approve(self, wanted):
            self.stopping = asyncio.ensure_future(shell.stop())
            await asyncio.Event().wait()

    async with play([WRITE, finish("no")], registration="all", user=Waits()) as shell:
        events = await turn(shell)
        assert of(events, CallFinished)[-1].refused == "stopped"
        assert "may have changed" not in (await shell.command("/undo")).text


async def test_a_resumed_session_tells_models_of_a_changed_call_as_the_running_one_did(play):
    user = Approves(Approval("once", {"path": "other.txt", "content": "mine\n"}))
    lines = [register("write_file"), WRITE, finish("done")]
    async with play(lines, registration="names", presentation="grow", user=user) as shell:
        await turn(shell)
        before = shell.conversation.memory.messages
        await shell.open(shell.session)
        again = shell.conversation.memory.messages
    assert any("The person changed the arguments" in message.text for message in before)
    assert again == before


async def test_a_rule_denies_a_call_that_a_person_has_changed_into_a_forbidden_one(play, tmp_path):
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[approval]\ndeny = ["write_file:secret*"]\n')
    user = Approves(Approval("once", {"path": "secret.txt", "content": "x"}))
    async with play([WRITE, finish("no")], registration="all", user=user) as shell:
        events = await turn(shell)
    ended = of(events, CallFinished)[-1]
    assert (ended.ok, ended.refused) == (False, "unapproved")
    assert "a rule in the settings forbids it" in ended.observation
    assert of(events, ApprovalGiven)[0].by == "rule"


async def test_a_call_shows_what_its_tool_cost_and_the_turn_counts_it(play):
    async with play([WRITE, finish("done")], registration="all", budget="1.00") as shell:
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert of(events, CallFinished)[-1].spent_nano == PRICE_NANO
    assert of(events, TurnFinished)[0].spent_nano == PRICE_NANO
    assert caps[0].spent == PRICE_NANO


async def test_a_tool_that_was_not_approved_is_not_paid(play):
    user = Approves("no")
    async with play([WRITE, finish("done")], registration="all", budget="1.00", user=user) as shell:
        priced(shell, lambda path, content: "written", effects=("write",))
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert user.asked[0].price_nano == PRICE_NANO
    assert of(events, CallFinished)[-1].spent_nano == 0
    assert caps[0].spent == 0


async def test_a_tool_that_no_cap_has_room_for_is_refused_before_anybody_is_asked(play):
    user = Approves()
    async with play([WRITE, finish("done")], registration="all", budget="0.001", user=user) as shell:
        shell.deps.settings.plan = "off"  # a plan would forbid it before
        priced(shell, lambda path, content: "written", effects=("write",))
        events = await turn(shell)
    ended = of(events, CallFinished)[-1]
    assert (ended.refused, ended.spent_nano, user.asked) == ("unaffordable", 0, [])


async def test_a_cap_that_is_used_up_while_a_person_thinks_is_kept_all_the_same(play):
    class Spends(Approves):
        async def approve(self, wanted):
            await shell.deps.budget.set_cap("session", Amount(1, "usd"))
            return Approval("once")

    async with play([WRITE, finish("done")], registration="all", budget="1.00", user=Spends()) as shell:
        priced(shell, lambda path, content: "written", effects=("write",))
        events = await turn(shell)
    ended = of(events, CallFinished)[-1]
    assert (ended.refused, ended.spent_nano) == ("unaffordable", 0)


async def test_a_call_that_is_stopped_shows_what_was_paid_for_it(play):
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


async def test_a_call_that_is_stopped_while_it_is_paid_for_shows_what_was_paid(play, monkeypatch):
    async with play([WRITE, finish("done")], registration="all", budget="1.00") as shell:
        priced(shell, lambda path, content: "written", effects=("read",))
        ledger, loop, paying = shell.deps.budget.gate.ledger, asyncio.get_running_loop(), asyncio.Event()
        pay = ledger.charge_tool

        def slowly(*account):
            loop.call_soon_threadsafe(paying.set)
            time.sleep(0.2)
            return pay(*account)

        monkeypatch.setattr(ledger, "charge_tool", slowly)
        asking = asyncio.ensure_future(turn(shell))
        await asyncio.wait_for(paying.wait(), 600)
        await shell.stop()
        events = await asking
        spent = ledger.session_row(shell.session).spent_nano
    ended = of(events, CallFinished)[-1]
    assert (ended.ok, ended.spent_nano, spent) == (False, PRICE_NANO, PRICE_NANO)


async def test_a_question_is_asked_at_once_though_the_sessions_are_locked(play, monkeypatch):
    monkeypatch.setattr(
        "ecoshell.assembly.shell.open_store", lambda paths: SessionStore(paths.sessions_file, busy_seconds=120)
    )
    asked = asyncio.Event()

    class Waits(Approves):
        async def approve(self, wanted):
            asked.set()
            await asyncio.Event().wait()

    async with play([WRITE], registration="all", user=Waits()) as shell:
        events = shell.ask("Write it.")
        await anext(events)
        lock = sqlite3.connect(user_paths().sessions_file)
        lock.execute("BEGIN IMMEDIATE")
        reading = asyncio.ensure_future(_drained(events))
        await asyncio.wait_for(asked.wait(), 600)
        waits_for_the_store = not reading.done()
        lock.close()
        await shell.stop()
        await reading
    assert waits_for_the_store


async def _drained(events):
    return [event async for event in events]


class Decides(Approves):
    """A user who makes these choices at limits."""

    def __init__(self, *choices):
        super().__init__()
        self.choices = list(choices)
        self.limits = []

    async def at_limit(self, hit):
        self.limits.append(hit)
        return self.choices.pop(0)


async def test_a_tool_that_a_cap_has_too_little_for_is_asked_about_and_runs_once_there_is_room(play):
    user = Decides(LimitChoice("raise", "50c"))
    async with play([WRITE, finish("done")], registration="all", budget="0.001", user=user) as shell:
        shell.deps.settings.plan = "off"
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    (hit,) = user.limits
    assert (hit.need, hit.left, of(events, CallFinished)[-1].observation) == (PRICE_NANO, 1_000_000, "written")
    assert (caps[0].limit, caps[0].spent, of(events, TurnFinished)[0].answer) == (500_000_000, PRICE_NANO, "done")


async def test_a_tool_the_plan_refuses_for_money_is_asked_about_in_the_plan_s_own_figures(play):
    user = Decides(LimitChoice("raise", "50c"))
    lines = [register("write_file"), WRITE, finish("done")]
    async with play(lines, registration="names", budget="0.001", user=user) as shell:
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
    (hit,), first = user.limits, of(events, PlanChanged)[0]
    assert f"{amount_text(first.budget, 'usd')} is for tools" in hit.message
    assert f"has {amount_text(hit.left, 'usd')} left" in hit.message
    assert (first.budget, hit.left < hit.need <= hit.enough) == (1_000_000, True)
    assert of(events, CallFinished)[-1].observation == "written"


async def test_who_would_rather_have_the_answer_gets_it_and_the_tool_does_not_run(play):
    user = Decides(LimitChoice("answer"))
    lines = [WRITE, say("from what there is")]
    async with play(lines, registration="all", budget="0.001", user=user) as shell:
        priced(shell, lambda path, content: "written")
        events = await turn(shell)
    assert [one.refused for one in of(events, CallFinished)] == ["forbidden"]
    assert len(user.limits) == 1
    ended = of(events, TurnFinished)[0]
    assert (ended.status, ended.answer) == ("limit", "from what there is")


@pytest.mark.parametrize(("budget", "spent", "refused"), [("1", 2_000_000, ""), ("0.001", 0, "unaffordable")])
async def test_a_tool_that_the_settings_give_a_price_is_paid_for_when_it_runs(play, budget, spent, refused):
    file = user_paths().settings_file
    file.parent.mkdir(parents=True)
    file.write_text('[plan]\nmode = "off"\n[tools.prices]\ncount_text = "0.002"\n')
    lines = [say("", "count_text", path="notes.txt"), finish("3 lines")]
    async with play(lines, registration="all", budget=budget) as shell:
        (ended,) = of(await turn(shell), CallFinished)
        assert (ended.spent_nano, ended.refused) == (spent, refused)
        assert (await shell.status()).spent_nano == spent


async def test_a_price_for_a_tool_that_is_not_there_is_refused(play):
    file = user_paths().settings_file
    file.parent.mkdir(parents=True)
    file.write_text('[tools.prices]\ncount_txt = "0.002"\n')
    with pytest.raises(UsageError, match="count_txt"):
        async with play([]):
            pass
