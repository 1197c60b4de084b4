"""A fallback model takes over from an unavailable one, within the caps, and continues the turn."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn

from ecoshell.agent.model_set import ModelSet
from ecoshell.errors import ModelBroken, ModelMissing, ModelUnavailable
from ecoshell.events import CallFinished, ErrorHappened, Notice, StepStarted
from ecoshell.models import Delta
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy
from ecoshell.modes.single import Single

PRICE = (Decimal(1), Decimal(4))
COUNT = say("Count them.", "count_text", path="notes.txt")
DOWN = ModelUnavailable("The provider is down.", fix="Wait.")


class Failing:
    """A model that gives some good replies, then fails."""

    def __init__(self, spoken, good, error, piece=None):
        self.traits = replace(spoken.traits, name=spoken.traits.name)
        self._spoken, self._good, self._error, self._piece = spoken, good, error, piece

    def size(self, request):
        return self._spoken.size(request)

    def count(self, text):
        return self._spoken.count(text)

    async def stream(self, request):
        if self._good > 0:
            self._good -= 1
            async for piece in self._spoken.stream(request):
                yield piece
            return
        if self._piece is not None:
            yield self._piece
        raise self._error

    async def aclose(self):
        await self._spoken.aclose()


@pytest.fixture
def spare(tmp_path):
    """Write a script for a fallback model and return the model's name."""

    def write_script(number, lines):
        script = tmp_path / f"spare{number}.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{script}"

    return write_script


def fail(shell, good, error, piece=None):
    """Make the session's model fail after some good replies."""
    models, budget = shell.deps.models, shell.deps.budget
    failing = Failing(models.current.model._model, good, error, piece)
    metered = MeteredModel(failing, budget.gate, budget.account, retry=RetryPolicy(seconds=0))
    models.current = ModelSet(metered, Single(metered, max_tokens=200, answer_tokens=100))


def fall_back_on(shell, *names):
    shell.deps.settings.fallback = names


@pytest.mark.parametrize("error", [DOWN, ModelMissing("The key was refused.", key=True)])
async def test_the_next_model_continues_the_turn(play, spare, error):
    name = spare(1, [finish("Three lines.")])
    async with play([COUNT], price=PRICE, budget="1") as shell:
        fail(shell, 1, error)
        fall_back_on(shell, name)
        events = await turn(shell)
        assert shell.deps.models.name == name
        assert (await shell.deps.budget.caps())[0].held == 0
    assert events[-1].status == "answered"
    assert of(events, CallFinished)[0].name == "count_text"
    assert [event.model for event in events if isinstance(event, StepStarted)][-1] == name
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert f"{error.message} {name} takes over, as [models] fallback says." in notices


async def test_the_error_is_shown_after_each_fallback_was_tried_once(play, spare):
    async with play([], price=PRICE, budget="1") as shell:
        name = shell.deps.models.session_model
        fail(shell, 0, DOWN)
        fall_back_on(shell, "script:/nowhere.jsonl", name)
        events = await turn(shell)
        assert shell.deps.models.session_model == name
    assert events[-1].status == "error"
    assert "The provider is down." in of(events, ErrorHappened)[0].message
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert any("script:/nowhere.jsonl cannot take over" in text for text in notices)


@pytest.mark.parametrize(
    ("error", "piece"), [(DOWN, Delta("I begin")), (ModelBroken("The request was refused.", billed=False), None)]
)
async def test_no_fallback_during_a_reply_or_after_a_request_error(play, spare, error, piece):
    name = spare(1, [finish("Three lines.")])
    async with play([], price=PRICE, budget="1") as shell:
        fail(shell, 0, error, piece)
        fall_back_on(shell, name)
        events = await turn(shell)
        assert shell.deps.models.name != name
    assert events[-1].status == "error"


async def test_a_model_without_a_price_is_no_fallback_under_a_dollar_cap(play, spare, monkeypatch):
    name = spare(1, [finish("Three lines.")])
    async with play([], price=PRICE, budget="1") as shell:
        make = shell.deps.models.factory._model

        def unpriced(model_name):
            model = make(model_name)
            if model_name == name:
                model.traits = replace(model.traits, price=None)
            return model

        monkeypatch.setattr(shell.deps.models.factory, "_model", unpriced)
        fail(shell, 0, DOWN)
        fall_back_on(shell, name)
        events = await turn(shell)
        assert shell.deps.models.name != name
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert any(f"{name} cannot take over" in text and "price" in text for text in notices)
    assert events[-1].status == "error"
