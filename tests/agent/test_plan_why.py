"""`/plan why`: every figure and every comparison in its explanation is true of the plan."""

import re
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import counts, finish, register, say, turn
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.paths import user_paths
from ecoshell.planning.btp.costs import Expected, PricedPlan, RemainingBudget
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence, Figure
from ecoshell.planning.btp.experience import Use
from ecoshell.planning.btp.explanations import explain
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import frequency_bound, value

PRICE = (Decimal(1), Decimal(4))
COUNT = say("", "count_text", path="notes.txt")
READ = say("", "read_file", path="notes.txt")
MISTAKEN = say("", "read_file", path="note.txt")
MISTAKEN_AGAIN = say("", "read_file", path="nots.txt")
TAU = 0.15


async def why(shell, tool):
    return (await shell.command(f"/plan why {tool}")).text


def line(text, name):
    """The line that starts with this word."""
    return next(line for line in text.splitlines() if line.startswith(name))


@pytest.fixture
def capped(play):
    """Open a shell under a dollar cap whose model replies with these lines."""

    @asynccontextmanager
    async def opened(*lines, budget="0.20"):
        async with play(list(lines), registration="names", budget=budget, price=PRICE) as shell:
            yield shell

    return opened


async def test_earned_uses_are_added_to_the_usual_bound(capped):
    async with capped(register("count_text"), *counts(2), finish("3")) as shell:
        schema = shell.deps.catalog.schema("count_text").digest
        question = "How many lines has notes.txt?"
        use = Use(
            question,
            "count_text",
            schema,
            "{}",
            "3",
            "0",
            True,
            True,
            "rules",
            "m",
            0,
            0,
            9,
            0.1,
            0,
        )
        shell.deps.experience.records.add(
            [replace(use, session="s", turn=at, call="c") for at in range(12)]
        )
        await turn(shell)
        text = await why(shell, "count_text")
    assert line(text, "bound").startswith(
        "bound   3 = 1 + 2: past questions that used it did so 1.00 times on average"
    )
    assert line(text, "bound").endswith("; one more than the 2 uses that helped in this turn")
    assert "from 14 uses, 2 of them in this turn" in line(text, "cost")


async def test_a_plan_without_earned_uses_promises_none(capped):
    async with capped(register("count_text"), COUNT, finish("3")) as shell:
        shell.deps.settings.strict, shell.deps.settings.earned = True, False
        await turn(shell)
        text = await why(shell, "count_text")
    assert text.startswith("count_text: blocked (quota)")
    assert (
        line(text, "bound")
        == "bound   1: a tool without a judged use before the turn may be used once"
    )
    assert text.endswith("It was used once, as often as its bound allows.")


async def test_a_refunded_use_does_not_count_as_helpful(capped):
    async with capped(register("read_file"), MISTAKEN, MISTAKEN_AGAIN, READ, finish("3")) as shell:
        await turn(shell)
        text = await why(shell, "read_file")
    assert line(text, "bound").startswith("bound   4 = 1 + 1 + 2: ")
    assert (
        "; one more than the 1 use that helped in this turn; 2 uses refunded, which said nothing"
        in text
    )
    assert text.endswith(
        "It is planned to be used again: it fits, though no use of it was judged before this turn."
    )


async def test_a_tool_over_the_cap_is_not_compared_with_others(capped):
    async with capped(finish("3")) as shell:
        shell.deps.profiles.resources.update({"fetch_url": 10**12})
        text = await why(shell, "fetch_url")
    assert re.search(
        r"\nOne use costs \$1,000\.\d+, and only \$0\.19\d* is left for tools\.$", text
    )


async def test_a_budget_below_the_reserve_is_explained(capped):
    async with capped(finish("3"), budget="10tok") as shell:
        text = await why(shell, "read_file")
    assert re.search(
        r"budget  R = 0 tokens: 10 tokens left, and [\d,]+ tokens should be reserved", text
    )
    assert text.endswith(
        "The remaining budget does not even pay for the answer, so no tool is planned."
    )


async def test_an_advisory_plan_advises_against_a_tool(capped):
    async with capped(register("count_text"), COUNT, finish("3")) as shell:
        shell.deps.settings.strict, shell.deps.settings.earned = True, False
        await turn(shell)
        await shell.command("/plan prompt")
        text, table = await why(shell, "count_text"), (await shell.command("/plan")).text
    assert text.startswith("count_text: advised against (quota)")
    assert text.endswith("\nThe plan is advice here: nothing is blocked.")
    assert "! count_text" in table
    assert "×" not in table
    assert "advised against" in table


