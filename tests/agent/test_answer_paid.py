"""The budget reserved for the answer pays for it, whatever the tools return and wherever the cap ends the turn."""

import random
from decimal import Decimal

import pytest
from agent_play import of, say, turn
from graph_turns import Probe, add

from ecoshell.events import Answer, LimitHit, Notice, StepStarted, TurnFinished

SO_FAR = "So far it is seven."
PRICE = (Decimal(1), Decimal(4))


class Wordy(Probe):
    """A tool whose results vary in length."""

    def __init__(self, draw):
        async def act():
            return "word " * draw.choice((1, 40, 700, 9_000))

        super().__init__(
            "alpha", act, parameters={"type": "object", "properties": {"n": {"type": "integer"}}}
        )


ENDLESS = [say(SO_FAR, "alpha", n=number) for number in range(60)]
"""A model that always calls another tool, and gives its text as the answer when it must conclude."""


@pytest.mark.parametrize("unit", ["tokens", "usd"])
@pytest.mark.parametrize("seed", range(8))
async def test_a_turn_that_reaches_its_cap_still_ends_with_an_answer_by_the_model(play, unit, seed):
    draw = random.Random(seed)
    options = {"budget": f"{draw.randint(30_000, 60_000)}tok"}
    if unit == "usd":
        options = {"price": PRICE, "budget": f"0.0{draw.randint(32, 70)}"}
    async with play(ENDLESS, registration="all", yes=True, **options) as shell:
        add(shell, Wordy(draw))
        events = await turn(shell, "alpha")
        remaining = {
            cap.scope: cap.limit - cap.spent - cap.held for cap in await shell.deps.budget.caps()
        }
    assert of(events, StepStarted)
    assert of(events, TurnFinished)[-1].status == "limit"
    assert [answer.text for answer in of(events, Answer)] == [SO_FAR]
    assert not [note for note in of(events, Notice) if "No model call fits" in note.text]
    assert of(events, LimitHit)
    assert min(remaining.values()) >= 0
