"""Questions of the line shell, answered word by word."""

import asyncio
from dataclasses import replace

import pytest

from ecoshell.agent import Approval, CostChoice, LimitChoice
from ecoshell.cli.line_user import LineUser
from ecoshell.cli.signals import Interrupted
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, TrustWanted

DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-one\n+ONE"
WANTED = ApprovalWanted(
    "c1", "write_file", {"path": "notes.txt"}, ("write",), "It would change files.",
    "Use capitals.", 2_000_000, DIFF,
)  # fmt: skip
OFFERS = (
    ModelOffer("embedded", True, 0, 4_100, True),
    ModelOffer("openai/small", False, 1_200_000, 9_300, False),
    ModelOffer("openai/odd", False, None, 9_300, False),
)
HIT = LimitHit("session", "usd", 12_000_000, 4_000_000, "No room.", OFFERS, 530_000_000)
TRUST = TrustWanted("/home/me/project/AGENTS.md", "Use tabs.\nNo \x1b[31mred.", changed=True)
COST = CostWanted("single", "openai/large", 12_000_000, 84_000_000, 50_000_000, OFFERS)


class Typist:
    """Types these lines and records the screen; an exception among the lines is raised."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.shown = []
        self.user = LineUser(self.read, self.shown.append)

    async def read(self, prompt):
        self.shown.append(prompt)
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    @property
    def screen(self):
        return "\n".join(self.shown)

    async def decided(self, event):
        """Return the decision when the event is read, as in a chat."""
        calls = {
            ApprovalWanted: "approve",
            LimitHit: "at_limit",
            CostWanted: "at_cost",
            TrustWanted: "trust",
        }
        waiting = asyncio.ensure_future(getattr(self.user, calls[type(event)])(event))
        await asyncio.sleep(0)
        await self.user.answer(event)
        return await waiting


async def test_approval_shows_reason_price_and_changes():
    typist = Typist("y")
    assert await typist.decided(WANTED) == Approval("once")
    assert "why: Use capitals." in typist.screen
    assert "One use costs $0.002." in typist.screen
    assert "  -one\n  +ONE" in typist.screen


@pytest.mark.parametrize(
    ("typed", "approval"),
    [
        (["e", '{"path": "b"}', "y"], Approval("once", {"path": "b"})),
        (["e", "{", "[1]", '{"path": "b"}', "s"], Approval("session", {"path": "b"})),
        (["e", "", "y"], Approval("once")),
        (["e", '{"path": "b"}', "n"], Approval("no")),
        (["d", "", "3"], Approval("project")),
        (["d", "Append to it."], Approval("no", instead="Append to it.")),
        (["No, append to it: twice."], Approval("no", instead="append to it: twice.")),
    ],
)
async def test_approval_accepts_edited_arguments_and_instructions(typed, approval):
    assert await Typist(*typed).decided(WANTED) == approval


async def test_request_of_a_server_is_shown_and_approved_once():
    typist = Typist("y")
    form = ApprovalWanted(
        "f0", "asks:form", {"name": "Jo"}, ("network",), "It asks.", "Who?\n- name (string)"
    )
    assert await typist.decided(form) == Approval("once")
    assert typist.shown[:2] == ["? asks asks", '  asks:form(name="Jo")']
    assert "  - name (string)" in typist.shown
    assert "project" not in typist.screen


async def test_all_of_a_write_is_shown_before_its_approval():
    lines = [f"line {number}" for number in range(60)]
    arguments = {"path": "a", "content": "\n".join(lines)}
    diff = "\n".join(
        ["--- /dev/null", "+++ b/a", "@@ -0,0 +1,60 @@", *(f"+{line}" for line in lines)]
    )
    typist = Typist("n")
    await typist.decided(replace(WANTED, arguments=arguments, changes=diff))
    assert "  +line 59" in typist.shown
    assert '  write_file(path="a")' in typist.shown
    for cut in (
        f"{diff[:200]}\n[truncated: the diff continues]",
        f"{diff[:200]}…",
        "[too large to show]",
    ):
        typist = Typist("n")
        await typist.decided(replace(WANTED, arguments=arguments, changes=cut))
        assert "line 59" in typist.screen


async def test_invalid_json_is_reported_with_its_place():
    typist = Typist("e", '{"path": }', "", "n")
    await typist.decided(WANTED)
    assert "This is not JSON: Expecting value (line 1, column 10)." in typist.screen


async def test_repeated_approval_shows_the_fault_and_keeps_the_arguments():
    typist = Typist("y")
    again = ApprovalWanted(
        "c1", "write_file", {"path": 3}, ("write",), "It would.", fault="path: 3 is not text"
    )
    assert await typist.decided(again) == Approval("once", {"path": 3})
    assert "invalid arguments: path: 3 is not text" in typist.screen


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        (["1"], LimitChoice("model", "embedded")),
        (["9", "2"], LimitChoice("model", "openai/small")),
        (["r", ""], LimitChoice("raise", "0.53")),
        (["r", "2"], LimitChoice("raise", "2")),
        (["r"], LimitChoice("stop")),
        (["r", EOFError(), "a"], LimitChoice("answer")),
        (["m", "", "a"], LimitChoice("answer")),
        ([], LimitChoice("stop")),
    ],
)
async def test_limit_accepts_an_offer_by_number_and_the_proposed_cap_by_enter(typed, choice):
    assert await Typist(*typed).decided(HIT) == choice


async def test_offers_show_place_cost_and_whether_they_fit():
    typist = Typist("s")
    await typist.decided(HIT)
    assert "[1] embedded (local): $0 at most, 4,100 tokens at most\n" in typist.screen
    assert (
        "[2] openai/small (remote): $0.0012 at most, 9,300 tokens at most; may not fit under the caps"
        in typist.screen
    )
    assert "[3] openai/odd (remote): price unknown" in typist.screen


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        (["g"], CostChoice("go")),
        (["D"], CostChoice("always")),
        (["x", "a"], CostChoice("answer")),
        (["1"], CostChoice("model", "embedded")),
        (["m", "local:My Model.gguf"], CostChoice("model", "local:My Model.gguf")),
        (["s"], CostChoice("stop")),
        ([], CostChoice("stop")),
    ],
)
async def test_expensive_step_is_asked(typed, choice):
    typist = Typist(*typed)
    assert await typist.decided(COST) == choice
    assert "openai/large may cost $0.012 to $0.084" in typist.screen


@pytest.mark.parametrize(
    ("typed", "word"), [(["y"], "yes"), (["what?", "n"], "no"), (["l"], "later"), ([], "later")]
)
async def test_project_instructions_are_shown_before_they_are_trusted(typed, word):
    typist = Typist(*typed)
    assert await typist.decided(TRUST) == word
    assert (
        "may the model follow AGENTS.md of this project, which has changed · /home/me"
        in typist.screen
    )
    assert "  Use tabs.\n  No ␛[31mred." in typist.screen


async def test_question_without_its_event_is_asked_once():
    typist = Typist("g")
    assert await typist.user.at_cost(COST) == CostChoice("go")
    await typist.user.answer(COST)  # the event arrives late
    assert typist.screen.count("openai/large may cost") == 1


async def test_ctrl_c_at_a_question_without_its_event_denies():
    typist = Typist(Interrupted())
    assert await typist.user.approve(WANTED) == Approval("no")


async def test_question_is_withdrawn_when_the_turn_is_stopped():
    began = asyncio.Event()

    async def read(prompt):
        began.set()
        await asyncio.Event().wait()

    user = LineUser(read, lambda line: None)
    waiting = asyncio.ensure_future(user.approve(WANTED))
    reading = asyncio.ensure_future(user.answer(WANTED))
    await began.wait()
    waiting.cancel()
    await asyncio.wait_for(reading, 600)
    assert waiting.cancelled()
