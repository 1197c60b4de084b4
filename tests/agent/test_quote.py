"""A tool graph is quoted before it starts; the user or the cap decides, and the bill stands beside the quote."""

import asyncio
import json
import time
from decimal import Decimal
from itertools import chain
from types import SimpleNamespace

import pytest
from agent_play import ByTool, User, finish, is_replayed, of, register, say, turn, with_traits

from ecoshell.agent import CostChoice, QuoteChoice, turn_usage
from ecoshell.budget import NANO
from ecoshell.events import (
    ApprovalWanted,
    Bill,
    CallFinished,
    CostChosen,
    CostWanted,
    GraphPlanned,
    NodeChanged,
    Quote,
    QuoteChosen,
    SubagentFinished,
    ToolRegistered,
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


async def test_a_cap_in_time_counts_parallel_subagents_separately(play, child):
    lines = [register("task"), delegations("one", "two", "three", "four"), finish("Done.")]
    async with play(lines, price=PRICE, budget="60s") as shell:
        events = await turn(shell)
    (quote,) = of(events, Quote)
    assert quote.seconds < 45  # the time until the last one ends would fit
    assert quote.is_beyond
    assert "s of working time left for it under the session's cap" in quote.reason
    assert [(chosen.choice, chosen.by) for chosen in of(events, QuoteChosen)] == [("refuse", "cap")]
    assert not of(events, SubagentFinished)


def delegations(*instructions, **more):
    calls = [{"name": "task", "arguments": {"instructions": text, **more}} for text in instructions]
    return {"text": "", "calls": calls}


@pytest.fixture
def children(home, tmp_path):
    """Write the script of the subagents' model, with its prices; returns its name."""

    prices = {}

    def write(count, input_price="1", output_price="4", before=(), name="child.jsonl"):
        lines = [*before, *count * [say("Three.", usage=USAGE)]]
        script = tmp_path / name
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        config = tmp_path / "home" / "config"
        config.mkdir(parents=True, exist_ok=True)
        model = f"script:{script}"
        key = json.dumps(model)
        price = f'[models.{key}.price]\ninput = "{input_price}"\noutput = "{output_price}"\n'
        prices[key] = price
        tables = "".join(prices.values())
        (config / "config.toml").write_text(f"[agent]\ntask_model = {key}\n{tables}")
        return model

    return write


@pytest.fixture
def define_counter(home):
    """Define the agent `counter` with a share of half a cent."""

    def write():
        folder = home.parent / "home" / "config" / "agents"
        folder.mkdir()
        (folder / "counter.md").write_text("---\nbudget: 0.005\n---\nCount.\n")

    return write


@pytest.fixture
def child(children):
    children(2)


async def test_subagents_are_quoted_at_the_price_of_their_own_model(play, children):
    lines = [register("task"), delegations("Count a.", "Count b."), finish("Done.")]
    expected = []
    for child_price in (("0.3", "1.5"), ("3", "15")):
        children(2, *child_price)
        async with play(lines, price=(Decimal(3), Decimal(15))) as shell:
            shell.deps.settings.recording = False
            (quote,) = of(await turn(shell), Quote)
            expected.append(quote.expected_usd)
    assert expected[1] == pytest.approx(10 * expected[0])


async def test_with_experience_the_bills_of_subagents_are_within_their_quotes(play, children):
    turns = 4
    children(2 * turns)
    reply = delegations("Count a.", "Count b.") | {"usage": {"input": 50_000, "output": 5_000}}
    lines = [register("task"), *turns * [reply, finish("Done.")]]
    async with play(lines, price=PRICE) as shell:
        events = [event for _ in range(turns) for event in await turn(shell)]
    quotes, bills = of(events, Quote), of(events, Bill)
    assert [bill.is_within for bill in bills[1:]] == [True] * (turns - 1)
    assert quotes[-1].samples == 2 * (turns - 1)
    assert quotes[-1].expected_usd == pytest.approx(float(bills[0].spent_usd), rel=0.1)


async def test_the_command_task_is_experience_for_quotes(play, children):
    children(4)
    lines = [delegations("Count a.", "Count b."), finish("Done.")]
    async with play(lines, user=User(cost=CostChoice("go")), price=PRICE) as shell:
        for question in ("/task Count c.", "/task Count d."):
            (ended,) = of(await turn(shell, question), SubagentFinished)
        shell.deps.settings.ask_above_nano = 1
        (quote,) = of(await turn(shell), Quote)
    assert quote.samples == 2
    assert quote.expected_usd == pytest.approx(2 * float(ended.spent_usd), rel=0.1)
    assert "ask_above" in quote.reason


async def test_without_bills_after_the_command_task_a_subagent_has_the_price_of_usual_steps(
    play, children
):
    children(1)
    other = children(2, name="other.jsonl")
    lines = [delegations("Count a.", "Count b.", model=other), finish("Done.")]
    children(1)
    async with play(lines, price=PRICE) as shell:
        await turn(shell, "/task Count c.")
        (quote,) = of(await turn(shell), Quote)
    assert quote.samples == 0
    assert quote.low_usd > 0


async def test_subagents_are_quoted_by_the_bills_of_their_own_model_only(play, children):
    cheap, dear = children(2), children(4, "100", "400", name="dear.jsonl")
    models = (cheap, dear, dear)
    lines = [[delegations("a", "b", model=model), finish("Done.")] for model in models]
    async with play([register("task"), *chain(*lines)], price=PRICE) as shell:
        events = [event for _ in models for event in await turn(shell)]
    first, of_dear, again = of(events, Quote)
    assert (first.samples, of_dear.samples, again.samples) == (0, 0, 2)
    assert of_dear.expected_usd > 10 * first.expected_usd
    bill = float(of(events, Bill)[1].spent_usd)
    assert again.expected_usd == pytest.approx(bill, rel=0.1)


async def test_subagents_that_did_not_start_are_no_experience(play, children):
    children(2)
    failing = delegations("one", "two", agent="nosuch")
    lines = [register("task"), failing, delegations("Count a.", "Count b."), finish("Done.")]
    async with play(lines, price=PRICE) as shell:
        (quote,) = of(await turn(shell), Quote)
    assert quote.labels == ("1. Count a.", "2. Count b.")
    assert quote.samples == 0
    assert quote.low_usd > 0


class SlowUser(User):
    """Reads each question, then takes 1,000 s on its own clock for the decision."""

    now = 0.0

    def __init__(self, **decisions):
        super().__init__(**decisions)
        self.questions = asyncio.Queue()

    def monotonic(self):
        return time.monotonic() + self.now

    async def approve(self, request):
        await self.questions.get()
        self.now += 1_000
        return await super().approve(request)

    async def watch(self, events):
        async for event in events:
            if isinstance(event, ApprovalWanted):
                self.questions.put_nowait(event)
            yield event


def test_the_time_of_the_user_ends_with_the_last_of_several_cost_questions(monkeypatch):
    now = 0.0
    monkeypatch.setattr(turn_usage, "time", SimpleNamespace(monotonic=lambda: now))
    user_time = turn_usage.UserTime()
    asked, answered = CostWanted("single", "m", 1, 2, 1), CostChosen("go")
    totals = []
    for event in (asked, asked, answered, answered, answered, asked, answered):
        user_time.see(event)
        now += 1
        totals.append(user_time.seconds)
    assert totals == [1, 2, 3, 3, 3, 4, 4]


@pytest.mark.parametrize("kind", ["tasks", "graph"])
async def test_bills_and_experience_count_no_time_of_the_user(
    play, children, define_counter, monkeypatch, kind
):
    write = say("", "write_file", path="a.txt", content="a", usage=USAGE)
    user = SlowUser(approval="once")
    monkeypatch.setattr(turn_usage, "time", user)
    children(4, before=[write, write])
    define_counter()
    several = {"calls": [*delegations("a")["calls"], *delegations("b", agent="counter")["calls"]]}
    lines = [register("task"), *2 * [several, finish("Done.")]]
    if kind == "graph":
        graph = say('["write_file", ["<task>"], "list_files", ["<task>"]]')
        lines = 2 * [graph, write, FILLED[1], ANSWER]
    options = {"strategy": "graph", "registration": "all"} if kind == "graph" else {}
    async with play(lines, user=user, price=PRICE, recorder=ByTool, **options) as shell:
        events = [event for _ in range(2) async for event in user.watch(shell.ask("Go on."))]
    assert user.now >= 1_000
    assert all(bill.seconds < 1_000 for bill in of(events, Bill))
    first, second = of(events, Quote)
    assert second.samples > first.samples
    assert second.seconds < 1_000


@pytest.mark.parametrize("defined", [False, True], ids=["in the call", "in the definition"])
async def test_a_quote_stays_within_the_stated_shares(play, children, define_counter, defined):
    children(3, "30", "150")
    define_counter()
    more = {"agent": "counter"} if defined else {"budget": "0.005"}
    lines = [register("task"), delegations("one", "two", "three", **more), finish("Done.")]
    async with play(lines, price=PRICE, budget="0.12") as shell:
        events = await turn(shell)
    (quote,) = of(events, Quote)
    assert quote.expected_usd <= quote.high_usd <= 0.015
    assert not of(events, QuoteChosen)
    assert len(of(events, SubagentFinished)) == 3


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
    quote, *rest = of(events, Quote)
    assert (quote.kind, quote.nodes, quote.labels) == ("tasks", 2, ("1. Count a.", "2. Count b."))
    bills = of(events, Bill)
    if choice.kind == "trim":  # the bill stands beside the quote of the rest
        assert [trimmed.labels for trimmed in rest] == [("1. Count a.",)]
        assert (bills[0].id, bills[0].high_usd) == (rest[0].id, rest[0].high_usd)
        assert rest[0].high_usd < quote.high_usd
    assert len(of(events, SubagentFinished)) == count
    calls = [event for event in of(events, CallFinished) if event.name == "task"]
    assert sorted(event.refused for event in calls) == ["", ""][:count] + ["unapproved"] * (
        2 - count
    )
    assert [round(float(bill.spent_usd) * NANO) for bill in bills] == (
        [count * (400_000 + 160_000)] if count else []
    )


async def test_subagents_of_one_reply_are_quoted_together_before_their_tool_is_registered(
    play, children
):
    children(3)
    async with play([delegations("one", "two", "three"), finish("Done.")], price=PRICE) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
    assert [quote.nodes for quote in of(events, Quote)] == [3]
    assert len(of(events, SubagentFinished)) == 3
    assert [event.name for event in of(events, ToolRegistered)].count("task") == 1


async def test_repeated_tasks_that_a_small_model_may_not_run_again_are_not_quoted(play, child):
    reply = delegations("Count a.", "Count b.")
    lines = [register("task"), reply, reply, finish("Done.")]
    async with play(lines, price=PRICE) as shell:
        with_traits(shell, trained=True)
        events = await turn(shell)
    assert len(of(events, Quote)) == len(of(events, Bill)) == 1
    refusals = [event.refused for event in of(events, CallFinished) if event.name == "task"]
    assert refusals == ["", "", "repeated", "repeated"]


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
