"""Where a turn pauses for money: what is asked, what is offered, and what comes of the choice."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, register, say, turn

from ecoshell.agent import Approval, CostChoice, LimitChoice, enough_text
from ecoshell.agent.cost_bounds import CostBound, with_room
from ecoshell.assembly.live import apply
from ecoshell.budget import CapState, nano_to_usd_text
from ecoshell.events import (
    BudgetHeld,
    CostChosen,
    CostWanted,
    LimitChosen,
    LimitHit,
    Notice,
    StepStarted,
    from_json,
    to_json,
)
from ecoshell.options import Options
from ecoshell.settings.schema import Settings

PRICE = (Decimal(1), Decimal(4))
COUNT = say("Count them.", "count_text", path="notes.txt")
THRESHOLD = "0.000001"


class Chooses:
    """A user who makes these choices at limits and before expensive steps."""

    def __init__(self, *choices):
        self.choices = list(choices)
        self.asked = []

    async def approve(self, wanted):
        return Approval("no")

    async def at_limit(self, hit):
        self.asked.append(hit)
        return self.choices.pop(0)

    async def at_cost(self, wanted):
        self.asked.append(wanted)
        return self.choices.pop(0)


@pytest.fixture
def ask_above(monkeypatch):
    monkeypatch.setenv("ECOSHELL_BUDGET_ASK_ABOVE", THRESHOLD)


@pytest.fixture
def cheap(tmp_path):
    """A cheaper model of the settings: a script with a price."""
    script = tmp_path / "cheap.jsonl"
    script.write_text('{"text": "Cheaply done."}\n{"text": "Once more."}\n')
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    name = f"script:{script}"
    (config / "config.toml").write_text(f'[models."{name}".price]\ninput = "0.01"\noutput = "0.04"\n')
    return name


async def test_at_a_limit_local_and_cheaper_models_are_offered_with_the_price_of_the_step_that_waits(play, cheap):
    user = Chooses(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        await turn(shell)
    offers = {offer.name: offer for offer in user.asked[0].offers}
    assert offers["embedded"].most_nano == 0
    assert offers["embedded"].local
    assert 0 < offers[cheap].most_nano < user.asked[0].need
    assert all(offer.fits for offer in offers.values())
    assert user.asked[0].offers[0].name == "embedded"  # the cheapest first


async def test_an_offer_is_an_upper_bound_of_what_is_then_reserved(play, cheap):
    user = Chooses(LimitChoice("model", cheap))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        events = await turn(shell)
    offer = next(offer for offer in user.asked[0].offers if offer.name == cheap)
    held = of(events, BudgetHeld)[-1]
    assert (held.model, events[-1].answer) == (cheap, "Cheaply done.")
    assert offer.most_nano / 2 < held.held_nano <= offer.most_nano
    assert held.held_tokens <= offer.most_tokens


async def test_a_model_that_is_called_under_no_cap_any_more_is_not_offered(play, cheap):
    user = Chooses(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        shell.ledger.bar(cheap, "it billed too much")
        await turn(shell)
    assert [offer.name for offer in user.asked[0].offers] == ["embedded"]


async def test_at_a_limit_in_tokens_offers_say_whether_they_fit(play, cheap):
    user = Chooses(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="50tok", user=user) as shell:
        await turn(shell)
    hit = user.asked[0]
    assert (hit.unit, hit.left) == ("tokens", 50)
    assert hit.offers
    assert not any(offer.fits for offer in hit.offers)
    assert all(offer.most_tokens > 50 for offer in hit.offers)


@pytest.mark.parametrize("budget", ["0.0005", "900tok"])
async def test_the_proposed_cap_lets_the_whole_turn_go_on(play, budget):
    class Raises(Chooses):
        async def at_limit(self, hit):
            self.asked.append(hit)
            return LimitChoice("raise", enough_text(hit))

    user = Raises()
    async with play([finish("ok")], price=PRICE, budget=budget, user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, len(user.asked)) == ("answered", 1)
    assert not any(held.clamped for held in of(events, BudgetHeld))


async def test_a_model_that_cannot_be_had_is_told_and_asked_again(play):
    user = Chooses(LimitChoice("model", "script:/nowhere.jsonl"), LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.0001", user=user) as shell:
        events = await turn(shell)
    assert [type(event) for event in events if isinstance(event, (LimitHit, LimitChosen, Notice))] == [
        LimitHit, LimitChosen, Notice, LimitHit, LimitChosen,
    ]  # fmt: skip


async def test_an_expensive_step_is_asked_about_before_anything_is_reserved(play, ask_above):
    user = Chooses(CostChoice("go"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
    kinds = [type(event) for event in events if isinstance(event, (CostWanted, CostChosen, StepStarted, BudgetHeld))]
    assert kinds == [CostWanted, CostChosen, StepStarted, BudgetHeld]
    asked, held = user.asked[0], of(events, BudgetHeld)[0]
    assert (asked.high_nano, asked.threshold_nano, asked.model) == (held.held_nano, 1_000, held.model)
    assert 0 < asked.low_nano < asked.high_nano


async def test_nothing_is_held_while_the_person_thinks(play, ask_above):
    class Looks(Chooses):
        async def at_cost(self, wanted):
            self.asked.append(await shell.deps.budget.caps())
            return CostChoice("go")

    user = Looks()
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        await turn(shell)
    assert [cap.held for cap in user.asked[0]] == [0]


async def test_going_on_holds_for_one_step_and_always_for_the_session(play, ask_above):
    user = Chooses(CostChoice("go"), CostChoice("always"))
    lines = [register("count_text"), COUNT, finish("3"), finish("again")]
    async with play(lines, registration="names", price=PRICE, user=user) as shell:
        first, second = await turn(shell), await turn(shell, "Again?")
    assert [len(of(events, CostWanted)) for events in (first, second)] == [2, 0]
    assert len(of(first, StepStarted)) == 3


async def test_after_always_another_model_is_asked_about_again(play, ask_above, cheap):
    user = Chooses(CostChoice("always"), CostChoice("stop"))
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        await turn(shell)
        await shell.command(f"/model {cheap}")
        events = await turn(shell, "Again?")
    assert user.asked[1].model == cheap
    assert events[-1].status == "limit"


async def test_a_cheaper_model_can_be_chosen_before_an_expensive_step(play, ask_above, cheap):
    user = Chooses(CostChoice("model", cheap), CostChoice("go"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert cheap in [offer.name for offer in user.asked[0].offers]
    assert all(offer.most_nano < user.asked[0].high_nano for offer in user.asked[0].offers)
    assert (events[-1].answer, user.asked[1].model) == ("Cheaply done.", cheap)
    assert [cap.held for cap in caps] == [0]


async def test_answering_from_what_there_is_is_a_choice_before_an_expensive_step(play, ask_above):
    user = Chooses(CostChoice("go"), CostChoice("answer"))
    lines = [COUNT, say("Three, I think.")]
    async with play(lines, registration="all", price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert (events[-1].status, events[-1].answer) == ("limit", "Three, I think.")
    assert [cap.held for cap in caps] == [0]


async def test_answering_with_a_model_that_was_just_chosen_asks_that_model(play, ask_above, cheap):
    user = Chooses(CostChoice("model", cheap), CostChoice("answer"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
    assert (events[-1].answer, of(events, BudgetHeld)[-1].model) == ("Cheaply done.", cheap)


async def test_stopping_before_an_expensive_step_spends_nothing(play, ask_above):
    async with play([finish("ok")], price=PRICE, user=Chooses(CostChoice("stop"))) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].spent_nano, of(events, BudgetHeld)) == ("limit", 0, [])


async def test_a_step_that_costs_nothing_is_never_asked_about(play, ask_above):
    user = Chooses()
    async with play([finish("ok")], user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, user.asked) == ("answered", [])


async def test_where_nobody_is_an_expensive_step_goes_on(play, ask_above):
    async with play([finish("ok")], price=PRICE) as shell:
        events = await turn(shell)
    assert of(events, CostWanted)
    assert (of(events, CostChosen)[0].choice, events[-1].status) == ("go", "answered")


@pytest.mark.parametrize("above", ["off", "5.00"])
async def test_a_step_is_not_asked_about_below_the_threshold_or_without_one(play, monkeypatch, above):
    monkeypatch.setenv("ECOSHELL_BUDGET_ASK_ABOVE", above)
    user = Chooses()
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, user.asked) == ("answered", [])


async def test_a_step_the_person_agreed_to_is_not_asked_about_again_after_a_limit(play, ask_above):
    user = Chooses(CostChoice("go"), LimitChoice("raise", "1.00"))
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        shell.deps.settings.plan = "off"  # a plan would leave no tools, and so ask for less
        step = (await shell.status()).next_nano
        await shell.command(f"/budget {nano_to_usd_text(step)}")  # room for the step, and not for the answer beside it
        events = await turn(shell)
    assert [type(asked) for asked in user.asked] == [CostWanted, LimitHit]
    assert events[-1].status == "answered"


async def test_a_step_that_no_cap_has_room_for_is_a_limit_and_not_a_question_of_its_price(play, ask_above):
    user = Chooses(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.000002", user=user) as shell:
        await turn(shell)
    assert [type(asked) for asked in user.asked] == [LimitHit]


async def test_what_was_asked_about_money_comes_back_from_the_session(play, ask_above, cheap):
    user = Chooses(CostChoice("stop"))
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        await turn(shell)
        stored = [event for _, event in shell.store.events(shell.session)]
    assert of(stored, CostWanted) == user.asked
    assert from_json(json.loads(json.dumps(to_json(user.asked[0])))) == user.asked[0]


async def test_the_next_step_is_estimated_before_it_is_taken(play):
    async with play([finish("ok"), finish("more")], registration="names", price=PRICE, budget="1.00") as shell:
        for question in ("How many lines has notes.txt?", "And words?"):
            before = await shell.status()
            events = await turn(shell, question)
            held = of(events, BudgetHeld)[0]
            assert held.held_nano <= before.next_nano <= 3 * held.held_nano
            assert held.held_tokens <= before.next_tokens


async def test_the_estimate_follows_the_turn_that_runs(play):
    statuses = []
    async with play([COUNT, finish("ok")], registration="all", price=PRICE) as shell:
        async for event in shell.ask("How many?"):
            if isinstance(event, BudgetHeld):
                statuses.append((event, await shell.status()))
    assert [held.held_nano <= status.next_nano for held, status in statuses] == [True, True]


async def test_without_a_price_the_estimate_is_unknown(play):
    async with play([finish("ok")]) as shell:
        model = shell.deps.models.current.model._model
        model.traits = replace(model.traits, price=None)
        status = await shell.status()
    assert status.next_nano is None
    assert status.next_tokens > 0


def test_a_cap_in_dollars_has_no_room_for_what_nobody_can_price():
    cap = CapState("day", "usd", 10**9, 0, 0)
    assert not with_room([cap], None, CostBound(None, 10))
    assert with_room([replace(cap, unit="tokens")], None, CostBound(None, 10))


async def test_the_threshold_can_be_changed_while_the_shell_runs(play, ask_above):
    user = Chooses()
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        assert await apply(shell, Settings(budget={"ask_above": "off"}), ("budget", "ask_above"), Options())
        events = await turn(shell)
    assert (events[-1].status, user.asked) == ("answered", [])
