"""Subagents: the tool `task`, its shares, sessions and events."""

import asyncio
import json
import subprocess
import sys
from decimal import Decimal

import pytest
import skill_set
from agent_play import User, finish, is_replayed, of, register, say, turn
from graph_turns import plan
from ledger_totals import wrong_totals

from ecoshell import Agent
from ecoshell.agent.subagents import cheapest
from ecoshell.agent.task_command import delegation_of
from ecoshell.api import Outcome
from ecoshell.assembly.shell import assemble
from ecoshell.errors import LimitReached, ModelError, UsageError
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    CallFinished,
    NodeChanged,
    Notice,
    SubagentFinished,
    SubagentLimited,
    SubagentStarted,
    ToolRegistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Attachment
from ecoshell.options import Options, RoleModels
from ecoshell.tools import Delegation

PRICE = (Decimal(1), Decimal(4))
CHEAP = {"input": "0.1", "output": "0.4"}


@pytest.fixture
def child(home, tmp_path, monkeypatch):
    """Write the script of the subagents' model, and use it for all tasks; returns the model's name."""

    def write(*lines, price=CHEAP):
        script = tmp_path / "child.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        name = f"script:{script}"
        config = tmp_path / "home" / "config"
        config.mkdir(parents=True, exist_ok=True)
        prices = "".join(f"{key} = {value!r}\n" for key, value in (price or {}).items())
        (config / "config.toml").write_text(
            f"[agent]\ntask_model = {name!r}\n[models.{json.dumps(name)}.price]\n{prices}"
        )
        return name

    return write


def delegate(instructions="Count the lines.", **more):
    return say("", "task", instructions=instructions, **more)


def delegations(*instructions, **more):
    calls = [{"name": "task", "arguments": {"instructions": text, **more}} for text in instructions]
    return {"text": "", "calls": calls}


def results(events):
    return [event.observation for event in of(events, CallFinished) if event.name == "task"]


async def test_a_subagent_works_in_its_own_session_and_returns_summary_and_cost(play, child):
    name = child(say("", "count_text", path="notes.txt"), say("There are 3 lines."))
    async with play(
        [register("task"), delegate(budget="0.05"), say("Three.")], price=PRICE, budget="1"
    ) as shell:
        events = await turn(shell)
        (started,), (ended,) = of(events, SubagentStarted), of(events, SubagentFinished)
        assert (started.name, started.model, started.share_usd, started.share) == (
            "subagent",
            name,
            "0.05",
            "$0.05",
        )
        assert (ended.status, ended.session, ended.share_usd) == (
            "answered",
            started.session,
            "0.05",
        )
        assert 0 < ended.spent_nano < 50_000_000
        (result,) = results(events)
        assert result.startswith("There are 3 lines.")
        assert f"of $0.05, session {ended.session}]" in result
        row = shell.ledger.task_row(ended.session)
        assert (row.spent_nano, row.calls) == (ended.spent_nano, 2)
        (finished,) = of(events, TurnFinished)
        assert finished.spent_nano == shell.ledger.session_row(shell.session).spent_nano
        assert finished.usage == shell.ledger.session_row(shell.session).usage
        assert shell.store.info(ended.session).parent == shell.session
        assert [info.id for info in shell.store.list()] == [shell.session]
        own = [event for _, event in shell.store.events(ended.session)]
        assert of(own, TurnStarted)[0].question.startswith("Count the lines.")
        assert wrong_totals(shell.ledger) == ()


async def test_tasks_of_one_reply_run_in_parallel_and_each_gets_an_equal_part_of_the_cap(
    play, child
):
    child(*[say("", "list_files")] * 3, *[say("Done.")] * 3)
    script = [register("task"), delegations("one", "two", "three"), say("All done.")]
    async with play(script, price=PRICE, budget="1") as shell:
        events = await turn(shell)
        started, ended = of(events, SubagentStarted), of(events, SubagentFinished)
        assert len(ended) == 3
        first_end = events.index(ended[0])
        assert all(events.index(start) < first_end for start in started)
        shares = [Decimal(start.share_usd) for start in started]
        assert all(Decimal("0.24") < share < Decimal("0.25") for share in shares)
        assert max(shares) - min(shares) < Decimal("0.000001")
        assert len({start.session for start in started}) == 3


