"""Search strategies in whole turns: branches, registrations, approvals, costs and replay."""

from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import User, every_pair, finish, is_replayed, of, register, say, turn

from ecoshell.agent.rules import Rules
from ecoshell.budget import parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import (
    ApprovalWanted,
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallStarted,
    LimitHit,
    Notice,
    Rationale,
    StepProposed,
    StepStarted,
    ToolRegistered,
)
from ecoshell.strategies.search import DFSDT_DEPTH

COUNT = say("Count them.", "count_text", path="notes.txt")
LIST = say("Look around.", "list_files")
READ = say("Read it.", "read_file", path="notes.txt")
WRITE = say("Write it.", "write_file", path="x.txt", content="x")
A, B = say("A"), say("B")
PRICE = (Decimal(1), Decimal(4))


def give_up(why="This leads nowhere."):
    return finish(why, give_up=True)


def texts(messages):
    return "\n".join(message.text for message in messages)


async def test_backtracking_reports_earlier_attempts_to_the_model(play):
    lines = [COUNT, give_up("A count says nothing."), READ, finish("three lines")]
    async with play(lines, strategy="dfsdt", registration="all") as shell:
        events = await turn(shell)
        second = shell.requests[2]
    assert (events[-1].status, events[-1].answer, events[-1].steps) == (
        "answered",
        "three lines",
        4,
    )
    (backtrack,) = of(events, BranchLeft)
    assert (backtrack.path, backtrack.left, backtrack.reason) == (
        (),
        1,
        "given up: A count says nothing.",
    )
    assert "count_text(path=" in second.messages[-1].text
    assert "given up: A count says nothing." in second.messages[-1].text
    assert "3 lines" not in texts(second.messages)


async def test_a_branch_has_only_the_registrations_of_its_own_path(play):
    lines = [register("count_text"), give_up(), COUNT, register("count_text"), COUNT, finish("3")]
    async with play(lines, strategy="dfsdt", registration="names", presentation="grow") as shell:
        events = await turn(shell)
        requests = shell.requests
    refused, counted = of(events, CallFinished)
    assert (refused.refused, counted.refused, counted.ok) == ("unregistered", "", True)
    assert of(events, BranchLeft)[0].unregistered == ("count_text",)
    assert "count_text" in [tool.name for tool in requests[1].tools]
    assert "count_text" not in [tool.name for tool in requests[2].tools]
    assert [event.name for event in of(events, ToolRegistered)] == ["count_text", "count_text"]


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_later_turns_contain_only_the_path_that_answered(play, presentation):
    lines = [
        register("list_files"),
        LIST,
        give_up(),
        give_up("Nor this."),
        register("count_text", "need it"),
        COUNT,
        finish("3"),
        finish("still 3"),
    ]
    async with play(
        lines, strategy="dfsdt", registration="names", presentation=presentation
    ) as shell:
        await turn(shell)
        assert shell.conversation.memory.library.names == ("count_text",)
        assert is_replayed(shell)
        messages = shell.conversation.memory.messages
        assert [message.call.name for message in messages if message.speaker == "tool"] == [
            "tool_register",
            "count_text",
        ]
        assert shell.requests[6].messages == (shell.requests[6].messages[0], *messages[:-1])
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == messages
        await turn(shell, "And now?")
        assert shell.requests[7].messages[1 : len(messages) + 1] == messages
        assert shell.conversation.memory.turns[0].ran == {"list_files", "count_text"}


async def test_calls_with_the_same_provider_id_get_distinct_ids(play):
    async with play(
        [LIST, give_up(), COUNT, finish("3")], strategy="dfsdt", registration="all"
    ) as shell:
        stream = shell.deps.models.current.model._model.stream

        async def same_ids(request):
            async for piece in stream(request):
                calls = getattr(piece, "calls", ())
                yield (
                    replace(piece, calls=tuple(replace(call, id="call_0") for call in calls))
                    if calls
                    else piece
                )

        shell.deps.models.current.model._model.stream = same_ids
        events = await turn(shell)
        assert is_replayed(shell)
    ids = [event.id for event in of(events, CallStarted)]
    assert len(set(ids)) == 2