async def test_unreadable_experience_is_reported_before_the_first_turn(play, home):
    file = user_paths().experience_file
    file.parent.mkdir(parents=True)
    file.write_text("not a database " * 300)
    async with play([finish("3")], budget="60000tok") as shell:
        for text in ((await shell.command("/plan")).text, await why(shell, "read_file")):
            assert text.startswith("This turn is planned without experience. ")


@pytest.mark.parametrize(("price", "refused"), [(PRICE, False), (None, True)])
async def test_a_missing_price_under_a_dollar_cap_is_reported_with_the_plan(play, price, refused):
    async with play([finish("3")], budget="0.20", price=PRICE) as shell:
        model = shell.deps.models.current.model._model
        model.traits = replace(model.traits, price=price and model.traits.price)
        text = (await shell.command("/plan")).text
    assert ("is unknown, and the" in text) == refused
    assert ('".price]' in text) == refused
    assert "Left for tools" in text


sums = st.floats(0, 40).map(lambda number: round(number, 6))


@st.composite
def pasts(draw):
    """Evidence of a tool: none, unjudged uses, or judged uses."""
    if draw(st.booleans()):
        return NO_EVIDENCE
    weight = draw(st.one_of(st.just(0.0), sums))
    samples = draw(st.integers(0, 2))
    return Evidence(
        uses=draw(st.integers(1, 50)),
        weight=weight,
        helpful_weight=weight * draw(st.floats(0, 1)),
        query_weight=draw(st.floats(0.5, 9)),
        frequency_weight=draw(sums),
        step_tokens=Figure(samples, 5.0),
        step_nano=Figure(samples, 5.0),
    )


@st.composite
def plans(draw):
    """A plan in the middle of a turn and the evidence before it, with any costs, caps, uses and verdicts."""
    unit = draw(st.sampled_from(["usd", "tokens"]))
    evidence = {
        f"t{at}": past for at, past in enumerate(draw(st.lists(pasts(), min_size=1, max_size=5)))
    }
    task = TaskPlan([], strict=draw(st.booleans()), earned=draw(st.booleans()))
    used = draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(evidence)), st.sampled_from([True, False, None])),
            max_size=8,
        )
    )
    for tool, helpful in used:
        task.count(tool, helpful)
    part = st.integers(0, 4_000)
    costs = {
        tool: Expected(
            unit,
            draw(part),
            draw(part),
            draw(part),
            draw(part),
            past.uses + task.uses[tool],
            draw(part),
        )
        for tool, past in evidence.items()
    }
    candidates = [
        Candidate(
            tool,
            value(past),
            frequency_bound(past, value(past), TAU),
            costs[tool].total,
            costs[tool].spread,
            is_judged=past.weight > 0,
            chance=draw(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))),
        )
        for tool, past in evidence.items()
    ]
    means = draw(
        st.one_of(
            st.none(),
            st.builds(
                RemainingBudget, st.just(unit), st.integers(0, 20_000), st.integers(0, 9_000)
            ),
        )
    )
    paid = 0 if means is None else draw(st.sampled_from([0, 0, 700]))
    budget = None if means is None else means.budget + paid
    beyond = {tool for tool, cost in costs.items() if budget is not None and cost.total > budget}
    plan = task.solve(
        budget,
        candidates,
        unaffordable=beyond | set(draw(st.lists(st.sampled_from(sorted(evidence)), max_size=1))),
    )
    return PricedPlan(plan, unit, means, costs, paid), evidence, used


def amounts(text):
    """Whole units of every amount in a text."""
    matches = re.findall(r"\$(\d+(?:\.\d+)?)|([\d,]+) tokens?", text)
    return [
        int(Decimal(usd) * 10**9) if usd else int(tokens.replace(",", ""))
        for usd, tokens in matches
    ]