@pytest.mark.parametrize(("at_once", "overlapping"), [("1", False), ("2", True)])
async def test_the_setting_limits_subagents_at_once(play, child, monkeypatch, at_once, overlapping):
    monkeypatch.setenv("ECOSHELL_AGENT_TASKS_AT_ONCE", at_once)
    child(*[say("", "list_files")] * 2, *[say("Done.")] * 2)
    async with play(
        [register("task"), delegations("one", "two"), say("Done.")], price=PRICE
    ) as shell:
        events = await turn(shell)
        kinds = [type(event) for event in of(events, SubagentStarted | SubagentFinished)]
        assert (kinds[:2] == [SubagentStarted] * 2) is overlapping
        assert {event.share_usd for event in of(events, SubagentStarted)} == {
            None
        }  # there is no cap


async def test_a_subagent_answers_at_its_share_and_the_turn_goes_on(play, child):
    child(
        *[say("", "count_text", text=f"text {number}") for number in range(50)],
        say("Enough."),
        price={"input": "10", "output": "40"},
    )
    script = [register("task"), delegate(budget="0.06"), say("I continue.")]
    async with play(script, price=PRICE, budget="1") as shell:
        events = await turn(shell)
        (ended,) = of(events, SubagentFinished)
        assert (ended.status, of(events, TurnFinished)[0].status) == ("limit", "answered")
        assert ended.spent_nano <= 60_000_000
        reason = "limit reached because its share was too small for a further step, $0.0"
        assert reason in results(events)[0]
        caps = {cap.scope: cap for cap in shell.ledger.caps(shell.session, 1, task=ended.session)}
        assert caps["task"].limit == caps["task"].spent + caps["task"].held <= 60_000_000
        assert caps["session"].held == 0


async def test_a_subagent_that_meets_another_cap_than_its_share_names_that_cap(play, child):
    child(*[say("", "count_text", text=f"text {number}") for number in range(50)], say("Enough."))
    script = [register("task"), delegate(budget="5"), say("I continue.")]
    async with play(script, price=PRICE, budget="60000tok") as shell:
        events = await turn(shell)
        assert [event.status for event in of(events, SubagentFinished)] == ["limit"]
        (result,) = results(events)
        assert "limit reached, $" in result
        assert "the session's cap of 60,000 tokens has" in result
        assert "share was too small" not in result


