"""A tool graph is quoted before it starts; the user or the cap decides, and the bill stands beside the quote."""

import json
from decimal import Decimal

import pytest
from agent_play import ByTool, User, finish, is_replayed, of, register, say, turn

from ecoshell.agent import QuoteChoice
from ecoshell.budget import NANO
from ecoshell.events import (
    Bill,
    CallFinished,
    GraphPlanned,
    NodeChanged,
    Quote,
    QuoteChosen,
    SubagentFinished,
    TurnFinished,
    from_json,
    to_json,
)

PRICE = (Decimal(1), Decimal(4))
GRAPH = say('["count_text", ["<task>"], "list_files", ["<task>"], "calculate", ["count_text"]]')
USAGE = {"input": 400, "output": 40}
FILLED = [
    say("", "count_text", path="notes.txt", usage=USAGE),
    say("", "list_files", usage=USAGE),
    say("", "calculate", expression="1 + 2", usage=USAGE),
]
ANSWER = finish("Done.")


async def test_quote_and_bill_stand_together(play):
    async with play(
        [GRAPH, *FILLED, ANSWER],
        strategy="graph",
        registration="all",
        price=PRICE,
        recorder=ByTool,
    ) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
        cost = (await shell.command("/cost")).text
    (quote,), (bill,) = of(events, Quote), of(events, Bill)
    assert (quote.kind, quote.nodes, quote.labels) == (
        "graph",
        3,
        ("count_text", "list_files", "calculate"),
    )
    assert quote.low_usd < quote.expected_usd < quote.high_usd
    assert quote.low_seconds < quote.seconds < quote.high_seconds
    assert not quote.reason  # without a cap nothing is asked
    assert bill.id == quote.id
    assert round(float(bill.spent_usd) * NANO) == 3 * (400 * 1_000 + 40 * 4_000)
    assert [from_json(json.loads(json.dumps(to_json(event)))) for event in (quote, bill)] == [
        quote,
        bill,
    ]
    assert "1 of 1 bills are within their quote." in cost or "0 of 1 bills" in cost
    assert "tool graph" in cost


async def test_a_single_node_and_disabled_quotes_need_no_quote(play):
    single = say('["list_files", ["<task>"]]')
    async with play(
        [single, FILLED[1], ANSWER, GRAPH, *FILLED, ANSWER],
        strategy="graph",
        registration="all",
        recorder=ByTool,
    ) as shell:
        assert not of(await turn(shell), Quote)
        shell.deps.settings.quote = "off"
        assert not of(await turn(shell, "All of it."), Quote)


@pytest.mark.parametrize(
    ("share", "choice", "names"),
    [
        (0.001, QuoteChoice("start"), ["count_text", "list_files", "calculate"]),
        (0.001, QuoteChoice("trim", ("count_text",)), ["list_files"]),
        (0.001, QuoteChoice("refuse"), []),
        (1.0, None, ["count_text", "list_files", "calculate"]),
    ],
)
async def test_user_decides_about_work_that_takes_much_of_what_is_left(play, share, choice, names):
    lines = [GRAPH, *(line for line in FILLED if line["call"]["name"] in names), ANSWER]
    user = User(quote=choice)
    async with play(
        lines,
        user=user,
        strategy="graph",
        registration="all",
        price=PRICE,
        budget="1.00",
        recorder=ByTool,
    ) as shell:
        shell.deps.settings.quote_share = share
        events = await turn(shell)
    assert sorted(event.name for event in of(events, CallFinished)) == sorted(
        names
    )  # nodes run in parallel
    assert len(of(user.asked, Quote)) == (choice is not None)
    if choice is None:
        assert not of(events, QuoteChosen)
        return
    assert "of the remaining budget under the session's cap" in user.asked[0].reason
    (chosen,) = of(events, QuoteChosen)
    assert (chosen.choice, chosen.by) == (choice.kind, "person")
    assert len(of(events, GraphPlanned)) == (2 if choice.kind == "trim" else 1)
    assert len(of(events, Bill)) == (choice.kind != "refuse")
    assert of(events, TurnFinished)[0].status == (
        "limit" if choice.kind == "refuse" else "answered"
    )
    if choice.kind == "trim":
        assert [quote.nodes for quote in of(events, Quote)] == [3, 1]
        assert {event.label for event in of(events, NodeChanged)} == {"list_files"}


