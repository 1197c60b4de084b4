"""The advisor: a stronger model that the session's model asks, under a share of what is left."""

import json
from decimal import Decimal

import pytest
from agent_play import finish, is_replayed, of, say, turn
from ledger_totals import wrong_totals

from ecoshell.agent.advisor import EMPTY_ANSWER, is_stuck
from ecoshell.budget import NANO
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.events import (
    AdviceFollowed,
    AdvisorReplied,
    BudgetSettled,
    CallFinished,
    Notice,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.messages import Call, Observation
from ecoshell.models.script import ScriptModel
from ecoshell.strategies import Step

PRICE = (Decimal(1), Decimal(4))
USAGE = {"input": 500, "output": 50}
ADVICE = say("Read notes.txt instead.", usage=USAGE)
MISSING = [say("", "read_file", path=f"missing{at}.txt") for at in range(4)]
READ = say("", "read_file", path="notes.txt")


@pytest.fixture
def advisor(home, tmp_path):
    """Write the script of a model that costs ten times as much; returns its name."""

    def write(*lines):
        script = tmp_path / "advisor.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        config = tmp_path / "home" / "config"
        config.mkdir(parents=True, exist_ok=True)
        name = f"script:{script}"
        price = f'[models.{json.dumps(name)}.price]\ninput = "10"\noutput = "40"\n'
        (config / "config.toml").write_text(price)
        return name

    return write


async def test_model_asks_at_a_decision_point_and_the_cost_is_a_row_of_its_own(play, advisor):
    lines = [say("", "ask_advisor", question="Which file?"), READ, finish("3 lines")]
    async with play(
        lines, advisor=advisor(ADVICE), price=PRICE, budget="1.00", registration="all"
    ) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
        cost = (await shell.command("/cost")).text
        roles = {row.key: row.spent_nano for row in shell.ledger.rows("role", shell.session)}
    (reply,) = of(events, AdvisorReplied)
    assert (reply.question, reply.advice, reply.automatic) == (
        "Which file?",
        "Read notes.txt instead.",
        False,
    )
    assert round(float(reply.spent_usd) * NANO) == roles["advisor"] == 500 * 10_000 + 50 * 40_000
    assert of(events, CallFinished)[0].observation == "Read notes.txt instead."
    assert of(events, TurnFinished)[0].spent_nano > roles["advisor"]
    assert any(line.startswith("advisor") for line in cost.splitlines())


async def test_advisor_reads_the_tools_the_request_and_the_steps(play, advisor, monkeypatch):
    requests, stream = [], ScriptModel.stream

    def record(self, request):
        requests.append(request)
        return stream(self, request)

    monkeypatch.setattr(ScriptModel, "stream", record)
    async with play([*MISSING, finish("gone")], advisor=advisor(ADVICE)) as shell:
        await turn(shell, "How many lines?")
    (request,) = (request for request in requests if request.purpose == "sample")
    text = request.messages[-1].text
    tools, _, rest = text.partition("\n\n")
    assert "\nread_file(path, start_line, end_line): Read a text file" in tools
    assert "\ngit_log(revision, path, count): " in tools
    assert "ask_advisor" not in tools
    assert rest.startswith("The request:\nHow many lines?\n\nDone so far:\nread_file(path=")
    assert request.max_tokens == 8_192  # a model that reasons needs most of it before it writes


async def test_advice_that_ends_in_reasoning_is_reported(play, advisor):
    async with play([*MISSING, finish("gone")], advisor=advisor(say("", usage=USAGE))) as shell:
        events = await turn(shell)
    assert any("wrote no advice" in note.text for note in of(events, Notice))
    assert not of(events, AdvisorReplied)


async def test_stuck_model_gets_advice_once_in_a_turn(play, advisor):
    lines = [*MISSING, READ, finish("3 lines"), *MISSING[:3], finish("gone")]
    async with play(
        lines, advisor=advisor(ADVICE, ADVICE), price=PRICE, registration="all"
    ) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
        again = await turn(shell, "And the others?")
    results = [event.observation for event in of(events, CallFinished)]
    advised = ["Advice from a stronger model: Read notes.txt" in text for text in results]
    assert advised == [False, False, True, False, False]
    (reply,) = of(events, AdvisorReplied)
    assert reply.automatic
    (followed,) = of(events, AdviceFollowed)
    assert (followed.before, followed.call) == (
        'read_file(path="missing2.txt")',
        'read_file(path="missing3.txt")',
    )
    assert len(of(again, AdvisorReplied)) == 1


def edit(name):
    return say("", "edit_file", path=name, old_text="a", new_text="b")


@pytest.mark.parametrize(
    "failing",
    [MISSING[:3], [edit(f"missing{at}.txt") for at in range(4)]],
    ids=["concurrent", "in order"],
)
async def test_advice_comes_after_all_failing_calls_of_one_reply(play, advisor, failing):
    reply = {"calls": [line["call"] for line in failing]}
    options = {"advisor": advisor(ADVICE), "registration": "all", "yes": True}
    async with play([reply, READ, finish("3 lines")], **options) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
    (advice,) = of(events, AdvisorReplied)
    ended = [event for event in events[: events.index(advice)] if isinstance(event, CallFinished)]
    assert len(ended) == len(failing) - 1  # the last one ends with the advice
    assert [followed.call for followed in of(events, AdviceFollowed)] == [
        'read_file(path="notes.txt")'
    ]


async def test_empty_answer_is_given_again_after_advice(play, advisor):
    async with play(
        [say(""), say("There are 3 lines.")], advisor=advisor(ADVICE), registration="all"
    ) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
    assert of(events, AdvisorReplied)[0].question == EMPTY_ANSWER
    assert of(events, TurnFinished)[0].answer == "There are 3 lines."


async def test_advice_stays_within_its_share(play, advisor):
    lines = [say("", "ask_advisor", question=f"Which file, {at}?") for at in range(4)]
    script = advisor(*[ADVICE] * 4)
    async with play(
        [*lines, finish("done")], advisor=script, price=PRICE, budget="0.10", registration="all"
    ) as shell:
        events = await turn(shell)
        rows = {row.key: row for row in shell.ledger.rows("role", shell.session)}
        assert wrong_totals(shell.ledger) == ()
    results = [event.observation for event in of(events, CallFinished)]
    assert "advisor's share (30% of the remaining budget) does not allow" in results[-1]
    assert 0 < rows["advisor"].spent_nano <= 30_000_000
    assert of(events, TurnFinished)[0].status == "answered"


async def test_tool_is_offered_only_with_an_advisor(play, advisor):
    name = advisor(ADVICE)
    async with play([finish("1"), finish("2"), finish("3")]) as shell:
        first = of(await turn(shell), ToolsOffered)[0]
        printed = (await shell.command(f"/role advisor {name}")).text
        assert (
            next(line for line in printed.splitlines() if line.startswith("advisor")).split()[1]
            == name
        )
        second = of(await turn(shell, "And?"), ToolsOffered)[0]
        await shell.command("/role advisor -")
        third = of(await turn(shell, "And?"), ToolsOffered)[0]
        with pytest.raises(UsageError, match="needs a model"):
            await shell.command("/role advisor")
        with pytest.raises(ModelMissing):
            await shell.command("/role advisor script:missing.jsonl")
    assert ["ask_advisor" in (*offer.names, *offer.loaded) for offer in (first, second, third)] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(("budget", "warned"), [("0.10", True), ("20000tok", False)])
async def test_an_advisor_of_unknown_price_is_announced_under_a_cap_in_dollars(
    play, budget, warned
):
    async with play([finish("1")], price=PRICE, budget=budget) as shell:
        printed = (await shell.command("/role advisor nonsense/x")).text
    text = "The advisor will not be asked under this cap. The price of nonsense/x is unknown"
    assert (text in printed) is warned


async def test_resumed_session_has_its_advisor_again(play, advisor):
    name = advisor(ADVICE)
    async with play([finish("1")], advisor=name) as shell:
        await turn(shell)
        session = shell.session
    async with play([finish("2")], resume=session) as shell:
        assert shell.deps.settings.advisor == name
        assert "ask_advisor" in of(await turn(shell, "And?"), ToolsOffered)[0].loaded
    async with play([finish("3")]) as shell:
        await shell.command(f"/resume {session}")
        assert shell.deps.settings.advisor == name


async def test_unavailable_advisor_of_the_options_is_refused_at_the_start(play):
    with pytest.raises(ModelMissing, match=r"^nosuch cannot be the advisor\. There is no model"):
        async with play([], advisor="nosuch"):
            pass


async def test_unavailable_models_of_the_settings_are_reported_at_the_start(play, tmp_path):
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[agent]\nadvisor = "nosuch"\ntask_model = "nosuch2"\n')
    async with play([finish("1")]) as shell:
        events = await turn(shell)
    texts = [note.text for note in of(events, Notice)]
    for start in ("nosuch cannot be the advisor.", "nosuch2 cannot be the model of subagents."):
        assert any(text.startswith(start) for text in texts)
    offer = of(events, ToolsOffered)[0]
    assert "ask_advisor" not in (*offer.names, *offer.loaded)


async def test_resumed_session_without_its_advisor_goes_on(play, advisor, tmp_path):
    async with play([finish("1")], advisor=advisor(ADVICE)) as shell:
        await turn(shell)
        session = shell.session
    (tmp_path / "advisor.jsonl").unlink()
    async with play([finish("2")], resume=session) as shell:
        events = await turn(shell, "And?")
    assert of(events, TurnFinished)[0].status == "answered"
    assert "ask_advisor" not in of(events, ToolsOffered)[0].loaded
    async with play([finish("3")]) as shell:
        await shell.command(f"/resume {session}")
        assert shell.deps.settings.advisor is None


async def test_failing_advisor_leaves_the_turn_alone(play, advisor):
    lines = [*MISSING[:3], finish("nothing found")]
    async with play(lines, advisor=advisor(), registration="all") as shell:
        events = await turn(shell)
    assert [
        note.text
        for note in of(events, Notice)
        if note.text.startswith("The advisor gave no advice.")
    ]
    assert of(events, TurnFinished)[0].status == "answered"
    assert not [event for event in of(events, BudgetSettled) if event.role == "advisor"]


@pytest.mark.parametrize(
    ("outcomes", "stuck"),
    [("xxx", True), ("xx", False), ("oxxx", True), ("xxo", False), ("xdx", False), ("rxxrx", True)],
)
def test_stuck_means_three_calls_without_a_result(outcomes, stuck):
    observations = {
        "x": Observation("no", ok=False),
        "o": Observation("yes"),
        "d": Observation("no", ok=False, refused="unapproved"),
        "r": Observation("registered"),
    }
    names = {"r": "tool_register"}
    steps = [
        Step("", Call(names.get(sign, "read_file"), {}), observations[sign]) for sign in outcomes
    ]
    assert is_stuck(steps) is stuck
