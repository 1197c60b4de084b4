import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from agent_play import User

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


def run(
    command: Annotated[str | None, Subject.COMMAND] = None,
    path: Annotated[str | None, Subject.PATH] = None,
    times: int = 1,
) -> str:
    """Does something."""
    return f"{command}{path}" * times


def desk(user, rules=NO_RULES, granted=()):
    grants: list[str] = []
    return Approvals(rules, user, granted=granted, remember=grants.append), grants


async def ruling(approvals, call, effects, emit=lambda _: None):
    tool = FunctionTool(run, effects=effects, name=call.name)
    return await approvals.rule(ApprovalRequest(call, tool, tool.schema), emit)


async def refusal(approvals, call, effects, emit=lambda _: None):
    return (await ruling(approvals, call, effects, emit)).refusal


async def test_reading_needs_no_approval():
    approvals, _ = desk(NonInteractive())
    assert await refusal(approvals, Call("read_file", {"path": "a"}), READ) == ""


async def test_without_a_user_a_writing_call_is_refused_with_a_reason():
    approvals, _ = desk(NonInteractive())
    events: list[object] = []
    reason = await refusal(approvals, Call("write_file", {"path": "a"}, "c1"), WRITE, events.append)
    assert "not approved" in reason
    assert isinstance(events[0], ApprovalWanted)
    assert isinstance(events[1], ApprovalGiven)
    assert events[1].by == "nobody"


async def test_once_holds_for_one_call_and_session_for_all():
    approvals, grants = desk(User("once", "session"))
    for _ in range(3):
        assert await refusal(approvals, LIST, RUN) == ""
    assert grants == []


async def test_approval_for_the_project_is_stored_and_applies_to_later_sessions():
    approvals, grants = desk(User("project"))
    assert await refusal(approvals, LIST, RUN) == ""
    again, _ = desk(User("no"), granted=grants)
    assert await refusal(again, LIST, RUN) == ""


async def test_approving_one_command_approves_no_other():
    approvals, _ = desk(User("session", "no"))
    assert await refusal(approvals, LIST, RUN) == ""
    assert await refusal(approvals, Call("run_command", {"command": "rm -rf ."}), RUN)


async def test_read_only_refuses_writing_even_with_yes():
    approvals, _ = desk(User(), Rules(read_only=True, yes=True))
    assert "read-only" in await refusal(approvals, Call("write_file", {"path": "a"}), WRITE)


async def test_an_approval_request_states_reason_effects_and_price():
    user = User("once")
    approvals, _ = desk(user)
    tool = FunctionTool(run, effects=RUN, name="run_command", price_nano=2_000_000)
    await approvals.rule(
        ApprovalRequest(LIST, tool, tool.schema, "I need to list the files."), lambda _: None
    )
    request = user.asked[0]
    assert (request.rationale, request.effects, request.price_nano) == (
        "I need to list the files.",
        ("execute",),
        2_000_000,
    )
    assert "run a program" in request.reason


async def test_the_user_can_edit_the_arguments():
    approvals, _ = desk(User(Approval("once", {"command": "ls"})))
    events: list[object] = []
    ruled = await ruling(approvals, LIST, RUN, events.append)
    assert ruled.call == Call("run_command", {"command": "ls"}, "c1")
    assert events[-1] == ApprovalGiven("c1", "once", "person", {"command": "ls"})


async def test_unchanged_arguments_do_not_count_as_edited():
    approvals, _ = desk(User(Approval("once", {"command": "ls -l"})))
    events: list[object] = []
    await ruling(approvals, LIST, RUN, events.append)
    assert events[-1] == ApprovalGiven("c1", "once", "person", None)


async def test_edited_arguments_that_do_not_fit_the_schema_are_requested_again_with_the_reason():
    user = User(Approval("once", {"times": "many"}), Approval("once", {"times": 2}))
    approvals, _ = desk(user)
    ruled = await ruling(approvals, LIST, RUN)
    assert "times" in user.asked[1].fault
    assert user.asked[1].arguments == {"times": "many"}
    assert ruled.call.arguments == {"times": 2}


async def test_a_deny_rule_also_applies_to_arguments_the_user_edited():
    approvals, _ = desk(
        User(Approval("once", {"command": "rm -rf ."})), Rules(deny=("run_command:rm *",))
    )
    events: list[object] = []
    ruled = await ruling(approvals, LIST, RUN, events.append)
    assert "a rule" in ruled.refusal
    assert (events[-1].decision, events[-1].by) == ("no", "rule")


async def test_a_stored_approval_covers_the_edited_call():
    approvals, grants = desk(User(Approval("project", {"command": "ls"}), "no"))
    await ruling(approvals, LIST, RUN)
    assert grants == ["run_command:ls"]
    assert await refusal(approvals, Call("run_command", {"command": "ls"}), RUN) == ""
    assert "not approved" in await refusal(approvals, LIST, RUN)


async def test_a_failed_preview_leaves_the_approval_request_without_changes():
    user = User("once")
    approvals, _ = desk(user)

    def broken(**_):
        raise RuntimeError("a defect of the tool")

    tool = FunctionTool(run, effects=WRITE, name="write_file", preview=broken)
    await approvals.rule(
        ApprovalRequest(Call("write_file", {"path": "a"}, "c1"), tool, tool.schema), lambda _: None
    )
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


def test_a_grant_covers_one_exact_command_or_any_call_of_another_tool():
    judgement = Judgement("ask")
    assert grant(LIST, RUN, judgement) == "run_command:ls -l"
    assert grant(Call("write_file", {"path": "a.txt"}), WRITE, judgement) == "write_file"


async def test_a_stored_approval_of_other_calls_does_not_satisfy_an_ask_rule():
    rules = Rules(workspace=Path("/work"), ask=("write_file:secrets/*",))
    user = User("project", "no", "project", "no")
    approvals, grants = desk(user, rules)
    other, secret = (Call("write_file", {"path": path}) for path in ("notes.txt", "secrets/k"))
    assert [
        bool(await refusal(approvals, call, WRITE))
        for call in (other, other, secret, secret, secret)
    ] == [
        *(False, False),
        *(True, False, False),
    ]
    again, _ = desk(User(), rules, granted=grants)
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


def test_a_preview_that_never_ends_does_not_keep_the_process_alive():
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, timeout=600, check=True
    )
    assert ended.stdout == b"ended\n"
