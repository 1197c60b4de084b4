import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest

from ecoshell.agent import Approval, NonInteractive
from ecoshell.agent.approval import ApprovalRequest, Approvals, grant
from ecoshell.agent.rules import Judgement, Rules
from ecoshell.events import ApprovalGiven, ApprovalWanted
from ecoshell.messages import Call
from ecoshell.tools import Subject
from ecoshell.tools.function import FunctionTool

READ, WRITE, RUN = frozenset({"read"}), frozenset({"write"}), frozenset({"execute"})
NO_RULES = Rules()
LIST = Call("run_command", {"command": "ls -l"}, "c1")


class Says:
    """A user who makes these decisions in turn."""

    def __init__(self, *decisions):
        self.decisions = [word if isinstance(word, Approval) else Approval(word) for word in decisions]
        self.asked = []

    async def approve(self, wanted):
        self.asked.append(wanted)
        return self.decisions.pop(0)


def run(
    command: Annotated[str | None, Subject.COMMAND] = None,
    path: Annotated[str | None, Subject.PATH] = None,
    times: int = 1,
) -> str:
    """Does something."""
    return f"{command}{path}" * times


def desk(user, rules=NO_RULES, granted=()):
    kept: list[str] = []
    return Approvals(rules, user, granted=granted, remember=kept.append), kept


async def ruling(approvals, call, effects, emit=lambda _: None, **known):
    tool = FunctionTool(run, effects=effects, name=call.name)
    return await approvals.rule(ApprovalRequest(call, tool, tool.schema, **known), emit)


async def refusal(approvals, call, effects, emit=lambda _: None):
    return (await ruling(approvals, call, effects, emit)).refusal


async def test_reading_needs_no_approval():
    approvals, _ = desk(NonInteractive())
    assert await refusal(approvals, Call("read_file", {"path": "a"}), READ) == ""


async def test_without_a_person_what_writes_is_refused_and_the_model_is_told():
    approvals, _ = desk(NonInteractive())
    seen: list[object] = []
    told = await refusal(approvals, Call("write_file", {"path": "a"}, "c1"), WRITE, seen.append)
    assert "not approved" in told
    assert isinstance(seen[0], ApprovalWanted)
    assert isinstance(seen[1], ApprovalGiven)
    assert seen[1].by == "nobody"


async def test_once_is_asked_again_and_session_is_not():
    approvals, kept = desk(Says("once", "session"))
    for _ in range(3):
        assert await refusal(approvals, LIST, RUN) == ""
    assert kept == []


async def test_always_in_the_project_is_kept_and_holds_the_next_time():
    approvals, kept = desk(Says("project"))
    assert await refusal(approvals, LIST, RUN) == ""
    again, _ = desk(Says("no"), granted=kept)
    assert await refusal(again, LIST, RUN) == ""


async def test_allowing_one_command_allows_no_other():
    approvals, _ = desk(Says("session", "no"))
    assert await refusal(approvals, LIST, RUN) == ""
    assert await refusal(approvals, Call("run_command", {"command": "rm -rf ."}), RUN)


async def test_read_only_refuses_writing_even_with_yes():
    approvals, _ = desk(Says(), Rules(read_only=True, yes=True))
    assert "read-only" in await refusal(approvals, Call("write_file", {"path": "a"}), WRITE)


async def test_the_question_says_why_with_what_effects_and_at_what_price():
    user = Says("once")
    approvals, _ = desk(user)
    tool = FunctionTool(run, effects=RUN, name="run_command", price_nano=2_000_000)
    await approvals.rule(ApprovalRequest(LIST, tool, tool.schema, "I must see what is there."), lambda _: None)
    asked = user.asked[0]
    assert (asked.rationale, asked.effects, asked.price_nano) == ("I must see what is there.", ("execute",), 2_000_000)
    assert "run a program" in asked.reason


async def test_a_person_may_change_the_arguments():
    approvals, _ = desk(Says(Approval("once", {"command": "ls"})))
    seen: list[object] = []
    ruled = await ruling(approvals, LIST, RUN, seen.append)
    assert ruled.call == Call("run_command", {"command": "ls"}, "c1")
    assert seen[-1] == ApprovalGiven("c1", "once", "person", {"command": "ls"})


async def test_arguments_that_were_not_changed_after_all_are_the_agents():
    approvals, _ = desk(Says(Approval("once", {"command": "ls -l"})))
    seen: list[object] = []
    await ruling(approvals, LIST, RUN, seen.append)
    assert seen[-1] == ApprovalGiven("c1", "once", "person", None)


