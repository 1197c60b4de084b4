"""Limits and expensive steps: the requests to the user, the offered models and the effect of each choice."""

import json
from copy import copy
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import User, finish, of, register, say, turn

from ecoshell.agent import CostChoice, LimitChoice, enough_text
from ecoshell.agent.mode import CostBound, with_room
from ecoshell.agent.model_set import ModelSet
from ecoshell.assembly.live import apply
from ecoshell.budget import ASSUMED_FREE, CapState, nano_to_usd_text
from ecoshell.events import (
    BudgetHeld,
    CallFinished,
    CostChosen,
    CostWanted,
    LimitChosen,
    LimitHit,
    Notice,
    StepStarted,
    ToolRegistered,
    ToolsOffered,
    from_json,
    to_json,
)
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single
from ecoshell.options import Options
from ecoshell.settings.schema import BudgetSettings, Settings

PRICE = (Decimal(1), Decimal(4))
COUNT = say("Count them.", "count_text", path="notes.txt")
THRESHOLD = "0.000001"


@pytest.fixture
def ask_above(monkeypatch):
    monkeypatch.setenv("ECOSHELL_BUDGET_ASK_ABOVE", THRESHOLD)


@pytest.fixture
def cheap(tmp_path):
    """The name of a cheaper model in the settings: a script with a price."""
    script = tmp_path / "cheap.jsonl"
    script.write_text('{"text": "Cheaply done."}\n{"text": "Once more."}\n')
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    name = f"script:{script}"
    (config / "config.toml").write_text(
        f'[models."{name}".price]\ninput = "0.01"\noutput = "0.04"\n'
    )
    return name


