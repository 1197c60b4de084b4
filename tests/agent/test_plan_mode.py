"""Plan mode runs only what reads, ends in a written plan with a quote, and carries it out under that quote."""

from decimal import Decimal

import pytest
from agent_play import User, finish, is_replayed, of, say, turn

from ecoshell.agent.plan_mode import INSTRUCTION, written
from ecoshell.errors import UsageError
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    Bill,
    CallFinished,
    PlanWritten,
    Quote,
    TurnFinished,
    TurnStarted,
)

PRICE = (Decimal(1), Decimal(4))
PLAN = "1. Write a.txt.\n2. Run the tests."
WRITE = say("", "write_file", path="a.txt", content="new\n")
RUN = say("", "run_command", command="touch ran")
READ = say("", "read_file", path="notes.txt")
USAGE = {"input": 1000, "output": 100}


async def accept(shell, argument=""):
    printed = await shell.command(f"/plan accept {argument}")
    return await turn(shell, printed.value)


async def test_only_tools_that_read_run_and_the_plan_is_quoted(play, home):
    lines = [READ, WRITE, RUN, say("", "fetch_url", url="http://localhost:1"), finish(PLAN)]
    async with play(lines, approval_mode="plan", yes=True, price=PRICE) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
        assert INSTRUCTION in shell.requests[0].messages[1].text
    assert [event.refused for event in of(events, CallFinished)] == [
        "",
        "unapproved",
        "unapproved",
        "",
    ]
    assert "plan mode runs only tools that read" in of(events, CallFinished)[1].observation
    assert [event.by for event in of(events, ApprovalGiven)] == ["plan mode"] * 2
    assert of(events, PlanWritten) == [PlanWritten(PLAN, 2)]
    (quote,) = of(events, Quote)
    assert (quote.kind, quote.nodes) == ("plan", 3)
    assert 0 < quote.low_usd < quote.expected_usd < quote.high_usd
    assert sorted(file.name for file in home.iterdir()) == ["notes.txt"]


async def test_network_needs_no_answer_without_a_user(play):
    async with play(
        [say("", "fetch_url", url="http://localhost:1"), finish(PLAN)], approval_mode="plan"
    ) as shell:
        events = await turn(shell)
    assert [event.by for event in of(events, ApprovalGiven)] == ["plan mode"]


async def test_an_accepted_plan_runs_under_its_quote_and_the_bill_follows(play, home):
    lines = [finish(PLAN), WRITE, finish("Done."), finish("Later.")]
    user = User(approval="once")
    async with play(lines, user=user, price=PRICE, budget="1.00") as shell:
        await shell.command("/plan mode")
        (quote,) = of(await turn(shell), Quote)
        printed = await shell.command("/plan accept")
        assert printed.effect == "ask"
        events = []
        async for event in shell.ask(printed.value):
            if isinstance(event, TurnStarted):
                caps = await shell.deps.budget.caps()
            events.append(event)
        (cap,) = (cap for cap in caps if cap.scope == "turn")
        assert cap.limit >= quote.high_nano
        assert not [cap for cap in await shell.deps.budget.caps() if cap.scope == "turn"]
        assert (
            of(events, TurnStarted)[0].question == f"Carry out your plan, step by step:\n\n{PLAN}"
        )
        (bill,) = of(events, Bill)
        assert (bill.id, bill.kind) == (quote.id, "plan")
        assert float(bill.spent_usd) == pytest.approx(of(events, TurnFinished)[0].spent_nano / 1e9)
        assert not of(await turn(shell, "More?"), Bill)
    assert (home / "a.txt").read_text() == "new\n"
    assert [type(question) for question in user.asked] == [ApprovalWanted]


@pytest.mark.parametrize("changed", ["", "1. Only write a.txt."])
async def test_retry_carries_a_plan_out_under_its_quote_again(play, changed):
    async with play([finish(PLAN), *[finish("Done.")] * 3], price=PRICE, budget="1.00") as shell:
        await shell.command("/plan mode")
        assert of(await turn(shell), Quote)
        await accept(shell, changed)
        question = shell.conversation.memory.last_turn.question
        for mode, capped in (("edits", True), ("plan", False)):
            shell.set_approval_mode(mode)
            printed, scopes = await shell.command("/retry"), []
            async for event in shell.ask(printed.value):
                if isinstance(event, TurnStarted):
                    scopes = [cap.scope for cap in await shell.deps.budget.caps()]
                    assert event.question == question
            assert ("turn" in scopes, shell.approval_mode) == (capped, mode)


async def test_a_changed_plan_replaces_the_written_one(play):
    async with play([finish(PLAN), finish("Done.")], approval_mode="plan") as shell:
        await turn(shell)
        events = await accept(shell, "1. Only write a.txt.")
        assert of(events, TurnStarted)[0].question.endswith("\n\n1. Only write a.txt.")
        assert shell.deps.settings.approval_mode == "ask"


async def test_edits_inside_the_workspace_run_without_asking_but_nothing_else(play, home):
    lines = [
        finish(PLAN),
        WRITE,
        say("", "write_file", path="notes.txt", content="one\n"),  # shrinks it
        say("", "write_file", path=".envrc", content="echo\n"),
        RUN,
        finish("Done."),
    ]
    user = User(approval="no")
    async with play(lines, user=user, approval_mode="plan") as shell:
        await turn(shell)
        await accept(shell, "edits")
        assert shell.deps.settings.approval_mode == "edits"
    assert (home / "a.txt").exists()
    assert [question.arguments.get("path", "command") for question in user.asked] == [
        "notes.txt",
        ".envrc",
        "command",
    ]


async def test_rules_of_the_settings_hold_while_edits_are_accepted(play, home):
    (home.parent / "home" / "config").mkdir(parents=True, exist_ok=True)
    user = User(approval="no")
    lines = [WRITE, say("", "write_file", path="b.txt", content="b\n"), finish("Done.")]
    async with play(lines, user=user, approval_mode="edits") as shell:
        rules = shell.deps.approvals.rules
        shell.deps.approvals.rules = type(rules)(
            ask=("write_file:a*",), deny=("write_file:b*",), workspace=home
        )
        await turn(shell)
    assert [question.arguments["path"] for question in user.asked] == ["a.txt"]
    assert not (home / "b.txt").exists()


async def test_there_is_nothing_to_accept_without_a_plan(play):
    async with play([]) as shell:
        with pytest.raises(UsageError, match="No plan was written"):
            await shell.command("/plan accept")
        with pytest.raises(UsageError, match="Unknown mode 'fast'"):
            await shell.command("/plan mode fast")
        assert (await shell.command("/plan mode edits")).text.startswith("Edits are accepted")


async def test_a_resumed_session_still_has_its_plan(play):
    async with play([finish(PLAN), finish("Done.")], approval_mode="plan") as shell:
        await turn(shell)
        await shell.open(shell.session)
        assert of(await accept(shell), Bill)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (PLAN, 2),
        ("- a\n- b\n- c", 3),
        ("Just do it.", 1),
        ("**1.** a\n   2) b\n## Step 3: c", 3),
        ("1. a\n- b", 1),
    ],
)
def test_steps_of_a_plan_are_counted(text, steps):
    assert written(text).steps == steps