async def test_without_a_user_the_cap_decides(play):
    lines = [GRAPH, GRAPH, ANSWER, ANSWER]
    async with play(
        lines, strategy="graph", registration="all", price=PRICE, budget="0.06"
    ) as shell:
        shell.deps.settings.plan = "off"
        shell.deps.catalog.tool("calculate").price_nano = 50_000_000
        events = await turn(shell)
    first, *_ = of(events, QuoteChosen)
    assert (first.choice, first.by) == ("refuse", "cap")
    assert "is expected to cost more than the $" in of(events, Quote)[0].reason
    assert not of(events, CallFinished)
    assert not of(events, Bill)
    assert of(events, TurnFinished)[0].spent_nano <= 60_000_000


def delegations(*instructions):
    calls = [{"name": "task", "arguments": {"instructions": text}} for text in instructions]
    return {"text": "", "calls": calls}


@pytest.fixture
def child(home, tmp_path):
    """Write the script of the subagents' model."""
    script = tmp_path / "child.jsonl"
    script.write_text(2 * (json.dumps(say("Three.", usage=USAGE)) + "\n"))
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True, exist_ok=True)
    name = json.dumps(f"script:{script}")
    price = f'[models.{name}.price]\ninput = "1"\noutput = "4"\n'
    (config / "config.toml").write_text(f"[agent]\ntask_model = {name}\n{price}")


@pytest.mark.parametrize(
    "choice", [QuoteChoice("start"), QuoteChoice("trim", ("2. Count b.",)), QuoteChoice("refuse")]
)
async def test_several_subagents_of_a_reply_are_quoted_together(play, child, choice):
    user = User(quote=choice)
    lines = [register("task"), delegations("Count a.", "Count b."), finish("Done.")]
    async with play(lines, user=user, price=PRICE, budget="1.00") as shell:
        shell.deps.settings.quote_share = 0.001
        events = await turn(shell)
        assert is_replayed(shell)
    count = {"start": 2, "trim": 1, "refuse": 0}[choice.kind]
    (quote,) = of(events, Quote)
    assert (quote.kind, quote.nodes, quote.labels) == ("tasks", 2, ("1. Count a.", "2. Count b."))
    assert len(of(events, SubagentFinished)) == count
    calls = [event for event in of(events, CallFinished) if event.name == "task"]
    assert sorted(event.refused for event in calls) == ["", ""][:count] + ["unapproved"] * (
        2 - count
    )
    assert [round(float(bill.spent_usd) * NANO) for bill in of(events, Bill)] == (
        [count * (400_000 + 160_000)] if count else []
    )


async def test_quotes_that_are_only_shown_ask_nothing(play):
    user = User(quote=QuoteChoice("refuse"))
    lines = [GRAPH, *FILLED, ANSWER]
    async with play(
        lines,
        user=user,
        strategy="graph",
        registration="all",
        price=PRICE,
        budget="1.00",
        recorder=ByTool,
    ) as shell:
        shell.deps.settings.quote, shell.deps.settings.quote_share = "show", 0.001
        events = await turn(shell)
    assert [quote.reason for quote in of(events, Quote)] == [""]
    assert not of(user.asked, Quote)
    assert len(of(events, Bill)) == 1


async def test_one_subagent_needs_no_quote(play, child):
    async with play(
        [register("task"), delegations("Count a."), finish("Done.")], price=PRICE
    ) as shell:
        assert not of(await turn(shell), Quote)