BAD = {
    "an empty text": ({"instructions": " "}, "The instructions are empty."),
    "an unknown tool": (
        {"tools": ["read_fil"]},
        "Unknown tool 'read_fil'. Did you mean read_file?",
    ),
    "an unknown agent": (
        {"agent": "reviewer"},
        "Unknown agent 'reviewer'. Define it in .ecoshell/agents/reviewer.md",
    ),
    "an unknown model": (
        {"model": "script:/missing.jsonl"},
        "The script /missing.jsonl cannot be read",
    ),
    "no amount": ({"budget": "much"}, "'much' is not an amount."),
    "more than is left": ({"budget": "3"}, "Its share of $3 is more than the $0.9"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_task_that_cannot_start_is_a_sentence_and_the_turn_goes_on(play, child, case):
    child(say("Never said."))
    more, message = BAD[case]
    async with play(
        [register("task"), delegate(**more), say("By myself.")], price=PRICE, budget="1"
    ) as shell:
        events = await turn(shell)
        assert results(events)[0].startswith(f"No subagent was started. {message}")
        assert not of(events, SubagentStarted)
        assert of(events, TurnFinished)[0].answer == "By myself."


async def test_parallel_shares_do_not_promise_more_than_is_left(play, child):
    child(*[say("", "list_files")] * 2, *[say("Done.")] * 2)
    script = [register("task"), delegations("one", "two", budget="0.6"), say("Done.")]
    async with play(script, price=PRICE, budget="1") as shell:
        events = await turn(shell)
        assert len(of(events, SubagentStarted)) == 1
        assert any("more than the" in result for result in results(events))


@pytest.mark.parametrize("named", [False, True])
async def test_delegation_ends_at_depth_two(play, child, named):
    """The model of all levels delegates once more than is allowed."""
    more = {"tools": ["task"]} if named else {}
    line = delegate("Go deeper.", **more)
    child(register("task"), line, register("task"), line, say("Level 2."), say("Level 1."))
    async with play([register("task"), line, say("Level 0.")], price=PRICE, budget="1") as shell:
        events = await turn(shell)
        assert of(events, TurnFinished)[0].answer == "Level 0."
        (child_start,) = of(events, SubagentStarted)
        own = [event for _, event in shell.store.events(child_start.session)]
        (grandchild,) = of(own, SubagentStarted)
        deepest = [event for _, event in shell.store.events(grandchild.session)]
        assert shell.store.info(grandchild.session).parent == child_start.session
        expected = (
            "Tasks are delegated at most 2 deep." if named else "There is no tool called 'task'."
        )
        assert any(expected in result for result in results(deepest))
        caps = shell.ledger.caps(
            shell.session, 1, task=f"{child_start.session}/{grandchild.session}"
        )
        assert [cap.scope for cap in caps] == ["task", "task", "session"]
        assert wrong_totals(shell.ledger) == ()
        parent = shell.session
        await shell.open()  # an open session is not deleted
        shell.store.delete(parent)
        for session in (child_start.session, grandchild.session):
            assert not [*shell.store.events(session)]


async def test_a_subagent_uses_only_the_tools_that_the_task_names(play, child):
    child(
        say("", "read_file", path="notes.txt"),
        say("", "count_text", path="notes.txt"),
        say("Counted."),
    )
    async with play(
        [register("task"), delegate(tools=["count_text"]), say("Done.")], price=PRICE
    ) as shell:
        (ended,) = of(await turn(shell), SubagentFinished)
        own = [event for _, event in shell.store.events(ended.session)]
        assert [(event.name, event.refused) for event in of(own, CallFinished)] == [
            ("read_file", "unknown"),
            ("count_text", ""),
        ]


async def test_a_task_can_name_a_skill_among_its_tools(play, child, tmp_path):
    skill_set.write(tmp_path / "home/config/skills", {"release": "How to release."})
    child(
        register("release"),
        say("", "read_file", path="notes.txt"),
        say("", "count_text", path="notes.txt"),
        say("Counted."),
    )
    lines = [register("task"), delegate(tools=["count_text", "release"]), say("Done.")]
    async with play(lines, price=PRICE) as shell:
        (ended,) = of(await turn(shell), SubagentFinished)
        own = [event for _, event in shell.store.events(ended.session)]
    assert "release" in [event.name for event in of(own, ToolRegistered)]
    assert [(event.name, event.refused) for event in of(own, CallFinished)] == [
        ("read_file", "unknown"),
        ("count_text", ""),
    ]


@pytest.mark.parametrize("decision", ["once", "no", None])
async def test_the_user_approves_the_calls_of_a_subagent_by_the_same_rules(
    play, child, home, decision
):
    child(say("", "write_file", path="new.txt", content="x"), say("Written."))
    user = None if decision is None else User(approval=decision)
    async with play([register("task"), delegate(), say("Done.")], price=PRICE, user=user) as shell:
        events = await turn(shell)
        (wanted,) = of(events, ApprovalWanted)
        assert (wanted.name, wanted.agent) == ("write_file", "subagent")
        assert (home / "new.txt").exists() is (decision == "once")
        if user is not None:
            assert user.asked == [wanted]


async def test_the_refusal_of_plan_mode_names_the_subagent(play, child, home):
    child(say("", "write_file", path="new.txt", content="x"), say("Refused."))
    lines = [register("task"), delegate(), say("1. Write it.")]
    async with play(lines, user=User(), approval_mode="plan") as shell:
        (given,) = of(await turn(shell), ApprovalGiven)
    assert (given.agent, given.by) == ("subagent", "plan mode")


async def test_read_only_holds_inside(play, child, home):
    child(say("", "write_file", path="new.txt", content="x"), say("Refused."))
    async with play(
        [register("task"), delegate(), say("Done.")], read_only=True, yes=True
    ) as shell:
        (ended,) = of(await turn(shell), SubagentFinished)
        own = [event for _, event in shell.store.events(ended.session)]
        assert [event.refused for event in of(own, CallFinished)] == ["unapproved"]
        assert not (home / "new.txt").exists()


async def test_undo_restores_what_subagents_wrote(play, child, home):
    child(
        say("", "write_file", path="notes.txt", content="changed"),
        say("", "run_command", command="true"),
        say("Written."),
    )
    script = [
        register("task"),
        delegate(),
        say("", "write_file", path="later.txt", content="x"),
        say("Done."),
    ]
    async with play(script, yes=True, force=True) as shell:
        (ended,) = of(await turn(shell), SubagentFinished)
        assert ended.changed_by == ("write_file", "run_command")
        assert (home / "notes.txt").read_text() == "changed"
        assert "Changes by run_command cannot be restored." in (await shell.command("/undo")).text
        assert (home / "notes.txt").read_text() == "one\ntwo\nthree\n"
        assert not (home / "later.txt").exists()


async def test_stopping_the_turn_stops_its_subagents(play, child):
    child(
        say("", "run_command", command="sleep 60"),
        say("", "run_command", command="sleep 60"),
        say("Never."),
    )
    async with play(
        [register("task"), delegations("one", "two"), say("Never.")],
        yes=True,
        budget="1",
        price=PRICE,
    ) as shell:
        events, stopping = [], None
        async for event in shell.ask("Delegate."):
            events.append(event)
            if stopping is None and len(of(events, SubagentStarted)) == 2:
                stopping = asyncio.create_task(shell.stop())
        assert [event.status for event in of(events, SubagentFinished)] == ["interrupted"] * 2
        assert of(events, TurnFinished)[0].status == "interrupted"
        assert all(cap.held == 0 for cap in shell.ledger.caps(shell.session, 1))


async def test_a_session_of_a_subagent_can_be_resumed(play, child):
    child(say("Three lines."))
    async with play(
        [register("task"), delegate(), say("Done."), say("Again.")], price=PRICE, budget="1"
    ) as shell:
        (ended,) = of(await turn(shell), SubagentFinished)
        parent = shell.session
        await shell.open(ended.session)
        assert shell.conversation.memory.answers == ["Three lines."]
        (answer,) = of(await turn(shell), TurnFinished)
        assert answer.answer == "Again."
        await shell.open(parent)
        assert of(shell.past, SubagentFinished) == [ended]


AGENT = """---
name: counter
description: Counts the lines of files
tools: count_text, read_file
budget: 0.03
---
You count lines. Report nothing else.
"""


def define(folder, text=AGENT, name="counter"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


@pytest.mark.parametrize("folder", [".ecoshell/agents", ".claude/agents", "../home/config/agents"])
async def test_a_definition_sets_instructions_tools_and_budget(play, child, home, folder):
    text = (
        AGENT.replace("count_text, read_file", "Read, count_text, TodoWrite")
        if ".claude" in folder
        else AGENT
    )
    child(say("", "run_command", command="ls"), say("3 lines."))
    define(home / folder, text)
    script = [register("task"), delegate(agent="counter"), say("Done.")]
    async with play(script, price=PRICE, budget="1", trust_project=True) as shell:
        assert (
            "counter (Counts the lines of files)" in shell.deps.catalog.schema("task").description
        )
        events = await turn(shell)
        (ended,) = of(events, SubagentFinished)
        assert (ended.name, ended.share_usd, ended.status) == ("counter", "0.03", "answered")
        own = [event for _, event in shell.store.events(ended.session)]
        assert "You count lines. Report nothing else." in of(own, TurnStarted)[0].question
        assert [event.refused for event in of(own, CallFinished)] == [
            "unknown"
        ]  # it has no tool for commands
        notices = [event.text for event in of(events, Notice)]
        expected = (
            ["counter works without tools that are unknown here: TodoWrite."]
            if ".claude" in folder
            else []
        )
        assert notices == expected


@pytest.mark.parametrize("decision", ["yes", "later", None])
async def test_a_definition_of_the_project_needs_trust(play, child, home, decision):
    child(say("3 lines."))
    define(home / ".ecoshell/agents")
    user = None if decision is None else User(decision)
    script = [register("task"), delegate(agent="counter"), say("Done.")]
    async with play(script, price=PRICE, budget="1", user=user) as shell:
        assert "counter" not in shell.deps.catalog.schema("task").description
        events = await turn(shell)
        assert len(of(events, SubagentFinished)) == (decision == "yes")
        if decision != "yes":
            (result,) = results(events)
            assert result.startswith(
                "No subagent was started. .ecoshell/agents/counter.md is not trusted."
            )
        if user is not None:
            assert [wanted.text for wanted in user.asked] == [AGENT]


async def test_the_users_definition_takes_precedence_over_one_of_the_project(play, child, home):
    child(say("3 lines."))
    define(home / ".ecoshell/agents", AGENT.replace("0.03", "0.02"))
    define(home / "../home/config/agents")
    script = [register("task"), delegate(agent="counter"), say("Done.")]
    async with play(script, price=PRICE, budget="1") as shell:
        (ended,) = of(await turn(shell), SubagentFinished)
    assert (ended.name, ended.share_usd) == ("counter", "0.03")


FAULTS = {
    "an unknown tool": (
        "tools: count_txt",
        "Unknown tool 'count_txt' in .ecoshell/agents/counter.md.",
    ),
    "a bad budget": (
        "budget: plenty",
        "The budget of the agent counter in .ecoshell/agents/counter.md cannot be used.",
    ),
    "an unknown model": (
        "model: script:/missing.jsonl",
        "The script /missing.jsonl cannot be read",
    ),
    "a broken front matter": ("- count", "The agent counter cannot be used: The front matter of"),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_a_faulty_definition_is_a_sentence_and_the_turn_goes_on(play, child, home, case):
    field, message = FAULTS[case]
    child(say("Never."))
    define(home / ".ecoshell/agents", f"---\n{field}\n---\nCount.\n")
    script = [register("task"), delegate(agent="counter"), say("By myself.")]
    async with play(script, price=PRICE, trust_project=True) as shell:
        events = await turn(shell)
        assert results(events)[0].startswith(f"No subagent was started. {message}")
        assert of(events, TurnFinished)[0].answer == "By myself."


async def test_an_agent_that_delegates_to_itself_ends_at_depth_two(play, child, home):
    child(*[delegate("Again.", agent="loop")] * 3, *[say("Enough.")] * 3)
    define(home / ".ecoshell/agents", "---\ntools: task\n---\nDelegate.\n", "loop")
    async with play(
        [register("task"), delegate(agent="loop"), say("Done.")], price=PRICE, trust_project=True
    ) as shell:
        events = await turn(shell)
        sessions = [event.session for event in of(events, SubagentStarted)]
        own = [event for _, event in shell.store.events(sessions[0])]
        (deeper,) = of(own, SubagentStarted)
        deepest = [event for _, event in shell.store.events(deeper.session)]
        assert any("Tasks are delegated at most 2 deep." in result for result in results(deepest))
        assert of(events, TurnFinished)[0].status == "answered"


async def test_the_default_model_is_the_cheapest_of_the_roles(play, home, tmp_path):
    names = []
    for at, price in enumerate(("5", "0.1", "2")):
        script = tmp_path / f"role{at}.jsonl"
        script.write_text('{"text": "x"}\n')
        names.append(f"script:{script}")
        with (tmp_path / "prices.toml").open("a") as file:
            file.write(f'[models."{names[-1]}".price]\ninput = "{price}"\noutput = "{price}"\n')
    (tmp_path / "home/config").mkdir(parents=True)
    (tmp_path / "home/config/config.toml").write_text((tmp_path / "prices.toml").read_text())
    options = Options(
        model=names[0], mode="umi", roles=RoleModels(None, names[1], names[2]), workspace=home
    )
    shell = await assemble(options)
    try:
        assert cheapest(shell.deps.models) == names[1]
        await shell.deps.models.change(mode="single")
        assert cheapest(shell.deps.models) == names[0]
    finally:
        await shell.aclose()


@pytest.mark.parametrize(
    ("line", "delegation"),
    [
        ("/task Count: all lines.", Delegation("Count: all lines.")),
        ("/task counter: Count.", Delegation("Count.", agent="counter")),
        ("/task counter 0.05: Count.", Delegation("Count.", agent="counter", budget="0.05")),
        ("/task 20000tok: Count.", Delegation("Count.", budget="20000tok")),
        ("/task 0.05 Count.", Delegation("Count.", budget="0.05")),
        ("/task 0.05 Count: all.", Delegation("Count: all.", budget="0.05")),
        ("/task counter 2min Count.", Delegation("Count.", agent="counter", budget="2min")),
        ("/task counter Count.", Delegation("counter Count.")),
        ("/task 3 files: count them.", Delegation("3 files: count them.")),
        ("/task Step 2: count.", Delegation("Step 2: count.")),
        ("/task\nCount:\nall.", Delegation("Count:\nall.")),
        ("/task\t0.05\nCount.", Delegation("Count.", budget="0.05")),
        ("/task two words: Count.", Delegation("Count.", agent="two words")),
        ("/task two words 0.05: Count.", Delegation("Count.", agent="two words", budget="0.05")),
        ("  ", None),
        ("/tasks now", None),
        ("What is /task x?", None),
    ],
)
def test_a_line_names_agent_and_budget_before_a_colon(line, delegation):
    assert delegation_of(line, {"counter", "two words"}) == delegation


@pytest.mark.parametrize(
    "line", ["/task", "/task 0.05:", "/task 0.05", "/task counter:", "/task counter"]
)
async def test_a_task_without_a_text_is_refused_before_anything_is_sent(play, child, home, line):
    child(say("Never."))
    define(home / ".ecoshell/agents")
    async with play([say("Never.")], price=PRICE) as shell:
        with pytest.raises(UsageError, match="The text of the task is missing") as caught:
            await turn(shell, line)
        assert not shell.requests
    assert caught.value.fix.startswith("Write /task [AGENT] [AMOUNT]: TEXT.")


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("/task 99: Count.", "Name a smaller amount, or raise the cap."),
        ("Delegate it.", "Delegate it with less, or let the user raise the cap."),
    ],
)
async def test_a_share_above_the_cap_is_explained_to_whom_stated_it(play, child, line, fix):
    child(say("Never."))
    lines = [register("task"), delegate(budget="99"), say("By myself.")]
    async with play(lines, price=PRICE, budget="1") as shell:
        (result,) = results(await turn(shell, line))
    assert result.startswith("No subagent was started. Its share of $99 is more than the ")
    assert result.endswith(f" that is left. {fix}")


def test_an_unknown_agent_before_an_amount_is_an_error_with_the_closest_name():
    with pytest.raises(UsageError, match="Unknown agent 'countre'") as caught:
        delegation_of("/task countre 0.05: Count.", {"counter", "reviewer"})
    assert caught.value.fix == "Did you mean counter?"


async def test_the_command_delegates_a_question_without_a_step_of_the_sessions_model(play, child):
    child(say("Three lines."), say("Two words."))
    async with play([say("It was three.")], price=PRICE, budget="1") as shell:
        printed = await shell.command("/task 0.05: Count the lines.")
        assert (printed.effect, printed.value) == ("ask", "/task 0.05: Count the lines.")
        events = await turn(shell, printed.value)
        (started,), (finished,) = of(events, SubagentStarted), of(events, TurnFinished)
        assert (started.share, finished.status, finished.steps) == ("$0.05", "answered", 0)
        assert finished.answer.startswith("Three lines.")
        assert of(await turn(shell, "How many?"), TurnFinished)[0].answer == "It was three."
        assert "Three lines." in "".join(message.text for message in shell.requests[-1].messages)
        assert of(await turn(shell, "/task Count the words."), TurnFinished)[0].answer.startswith(
            "Two words."
        )
        assert "No agent is defined." in (await shell.command("/task")).text


async def test_the_command_passes_attachments_to_the_subagent_and_delegations_do_not(play, child):
    child(say("One line."), say("Nothing."))
    log = Attachment("piped input", "a line of the log")
    async with play([delegate(), say("Done.")], price=PRICE) as shell:
        events = [event async for event in shell.ask("/task Sum up @notes.txt.", (log,))]
        events += [event async for event in shell.ask("Delegate it.", (log,))]
        attached = []
        for ended in of(events, SubagentFinished):
            own = [event for _, event in shell.store.events(ended.session)]
            attached.append([file.name for file in of(own, TurnStarted)[0].attachments])
    assert attached == [["notes.txt", "piped input"], []]


async def test_the_command_ends_as_its_subagent_at_a_limit(play, child):
    lines = [say("Two so far.", "count_text", text=f"text {number}") for number in range(50)]
    child(*lines, price={"input": "10", "output": "40"})
    async with play([], price=PRICE, budget="1") as shell:
        events, outcome = await turn(shell, "/task 0.06: Count."), Outcome()
        assert is_replayed(shell)
    for event in events:
        outcome.see(event)
    assert (outcome.status, outcome.exit_status) == ("limit", 3)
    assert outcome.answer.startswith("Two so far.")
    assert isinstance(outcome.failure, LimitReached)
    assert (outcome.failure.scope, outcome.failure.unit) == ("task", "usd")
    (limited,) = of(events, SubagentLimited)
    assert (limited.name, limited.message) == ("subagent", outcome.failure.message)


async def test_the_command_ends_as_its_subagent_after_an_error(play, child):
    child()
    async with play([say("I see.")], price=PRICE) as shell:
        events, outcome = await turn(shell, "/task Count."), Outcome()
        assert is_replayed(shell)
    for event in events:
        outcome.see(event)
    assert (outcome.status, outcome.exit_status) == ("error", 1)
    assert isinstance(outcome.failure, ModelError)


async def test_the_command_lists_agents_with_their_problems(play, child, home):
    define(home / ".ecoshell/agents")
    define(home / ".ecoshell/agents", "---\nbudget: plenty\n---\nCount.\n", "faulty")
    async with play([]) as shell:
        rows = (await shell.command("/task")).text.splitlines()
        assert "not trusted yet: Counts the lines of files" in rows[1]
        assert "cannot be used" in rows[2]
        assert [completion.text for completion in shell.complete("/task c")] == ["/task counter: "]


@pytest.mark.parametrize("name", ["two words", "a:b"])
async def test_an_agent_whose_name_is_no_word_is_a_fault_of_its_file(play, child, home, name):
    child(say("Never."))
    define(home / ".ecoshell/agents", name=name)
    file = f".ecoshell/agents/{name}.md"
    reason = f"'{name}' cannot be used: an agent's name is one word. Rename {file}."
    lines = [register("task"), delegate(agent=name), say("By myself.")]
    async with play(lines, price=PRICE, trust_project=True) as shell:
        assert reason in (await shell.command("/task")).text
        assert results(await turn(shell)) == [f"No subagent was started. {reason}"]
        if " " in name:
            (result,) = results(await turn(shell, f"/task {name}: Count."))
            assert result == f"No subagent was started. {reason}"


def ecoshell(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ecoshell", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_reports_resumes_and_exports_subagents(child, home, tmp_path):
    child(say("There are three lines."))
    script = tmp_path / "parent.jsonl"
    script.write_text(
        "".join(json.dumps(line) + "\n" for line in (register("task"), delegate(), say("Three.")))
    )
    options = (
        "--model",
        f"script:{script}",
        "--workspace",
        str(home),
        "--budget",
        "1",
        "--price",
        "1,4",
    )
    lines = [
        json.loads(line) for line in ecoshell("ask", "How many?", "--json", *options).splitlines()
    ]
    by_type = {line["type"]: line for line in lines}
    started, ended, result = (
        by_type[kind] for kind in ("subagent_started", "subagent_finished", "result")
    )
    assert {"id", "name", "share_usd", "spent_usd", "status"} <= ended.keys()
    assert Decimal(ended["spent_usd"]) <= Decimal(started["share_usd"]) < 1
    assert Decimal(ended["spent_usd"]) < Decimal(result["cost_usd"])
    session = ended["session"]
    assert session not in ecoshell("sessions", "list")
    assert "There are three lines." in ecoshell("sessions", "show", session)
    document = tmp_path / "child.json"
    ecoshell("sessions", "export", session, str(document))
    assert json.loads(document.read_text())["session"]["parent"] == result["session"]
    script.write_text(json.dumps(say("Resumed.")) + "\n")
    resuming = ("--resume", session, "--model", f"script:{script}")
    assert ecoshell("ask", "And now?", *resuming) == "Resumed.\n"


async def test_python_programs_delegate_with_a_line(child, home, tmp_path):
    child(say("There are three lines."))
    script = tmp_path / "parent.jsonl"
    script.write_text("")
    options = Options(workspace=home)
    async with Agent(f"script:{script}", cap="1", home=tmp_path / "home", options=options) as agent:
        outcome = await agent.ask("/task 0.05: Count the lines.")
        assert outcome.answer.startswith("There are three lines.")
        assert 0 < outcome.cost_usd <= Decimal("0.05")


async def test_nodes_of_a_tool_graph_delegate_in_parallel(play, child):
    child(*[say("", "list_files")] * 2, *[say("Done.")] * 2)
    script = [
        plan(**{"task": [], "task#2": []}),
        delegate("One."),
        delegate("Two."),
        finish("Both are done."),
    ]
    async with play(script, price=PRICE, budget="1", strategy="graph") as shell:
        events = await turn(shell, "Do one and two.")
        assert len(of(events, SubagentStarted)) == 2
        first_end = events.index(of(events, SubagentFinished)[0])
        assert all(events.index(start) < first_end for start in of(events, SubagentStarted))
        done = [event for event in of(events, NodeChanged) if event.state == "done"]
        assert sorted(event.label for event in done) == ["task", "task#2"]
        assert sum(event.spent_nano for event in done) > sum(
            event.spent_nano for event in of(events, SubagentFinished)
        )
        assert of(events, TurnFinished)[0].answer == "Both are done."


async def test_a_share_too_small_for_a_step_is_named(play, child):
    child(say("Never."))
    async with play(
        [register("task"), delegate(budget="0.00001"), say("By myself.")], price=PRICE, budget="1"
    ) as shell:
        events = await turn(shell)
        (result,) = results(events)
        assert result.startswith("It gave no answer. The next call may need $0.00")
        assert "the task's cap of $0.00001 has $0.00001 left" in result
        assert "delegate it with a larger budget" in result
        assert of(events, SubagentFinished)[0].spent_usd == "0"


async def test_a_subagent_may_end_while_the_share_of_another_is_computed(play, child, monkeypatch):
    monkeypatch.setenv("ECOSHELL_AGENT_TASKS_AT_ONCE", "20")
    child(*[say("Done.")] * 20)
    script = [register("task"), delegations(*map(str, range(20))), say("All done.")]
    async with play(script, price=PRICE, budget="1") as shell:
        events = await turn(shell)
        assert all(result.startswith("Done.") for result in results(events)), results(events)
        assert len(of(events, SubagentFinished)) == 20