async def test_a_limit_offers_local_and_cheaper_models_with_their_price(play, cheap):
    user = User(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        await turn(shell)
    offers = {offer.name: offer for offer in user.asked[0].offers}
    assert offers["embedded"].most_nano == 0
    assert offers["embedded"].local
    assert 0 < offers[cheap].most_nano < user.asked[0].need
    assert all(offer.fits for offer in offers.values())
    assert user.asked[0].offers[0].name == "embedded"  # the cheapest first


async def test_a_model_of_a_server_on_this_machine_is_offered_as_local(play, monkeypatch):
    user = User(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        models, budget = shell.deps.models, shell.deps.budget
        model = copy(models.current.model._model)
        model.traits = replace(model.traits, name="ollama/a", local=False, price=ASSUMED_FREE)
        metered = MeteredModel(model, budget.gate, budget.account)
        served = ModelSet(metered, Single(metered, ModeLimits(200, 100)))
        monkeypatch.setattr(models.factory, "substitutes", lambda _: ["ollama/a"])
        monkeypatch.setattr(models.factory, "make", lambda *_: served)
        await turn(shell)
    (offer,) = user.asked[0].offers
    assert (offer.name, offer.local, offer.most_nano) == ("ollama/a", True, 0)


async def test_an_offer_is_an_upper_bound_of_the_later_reservation(play, cheap):
    user = User(LimitChoice("model", cheap))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        events = await turn(shell)
    offer = next(offer for offer in user.asked[0].offers if offer.name == cheap)
    reserved = of(events, BudgetHeld)[-1]
    assert (reserved.model, events[-1].answer) == (cheap, "Cheaply done.")
    assert offer.most_nano / 2 < reserved.held_nano <= offer.most_nano
    assert reserved.held_tokens <= offer.most_tokens


async def test_a_disabled_model_is_not_offered(play, cheap):
    user = User(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.001", user=user) as shell:
        shell.ledger.bar(cheap, "it billed too much")
        await turn(shell)
    assert [offer.name for offer in user.asked[0].offers] == ["embedded"]


async def test_offers_at_a_token_limit_show_whether_they_fit(play, cheap):
    user = User(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="50tok", user=user) as shell:
        await turn(shell)
    hit = user.asked[0]
    assert (hit.unit, hit.left) == ("tokens", 50)
    assert hit.offers
    assert not any(offer.fits for offer in hit.offers)
    assert all(offer.most_tokens > 50 for offer in hit.offers)


@pytest.mark.parametrize("budget", ["0.0005", "900tok"])
async def test_the_proposed_cap_covers_the_whole_turn(play, budget):
    class Raises(User):
        async def at_limit(self, hit):
            self.asked.append(hit)
            return LimitChoice("raise", enough_text(hit))

    user = Raises()
    async with play([finish("ok")], price=PRICE, budget=budget, user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, len(user.asked)) == ("answered", 1)
    assert not any(event.clamped for event in of(events, BudgetHeld))


@pytest.mark.parametrize("budget", ["0.001", "0.0035", "0.005"])
async def test_tools_are_offered_again_after_the_cap_was_raised(play, budget):
    lines = [say("List.", "list_files"), COUNT, finish("ok")]
    user = User(LimitChoice("raise", "1.00"))
    async with play(lines, price=PRICE, budget=budget, user=user) as shell:
        events = await turn(shell)
        first, again = of(events, ToolsOffered)
        loaded = [event.name for event in of(events, ToolRegistered) if event.by == "upfront"]
        request = shell.requests[0]
    assert (first.upfront, "list_files" in again.upfront) == ((), True)
    assert [*again.upfront] == loaded
    assert {tool.name for tool in request.tools} >= {*loaded}
    assert "Not to be used" not in "".join(message.text for message in request.messages)
    assert [event.ok for event in of(events, CallFinished)] == [True, True]
    assert events[-1].status == "answered"


async def test_a_model_that_cannot_be_loaded_leads_to_another_request(play):
    user = User(LimitChoice("model", "script:/nowhere.jsonl"), LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.0001", user=user) as shell:
        events = await turn(shell)
    assert decisions(events) == [LimitHit, Notice, "again", LimitHit, "stop"]


def decisions(events):
    """The questions at limits, the choices and the notices of a turn, in order."""
    kinds = [event for event in events if isinstance(event, (LimitHit, LimitChosen, Notice))]
    return [event.choice if isinstance(event, LimitChosen) else type(event) for event in kinds]


@pytest.mark.parametrize(
    ("budget", "typed", "reason"),
    [
        ("0.0005", "0.0001", "A cap of $0.0001 does not raise the session's cap of $0.0005."),
        ("0.0005", "0.0005", "A cap of $0.0005 does not raise the session's cap of $0.0005."),
        (
            "0.0005",
            "20000tok",
            "A cap of 20,000 tokens does not raise the session's cap of $0.0005.",
        ),
        ("900tok", "2min", "A cap of 2 min does not raise the session's cap of 900 tokens."),
    ],
)
async def test_only_an_amount_that_raises_the_cap_is_accepted(play, budget, typed, reason):
    user = User(LimitChoice("raise", typed), LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget=budget, user=user) as shell:
        before = await shell.deps.budget.caps()
        events = await turn(shell)
        assert await shell.deps.budget.caps() == before
    assert decisions(events) == [LimitHit, Notice, "again", LimitHit, "stop"]
    (notice,) = of(events, Notice)
    assert notice.text == f"{reason} Type a higher one, such as {enough_text(user.asked[0])}."


@pytest.mark.parametrize("disabled", [False, True])
async def test_a_model_that_the_caps_refuse_is_not_taken_at_a_limit(play, tmp_path, disabled):
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "Three."}\n')
    name = f"script:{other}" if disabled else "nonsense/model"
    user = User(LimitChoice("model", name), LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.0001", user=user) as shell:
        before = shell.deps.models.session_model
        if disabled:
            shell.ledger.bar(name, "it billed too much")
        events = await turn(shell)
        assert shell.deps.models.session_model == before
        assert [cap.held for cap in await shell.deps.budget.caps()] == [0]
    assert decisions(events) == [LimitHit, Notice, "again", LimitHit, "stop"]
    reason = (
        "disabled under a cap: it billed too much"
        if disabled
        else "The price of nonsense/model is unknown"
    )
    assert reason in of(events, Notice)[0].text
    assert events[-1].status == "limit"


async def test_an_unpriced_model_is_not_taken_before_an_expensive_step(play, ask_above):
    user = User(CostChoice("model", "nonsense/model"), CostChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
    assert [event.choice for event in of(events, CostChosen)] == ["again", "stop"]
    assert "The price of nonsense/model is unknown" in of(events, Notice)[0].text


async def test_an_expensive_step_needs_a_decision_before_its_reservation(play, ask_above):
    user = User(CostChoice("go"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
    kinds = [
        type(event)
        for event in events
        if isinstance(event, (CostWanted, CostChosen, StepStarted, BudgetHeld))
    ]
    assert kinds == [CostWanted, CostChosen, StepStarted, BudgetHeld]
    request, reserved = user.asked[0], of(events, BudgetHeld)[0]
    assert (request.high_nano, request.threshold_nano, request.model) == (
        reserved.held_nano,
        1_000,
        reserved.model,
    )
    assert 0 < request.low_nano < request.high_nano


async def test_nothing_is_reserved_while_the_user_decides(play, ask_above):
    class Looks(User):
        async def at_cost(self, request):
            self.asked.append(await shell.deps.budget.caps())
            return CostChoice("go")

    user = Looks()
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        await turn(shell)
    assert [cap.held for cap in user.asked[0]] == [0]


async def test_go_applies_to_one_step_and_always_to_the_session(play, ask_above):
    user = User(CostChoice("go"), CostChoice("always"))
    lines = [register("count_text"), COUNT, finish("3"), finish("again")]
    async with play(lines, registration="names", price=PRICE, user=user) as shell:
        first, second = await turn(shell), await turn(shell, "Again?")
    assert [len(of(events, CostWanted)) for events in (first, second)] == [2, 0]
    assert len(of(first, StepStarted)) == 3


async def test_always_applies_to_one_model_only(play, ask_above, cheap):
    user = User(CostChoice("always"), CostChoice("stop"))
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        await turn(shell)
        await shell.command(f"/model {cheap}")
        events = await turn(shell, "Again?")
    assert user.asked[1].model == cheap
    assert events[-1].status == "limit"


async def test_a_cheaper_model_can_be_chosen_before_an_expensive_step(play, ask_above, cheap):
    user = User(CostChoice("model", cheap), CostChoice("go"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert cheap in [offer.name for offer in user.asked[0].offers]
    assert all(offer.most_nano < user.asked[0].high_nano for offer in user.asked[0].offers)
    assert (events[-1].answer, user.asked[1].model) == ("Cheaply done.", cheap)
    assert [cap.held for cap in caps] == [0]


async def test_the_user_can_choose_the_answer_before_an_expensive_step(play, ask_above):
    user = User(CostChoice("go"), CostChoice("answer"))
    lines = [COUNT, say("Three, I think.")]
    async with play(lines, registration="all", price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
        caps = await shell.deps.budget.caps()
    assert (events[-1].status, events[-1].answer) == ("limit", "Three, I think.")
    assert [cap.held for cap in caps] == [0]


async def test_an_answer_after_a_switch_comes_from_the_chosen_model(play, ask_above, cheap):
    user = User(CostChoice("model", cheap), CostChoice("answer"))
    async with play([finish("ok")], price=PRICE, budget="1.00", user=user) as shell:
        events = await turn(shell)
    assert (events[-1].answer, of(events, BudgetHeld)[-1].model) == ("Cheaply done.", cheap)


async def test_stopping_before_an_expensive_step_spends_nothing(play, ask_above):
    async with play([finish("ok")], price=PRICE, user=User(CostChoice("stop"))) as shell:
        events = await turn(shell)
    assert (events[-1].status, events[-1].spent_nano, of(events, BudgetHeld)) == ("limit", 0, [])


async def test_a_free_step_needs_no_decision(play, ask_above):
    user = User()
    async with play([finish("ok")], user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, user.asked) == ("answered", [])


async def test_without_a_user_an_expensive_step_proceeds(play, ask_above):
    async with play([finish("ok")], price=PRICE) as shell:
        events = await turn(shell)
    assert of(events, CostWanted)
    assert (of(events, CostChosen)[0].choice, events[-1].status) == ("go", "answered")


@pytest.mark.parametrize("above", ["off", "5.00"])
async def test_a_step_below_the_threshold_needs_no_decision(play, monkeypatch, above):
    monkeypatch.setenv("ECOSHELL_BUDGET_ASK_ABOVE", above)
    user = User()
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        events = await turn(shell)
    assert (events[-1].status, user.asked) == ("answered", [])


async def test_an_accepted_step_needs_no_second_decision_after_a_limit(play, ask_above):
    user = User(CostChoice("go"), LimitChoice("raise", "1.00"))
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        shell.deps.settings.plan = "off"  # a plan would withhold the tools and so reserve less
        step = (await shell.status()).next_nano
        await shell.command(
            f"/budget {nano_to_usd_text(step * 13 // 10)}"
        )  # enough for the step, but not for the answer as well
        events = await turn(shell)
    assert [type(request) for request in user.asked] == [CostWanted, LimitHit]
    assert events[-1].status == "answered"


async def test_a_step_over_the_cap_is_a_limit_rather_than_a_cost_request(play, ask_above):
    user = User(LimitChoice("stop"))
    async with play([finish("ok")], price=PRICE, budget="0.000002", user=user) as shell:
        await turn(shell)
    assert [type(request) for request in user.asked] == [LimitHit]


async def test_cost_requests_are_stored_in_the_session(play, ask_above, cheap):
    user = User(CostChoice("stop"))
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        await turn(shell)
        stored = [event for _, event in shell.store.events(shell.session)]
    assert of(stored, CostWanted) == user.asked
    assert from_json(json.loads(json.dumps(to_json(user.asked[0])))) == user.asked[0]


async def test_the_next_step_is_estimated_in_advance(play):
    async with play(
        [finish("ok"), finish("more")], registration="names", price=PRICE, budget="1.00"
    ) as shell:
        for question in ("How many lines has notes.txt?", "And words?"):
            status = await shell.status()
            events = await turn(shell, question)
            reserved = of(events, BudgetHeld)[0]
            assert reserved.held_nano <= status.next_nano <= 3 * reserved.held_nano
            assert reserved.held_tokens <= status.next_tokens


async def test_the_estimate_is_what_a_step_takes_of_the_caps(play):
    dear = (Decimal(1), Decimal(40))
    async with play([finish("ok")], registration="names", price=dear, budget="0.80") as shell:
        status = await shell.status()
        reserved = of(await turn(shell), BudgetHeld)[0]
    assert reserved.held_nano <= status.next_nano < 400_000_000
    assert not reserved.clamped


async def test_the_estimate_follows_the_running_turn(play):
    statuses = []
    async with play([COUNT, finish("ok")], registration="all", price=PRICE) as shell:
        async for event in shell.ask("How many?"):
            if isinstance(event, BudgetHeld):
                statuses.append((event, await shell.status()))
    assert [reserved.held_nano <= status.next_nano for reserved, status in statuses] == [True, True]


async def test_without_a_price_the_estimate_is_unknown(play):
    async with play([finish("ok")]) as shell:
        model = shell.deps.models.current.model._model
        model.traits = replace(model.traits, price=None)
        status = await shell.status()
        await turn(shell)
        budget, cost = await shell.command("/budget"), await shell.command("/cost")
        token_cap = (await shell.status()).token_cap
    assert status.next_nano is None
    assert status.next_tokens > 0
    assert not status.is_priced
    for printed in (budget, cost):
        assert "0.50" not in printed.text
        assert f"/budget {token_cap} or /budget 2min" in printed.text


def test_a_dollar_cap_cannot_cover_an_unknown_price():
    cap = CapState("day", "usd", 10**9, 0, 0)
    assert not with_room([cap], None, CostBound(None, 10))
    assert with_room([replace(cap, unit="tokens")], None, CostBound(None, 10))


async def test_the_threshold_can_be_changed_while_the_shell_runs(play, ask_above):
    user = User()
    async with play([finish("ok")], price=PRICE, user=user) as shell:
        assert await apply(
            shell,
            Settings(budget=BudgetSettings(ask_above="off")),
            ("budget", "ask_above"),
            Options(),
        )
        events = await turn(shell)
    assert (events[-1].status, user.asked) == ("answered", [])


@pytest.mark.parametrize(
    ("registration", "suggested"),
    [("names", "20000tok"), ("auto", "50000tok"), ("all", "100000tok")],
)
async def test_the_suggested_cap_has_room_for_several_steps(play, registration, suggested):
    async with play([COUNT, finish("3 lines")], registration=registration) as shell:
        status = await shell.status()
        assert status.token_cap == suggested
        assert f"/budget {suggested} or" in (await shell.command("/budget")).text
        assert f"/budget {suggested} limits" in (await shell.command("/budget 0.50")).text
        await shell.command("/budget off")
        await shell.command(f"/budget {suggested}")
        events = await turn(shell)
    assert of(events, LimitHit) == []
    assert events[-1].answer == "3 lines"