async def test_changed_arguments_that_the_tool_cannot_take_are_asked_again_and_it_is_said_why():
    user = Says(Approval("once", {"times": "many"}), Approval("once", {"times": 2}))
    approvals, _ = desk(user)
    ruled = await ruling(approvals, LIST, RUN)
    assert "times" in user.asked[1].fault
    assert user.asked[1].arguments == {"times": "many"}
    assert ruled.call.arguments == {"times": 2}


async def test_a_rule_that_denies_a_call_denies_it_also_when_a_person_typed_it():
    approvals, _ = desk(Says(Approval("once", {"command": "rm -rf ."})), Rules(deny=("run_command:rm *",)))
    seen: list[object] = []
    ruled = await ruling(approvals, LIST, RUN, seen.append)
    assert "a rule" in ruled.refusal
    assert (seen[-1].decision, seen[-1].by) == ("no", "rule")


async def test_always_stands_for_the_changed_call():
    approvals, kept = desk(Says(Approval("project", {"command": "ls"}), "no"))
    await ruling(approvals, LIST, RUN)
    assert kept == ["run_command:ls"]
    assert await refusal(approvals, Call("run_command", {"command": "ls"}), RUN) == ""
    assert "not approved" in await refusal(approvals, LIST, RUN)


async def test_a_preview_that_fails_leaves_the_question_without_one():
    user = Says("once")
    approvals, _ = desk(user)

    def broken(**_):
        raise RuntimeError("a defect of the tool")

    tool = FunctionTool(run, effects=WRITE, name="write_file", preview=broken)
    await approvals.rule(ApprovalRequest(Call("write_file", {"path": "a"}, "c1"), tool, tool.schema), lambda _: None)
    assert user.asked[0].changes == ""


@pytest.mark.parametrize(
    ("rules", "call", "effects", "verdict"),
    [
        (Rules(allow=("run_command:git status*",)), "git status -s", RUN, "allow"),
        (Rules(allow=("run_command:git status*",)), "git status; rm -rf .", RUN, "ask"),
        (Rules(allow=("run_command:git status*",)), "git status $(rm x)", RUN, "ask"),
        (Rules(allow=("run_command",), deny=("run_command:rm *",)), "rm -rf .", RUN, "deny"),
        (Rules(yes=True, deny=("run_command:rm *",)), "ls; rm -rf .", RUN, "deny"),
        (Rules(ask=("run_command",)), "ls", READ, "ask"),
        (Rules(yes=True), "ls", RUN, "allow"),
        (Rules(), "ls", RUN, "ask"),
    ],
)
def test_rules_decide_by_tool_and_command(rules, call, effects, verdict):
    tool = FunctionTool(run, effects=effects, name="run_command")
    assert rules.judge(Call("run_command", {"command": call}), tool).verdict == verdict


def test_a_grant_names_the_very_command_for_what_executes_and_the_tool_for_the_rest():
    asked = Judgement("ask")
    assert grant(LIST, RUN, asked) == "run_command:ls -l"
    assert grant(Call("write_file", {"path": "a.txt"}), WRITE, asked) == "write_file"


async def test_always_said_of_other_calls_does_not_answer_a_rule_that_asks():
    rules = Rules(workspace=Path("/work"), ask=("write_file:secrets/*",))
    user = Says("project", "no", "project", "no")
    approvals, kept = desk(user, rules)
    other, secret = (Call("write_file", {"path": path}) for path in ("notes.txt", "secrets/k"))
    assert [bool(await refusal(approvals, call, WRITE)) for call in (other, other, secret, secret, secret)] == [
        *(False, False),
        *(True, False, False),
    ]
    again, _ = desk(Says(), rules, granted=kept)
    assert [bool(await refusal(again, call, WRITE)) for call in (other, secret)] == [False, False]
    assert "that this asks about" in user.asked[1].reason


BLOCKED = """
import asyncio, threading
from ecoshell.agent.approval import Approvals, ApprovalRequest, Rules
from ecoshell.agent import NonInteractive
from ecoshell.messages import Call
from ecoshell.tools.function import FunctionTool

def run(path: str) -> str:
    "Does something."
    return path

blocked = threading.Event()

def endless(path: str) -> str:
    blocked.set()
    threading.Event().wait(600)
    return ""

async def main():
    tool = FunctionTool(run, effects=("write",), preview=endless)
    approvals = Approvals(Rules(), NonInteractive(), granted=(), remember=print)
    wanted = ApprovalRequest(Call("run", {"path": "a"}), tool, tool.schema)
    asking = asyncio.create_task(approvals.rule(wanted, print))
    while not blocked.is_set():
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait([asking])
    print("ended")

asyncio.run(main())
"""


def test_a_preview_that_never_ends_keeps_nobody_from_leaving():
    ended = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, timeout=600, check=True)
    assert ended.stdout == b"ended\n"
