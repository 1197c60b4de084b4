"""What the line shell asks, typed word for word."""

import asyncio

import pytest

from ecoshell.agent import Approval, CostChoice, LimitChoice
from ecoshell.cli.parser import Interrupted
from ecoshell.cli.person import LinePerson
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, TrustWanted

DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-one\n+ONE"
WANTED = ApprovalWanted(
    "c1", "write_file", {"path": "notes.txt"}, ("write",), "It would change files.",
    "Capitals are wanted.", 2_000_000, DIFF,
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
    """Types these lines, and keeps what it was shown; an exception among the lines is raised."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.shown = []
        self.person = LinePerson(self.read, self.shown.append)

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
        """What comes of the question when its event is read, as it is in a chat."""
        calls = {ApprovalWanted: "approve", LimitHit: "at_limit", CostWanted: "at_cost", TrustWanted: "trust"}
        waiting = asyncio.ensure_future(getattr(self.person, calls[type(event)])(event))
        await asyncio.sleep(0)
        await self.person.meet(event)
        return await waiting


async def test_an_approval_shows_the_reason_the_price_and_what_would_change():
    typist = Typist("y")
    assert await typist.decided(WANTED) == Approval("once")
    assert "why: Capitals are wanted." in typist.screen
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
async def test_arguments_are_edited_as_a_line_of_json(typed, approval):
    assert await Typist(*typed).decided(WANTED) == approval


async def test_what_a_server_asks_is_shown_in_lines_and_answered_this_once():
    typist = Typist("y")
    form = ApprovalWanted("f0", "asks:form", {"name": "Jo"}, ("network",), "It asks.", "Who?\n- name (string)")
    assert await typist.decided(form) == Approval("once")
    assert '? asks:form(name="Jo")' in typist.shown
    assert "  - name (string)" in typist.shown
    assert "project" not in typist.screen


async def test_json_that_cannot_be_read_is_told_with_its_place():
    typist = Typist("e", '{"path": }', "", "n")
    await typist.decided(WANTED)
    assert "This is not JSON: Expecting value (line 1, column 10)." in typist.screen


async def test_a_question_that_comes_back_says_what_was_wrong_and_keeps_the_arguments():
    typist = Typist("y")
    again = ApprovalWanted("c1", "write_file", {"path": 3}, ("write",), "It would.", fault="path: 3 is no text")
    assert await typist.decided(again) == Approval("once", {"path": 3})
    assert "cannot be used: path: 3 is no text" in typist.screen


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
async def test_at_a_limit_a_number_takes_an_offer_and_enter_the_proposed_cap(typed, choice):
    assert await Typist(*typed).decided(HIT) == choice


async def test_offers_say_where_they_run_what_they_cost_and_whether_they_fit():
    typist = Typist("s")
    await typist.decided(HIT)
    assert "[1] embedded (local): $0 at most, 4,100 tokens at most\n" in typist.screen
    assert (
        "[2] openai/small (remote): $0.0012 at most, 9,300 tokens at most; may not fit under the caps" in typist.screen
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
async def test_an_expensive_step_is_asked_about_in_line(typed, choice):
    typist = Typist(*typed)
    assert await typist.decided(COST) == choice
    assert "openai/large costs from $0.012 to $0.084 at most" in typist.screen


@pytest.mark.parametrize(("typed", "word"), [(["y"], "yes"), (["what?", "n"], "no"), (["l"], "later"), ([], "later")])
async def test_a_projects_instructions_are_shown_and_asked_about_in_line(typed, word):
    typist = Typist(*typed)
    assert await typist.decided(TRUST) == word
    assert "may the model follow /home/me/project/AGENTS.md, which has changed" in typist.screen
    assert "  Use tabs.\n  No ␛[31mred." in typist.screen


async def test_a_question_whose_event_nobody_reads_is_asked_all_the_same_and_once():
    typist = Typist("g")
    assert await typist.person.at_cost(COST) == CostChoice("go")
    await typist.person.meet(COST)  # read at last
    assert typist.screen.count("openai/large costs") == 1


async def test_control_c_at_such_a_question_refuses():
    typist = Typist(Interrupted())
    assert await typist.person.approve(WANTED) == Approval("no")


async def test_a_question_is_withdrawn_when_the_turn_is_stopped():
    began = asyncio.Event()

    async def read(prompt):
        began.set()
        await asyncio.Event().wait()

    person = LinePerson(read, lambda line: None)
    waiting = asyncio.ensure_future(person.approve(WANTED))
    reading = asyncio.ensure_future(person.meet(WANTED))
    await began.wait()
    waiting.cancel()
    await asyncio.wait_for(reading, 600)
    assert waiting.cancelled()
