import pytest

from ecoshell.agent.approval import Approvals, Rules, grant
from ecoshell.agent.person import Approval, LimitChoice, Nobody
from ecoshell.events import ApprovalGiven, ApprovalWanted
from ecoshell.messages import Call

READ, WRITE, RUN = frozenset({"read"}), frozenset({"write"}), frozenset({"execute"})
NO_RULES = Rules()
LIST = Call("run_command", {"command": "ls -l"}, "c1")


class Says:
    """A person who gives these decisions, one after the other."""

    def __init__(self, *decisions):
        self.decisions = list(decisions)

    async def approve(self, wanted):
        return Approval(self.decisions.pop(0))

    async def at_limit(self, hit):
        return LimitChoice("stop")


def desk(person, rules=NO_RULES, granted=()):
    kept: list[str] = []
    return Approvals(rules, lambda: person, granted=granted, remember=kept.append), kept


async def test_reading_needs_no_approval():
    approvals, _ = desk(Nobody())
    assert await approvals.refusal(Call("read_file", {"path": "a"}), READ, lambda _: None) == ""


async def test_without_a_person_what_writes_is_refused_and_the_model_is_told():
    approvals, _ = desk(Nobody())
    seen: list[object] = []
    refusal = await approvals.refusal(Call("write_file", {"path": "a"}, "c1"), WRITE, seen.append)
    assert "not approved" in refusal
    assert isinstance(seen[0], ApprovalWanted)
    assert isinstance(seen[1], ApprovalGiven)


async def test_once_is_asked_again_and_session_is_not():
    approvals, kept = desk(Says("once", "session"))
    for _ in range(3):
        assert await approvals.refusal(LIST, RUN, lambda _: None) == ""
    assert kept == []


async def test_always_in_the_project_is_kept_and_holds_the_next_time():
    approvals, kept = desk(Says("project"))
    assert await approvals.refusal(LIST, RUN, lambda _: None) == ""
    again, _ = desk(Says("no"), granted=kept)
    assert await again.refusal(LIST, RUN, lambda _: None) == ""


async def test_allowing_one_command_allows_no_other():
    approvals, _ = desk(Says("session", "no"))
    assert await approvals.refusal(LIST, RUN, lambda _: None) == ""
    assert await approvals.refusal(Call("run_command", {"command": "rm -rf ."}), RUN, lambda _: None)


async def test_read_only_refuses_writing_even_with_yes():
    approvals, _ = desk(Says(), Rules(read_only=True, yes=True))
    assert "read-only" in await approvals.refusal(Call("write_file", {"path": "a"}), WRITE, lambda _: None)


@pytest.mark.parametrize(
    ("rules", "call", "effects", "verdict"),
    [
        (Rules(allow=("run_command:git status*",)), "git status -s", RUN, "allow"),
        (Rules(allow=("run_command:git status*",)), "git status; rm -rf .", RUN, "ask"),
        (Rules(allow=("run_command:git status*",)), "git status $(rm x)", RUN, "ask"),
        (Rules(allow=("run_command",), deny=("run_command:rm *",)), "rm -rf .", RUN, "deny"),
        (Rules(yes=True, deny=("run_command:rm *",)), "ls; rm -rf .", RUN, "allow"),
        (Rules(ask=("run_command",)), "ls", READ, "ask"),
        (Rules(yes=True), "ls", RUN, "allow"),
        (Rules(), "ls", RUN, "ask"),
    ],
)
def test_rules_decide_by_tool_and_first_argument(rules, call, effects, verdict):
    assert rules.verdict(Call("run_command", {"command": call}), effects) == verdict


def test_a_grant_names_the_very_command_for_what_executes_and_the_tool_for_the_rest():
    assert grant(LIST, RUN) == "run_command:ls -l"
    assert grant(Call("write_file", {"path": "a.txt"}), WRITE) == "write_file"