async def test_the_better_of_two_proposed_steps_runs(play):
    lines = [LIST, COUNT, B, A, finish("3")]
    async with play(lines, strategy="tot", registration="all") as shell:
        events = await turn(shell)
        proposing, ranking = shell.requests[1], shell.requests[2]
        assert is_replayed(shell)
    assert [event.step for event in of(events, StepProposed)][:2] == [
        "list_files()",
        'count_text(path="notes.txt")',
    ]
    assert [event.name for event in of(events, CallFinished)] == ["count_text"]
    assert [event.text for event in of(events, Rationale)] == ["Count them."]
    assert "list_files(): proposed" in proposing.messages[-1].text
    assert (ranking.purpose, ranking.tools) == ("rank", ())
    assert [event.role for event in of(events, BudgetSettled)][:4] == [
        "single",
        "single",
        "ranker",
        "ranker",
    ]
    assert events[-1].steps == len(of(events, StepStarted)) == 3


async def test_an_unreadable_verdict_selects_the_first_proposal(play):
    async with play(
        [LIST, COUNT, say("Hm."), finish("ok")], strategy="tot", registration="all"
    ) as shell:
        events = await turn(shell)
    assert [event.name for event in of(events, CallFinished)] == ["list_files"]


async def test_the_losing_proposal_runs_after_backtracking_with_its_own_rationale(play):
    lines = [LIST, COUNT, A, give_up(), finish("3")]
    async with play(lines, strategy="tot", registration="all") as shell:
        events = await turn(shell)
        steps = [
            message
            for message in shell.conversation.memory.messages
            if message.call and message.speaker != "tool"
        ]
    assert [event.name for event in of(events, CallFinished)] == ["list_files", "count_text"]
    assert [(step.text, step.call.name) for step in steps] == [("Count them.", "count_text")]


async def test_the_step_limit_answers_from_the_path_with_most_results(play):
    lines = [
        COUNT,
        READ,
        give_up(),
        say("", "read_file", path="none"),
        say("Three, from the first way."),
    ]
    async with play(lines, strategy="dfsdt", registration="all", max_steps=4) as shell:
        events = await turn(shell)
        prompt = texts(shell.requests[-1].messages)
        assert is_replayed(shell)
        replayed = texts(shell.conversation.memory.messages)
    assert (events[-1].status, events[-1].answer) == ("limit", "Three, from the first way.")
    assert "3 lines" in prompt
    assert "two" in prompt
    assert "two" in replayed


async def test_a_search_whose_paths_all_failed_answers_from_the_results(play):
    wrong = [say("", "read_file", path=f"none{at}") for at in range(6)]
    async with play([*wrong, say("No result.")], strategy="dfsdt", registration="all") as shell:
        events = await turn(shell)
    assert events[-1].answer == "No result."
    assert "Every path that was tried failed; answering with the results so far." in [
        event.text for event in of(events, Notice)
    ]


async def test_giving_up_on_every_path_gives_up_the_turn(play):
    async with play(
        [COUNT, give_up("No."), READ, give_up("Not at all.")], strategy="dfsdt", registration="all"
    ) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
    assert (events[-1].status, events[-1].answer) == ("gave_up", "Not at all.")


WORK = {"react": [COUNT, READ], "dfsdt": [COUNT, READ, give_up()], "tot": [COUNT, READ, B, A]}


@pytest.mark.parametrize(
    ("strategy", "budget", "plan"),
    every_pair(["react", "dfsdt", "tot"], ["0.004", "0.012", "0.03"], ["off", "btp"]),
)
async def test_the_cap_holds_under_every_strategy_with_and_without_a_plan(
    play, strategy, budget, plan
):
    async with play(
        WORK[strategy] * 20, strategy=strategy, price=PRICE, budget=budget, registration="all"
    ) as shell:
        shell.deps.settings.plan = plan
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    paid = sum(event.spent_nano for event in of(events, BudgetSettled))
    assert cap.spent == paid <= cap.limit
    assert cap.held == 0
    assert events[-1].status in ("limit", "answered", "gave_up")