def figures(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


@given(plans(), st.booleans())
def test_every_figure_and_comparison_is_true(planned, enforced):
    draft, evidence, used = planned
    for row in draft.plan.rows:
        past = evidence[row.tool]
        text = explain(draft, row.tool, past, threshold=TAU, enforced=enforced)
        judged = [helpful for tool, helpful in used if tool == row.tool]
        _check_worth(text, row)
        _check_bound(line(text, "bound"), row, past, judged)
        _check_cost(line(text, "cost"), row, past)
        _check_budget(text, draft)
        _check_outcome(text, draft, row, judged)
        assert ("nothing is blocked" in text) == (row.state != "planned" and not enforced)


def _check_worth(text, row):
    quotient = re.match(r"value   ([\d.]+) = (.*?)(?::|, over)", line(text, "value"))
    rounded, numbers = float(quotient[1]), figures(quotient[2])
    helpful, weight = (numbers[0], numbers[2]) if len(numbers) == 4 else (0.0, 0.0)
    assert rounded == pytest.approx(row.value, abs=1e-4)
    assert rounded == pytest.approx((helpful + 0.1) / (weight + 1.0), abs=2e-4)
    worth, chance, product = figures(line(text, "chance").split("value × chance")[1])
    assert (worth, chance) == (pytest.approx(row.value, abs=1e-4), row.chance)
    assert product == pytest.approx(worth * chance, abs=1e-4)


def _check_bound(text, row, past, judged):
    total, summands = re.match(r"bound   (\d+)(?: = ([\d +]+))?:", text).groups()
    assert int(total) == row.bound
    if summands:
        assert sum(map(int, summands.split(" + "))) == row.bound
    if match := re.search(r"than the (\d+) uses? that helped", text):
        assert int(match[1]) == judged.count(True) > 0
        assert row.bound - judged.count(None) == judged.count(True) + 1
    if match := re.search(r"(\d+) uses? refunded", text):
        assert int(match[1]) == judged.count(None) > 0
    assert ("earns another" in text) <= (not judged)
    assert ("without a judged use" in text) <= (past.weight == 0)
    if match := re.search(r"did so ([\d.]+) times", text):
        usual = max(1, int(float(match[1]) + 0.5))
        assert int((summands or total).split(" + ")[0]) == usual
    if "low past success" in text or "below τ" in text:
        assert row.value <= TAU  # the printed value is rounded
    if "blacklist" in text:
        assert row.bound == row.used


def _check_cost(text, row, past):
    total, tool, step, registering, time, spread = amounts(text)
    assert total == row.cost == tool + step + registering + time
    assert spread == row.spread
    uses = past.uses + row.used
    assert (f"from {uses:,} use" in text) == (uses > 0)
    assert ("not used before" in text) == (uses == 0)
    if match := re.search(r", (\d+) of them in this turn", text):
        assert 0 < int(match[1]) == row.used < uses
    assert ("estimated" in text) == (row.used == past.step_tokens.count == 0)


def _check_budget(text, draft):
    if draft.remaining is None:
        assert "budget  R" not in text
        return
    equation = line(text, "budget  R")
    paid = (
        amounts(match[0])
        if (match := re.search(r"[^ ]+(?: tokens)? paid already", equation))
        else [0]
    )
    numbers = amounts(equation.replace(match[0], "")) if match else amounts(equation)
    budget, cap, reserved = numbers
    assert (cap, reserved, *paid) == (draft.remaining.cap, draft.remaining.reserved, draft.paid)
    assert ("−" in equation) == (cap - reserved + draft.paid >= 0)
    assert budget == max(0, cap - reserved + draft.paid) == max(0, draft.plan.budget)


def _check_outcome(text, draft, row, judged):
    counts = re.search(r"\nplan    (\d+) uses? in this turn, (\d+) made, (\d+) left\n", text)
    assert tuple(map(int, counts.groups())) == (row.planned, row.used, row.left)
    assert row.used == len(judged)
    budget = draft.plan.budget
    if row.why == "budget" and budget is not None and row.cost > budget >= 0:
        assert "One use costs" in text
    if match := re.search(r"One use costs (.*), and only (.*) is left", text):
        assert amounts(match[1]) == [row.cost]
        assert amounts(match[2]) == [budget]
        assert row.cost > budget
    if match := re.search(r"in addition to the planned uses for (.*), which", text):
        assert amounts(match[1]) == [draft.plan.cost]
        assert row.cost <= budget < draft.plan.cost + row.cost
        worth = sum(each.left * each.value * each.chance for each in draft.plan.rows)
        assert worth >= row.value * row.chance - 1e-3
    if "one of the caps" in text:
        assert row.tool in draft.plan.unaffordable
    if "so little" in text:
        assert row.value * row.chance == pytest.approx(0, abs=1e-4)
    if match := re.search(r"It was used (.*), (as|more) often", text):
        assert match[1] == ("once" if row.used == 1 else f"{row.used} times")
        assert (row.used > row.bound) == (match[2] == "more")
    if "No result of it helped" in text:
        assert False in judged
        assert True not in judged
    if "does not even pay" in text:
        assert draft.remaining.reserved > draft.remaining.cap
    if match := re.search(r"is worth more \((.*?)\) for less \((.*?)\)", text):
        value, chance, worth, own_worth = figures(match[1])
        assert worth == pytest.approx(value * chance, abs=1e-3)
        assert own_worth == pytest.approx(row.value, abs=1e-4)
        assert worth > own_worth - 1e-4
        assert amounts(match[2])[0] < row.cost
    if "Asked for" in text:
        assert row.tool not in draft.plan.forbidden
    if "Without a cap" in text:
        assert budget is None
        assert row.planned == row.bound