async def test_a_limit_during_ranking_selects_the_first_proposal(play):
    async with play(
        [LIST, COUNT, say("A few files.")], strategy="tot", registration="all", price=PRICE
    ) as shell:
        await shell.set_cap("session", parse_amount("1"))
        model = shell.deps.models.current.model._model
        stream = model.stream

        async def lower_the_cap(request):
            async for piece in stream(request):
                if len(model.requests) == 2:
                    await shell.deps.budget.set_cap("session", parse_amount("0.000001"))
                yield piece

        model.stream = lower_the_cap
        events = await turn(shell)
    assert any("could not be compared" in event.text for event in of(events, Notice))
    assert [event.name for event in of(events, CallFinished)] == ["list_files"]
    assert of(events, LimitHit)
    assert events[-1].status == "limit"
    assert events[-1].answer == "A few files."


async def test_writing_calls_in_a_search_always_need_approval(play):
    user = User("session", "once")
    lines = [WRITE, finish("done"), WRITE, finish("done")]
    async with play(lines, strategy="dfsdt", registration="all", user=user) as shell:
        await turn(shell)
        await turn(shell)
        reasons = [request.reason for request in user.asked]
    assert len(reasons) == 2
    assert all("Going back to try another way does not undo it" in reason for reason in reasons)


async def test_an_approval_for_the_session_given_in_a_search_applies_to_react(play):
    user = User("session")
    async with play(
        [WRITE, finish("done"), WRITE, finish("done")], registration="all", user=user
    ) as shell:
        shell.deps.settings.strategy = "dfsdt"
        await turn(shell)
        shell.deps.settings.strategy = "react"
        events = await turn(shell)
    assert not of(events, ApprovalWanted)
    assert of(events, CallFinished)[0].ok


async def test_an_allow_rule_does_not_approve_writing_in_a_search(play):
    async with play([WRITE, finish("done")], strategy="dfsdt", registration="all") as shell:
        shell.deps.approvals.rules = Rules(allow=("write_file",))
        events = await turn(shell)
    assert of(events, CallFinished)[0].refused == "unapproved"


async def test_yes_approves_writing_in_a_search_and_backtracking_warns_of_effects(play, home):
    lines = [WRITE, give_up(), READ, finish("done")]
    async with play(lines, strategy="dfsdt", registration="all", yes=True) as shell:
        events = await turn(shell)
        assert (home / "x.txt").read_text() == "x"
        assert "Backtracking does not undo the effects of write_file." in [
            event.text for event in of(events, Notice)
        ]
        await shell.command("/undo")
    assert not (home / "x.txt").exists()


async def test_a_refused_call_causes_no_warning_on_backtracking(play):
    async with play(
        [WRITE, give_up(), READ, finish("done")], strategy="dfsdt", registration="all"
    ) as shell:
        events = await turn(shell)
    assert of(events, BranchLeft)
    assert not of(events, Notice)


async def test_the_strategy_command_shows_and_changes_the_strategy(play):
    async with play([COUNT, give_up(), READ, finish("3")], registration="all") as shell:
        printed = (await shell.command("/strategy")).text
        assert "›  react" in printed
        changed = (await shell.command("/strategy dfsdt")).text
        assert "›  dfsdt" in changed
        assert (await shell.status()).strategy == "dfsdt"
        events = await turn(shell)
    assert (events[0].strategy, len(of(events, BranchLeft))) == ("dfsdt", 1)


async def test_an_unknown_strategy_is_rejected_with_the_known_ones(play):
    async with play([]) as shell:
        with pytest.raises(UsageError, match="react, dfsdt, tot"):
            await shell.command("/strategy bfs")
        assert shell.deps.settings.strategy == "react"


async def test_an_endless_path_is_abandoned_at_the_depth_limit(play):
    steps = [say("", "calculate", expression=f"{number} + 1") for number in range(DFSDT_DEPTH + 1)]
    async with play([*steps, finish("3")], strategy="dfsdt", registration="all") as shell:
        events = await turn(shell)
    assert (events[-1].status, len(of(events, CallFinished))) == ("answered", DFSDT_DEPTH)
