"""A fallback model takes over from an unavailable one, within the caps, and continues the turn."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn
from graph_turns import Probe, add, plan, states

from ecoshell.agent.model_set import ModelSet
from ecoshell.assembly.shell import assemble
from ecoshell.errors import ModelBroken, ModelMissing, ModelUnavailable
from ecoshell.events import CallFinished, ErrorHappened, Notice, StepStarted
from ecoshell.messages import Call, Usage
from ecoshell.models import Delta, Reply
from ecoshell.models.metered import MeteredModel
from ecoshell.models.retrying import RetryPolicy
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single
from ecoshell.options import Options
from ecoshell.paths import user_paths

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


class Filling:
    """A model that makes the required call, and otherwise answers."""

    def __init__(self, spoken, answer):
        self.traits, self.size, self.count, self.aclose = (
            spoken.traits,
            spoken.size,
            spoken.count,
            spoken.aclose,
        )
        self._answer = answer

    async def stream(self, request):
        usage = Usage(self.size(request).count, 5)
        tool = request.callable_now[-1].name if request.want == "call" else ""
        yield (
            Reply("", (Call(tool, {"text": "a b"}),), usage)
            if tool
            else Reply(self._answer, usage=usage)
        )


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
    models.current = ModelSet(metered, Single(metered, ModeLimits(200, 100)))


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
    ("error", "piece"),
    [(DOWN, Delta("I begin")), (ModelBroken("The request was refused.", billed=False), None)],
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


async def test_a_fallback_fills_the_arguments_of_a_tool_graph(play, spare, monkeypatch):
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tools = [Probe(name, parameters=text) for name in ("first_probe", "second_probe")]
    name = spare(1, [])
    async with play(
        [plan(first_probe=[], second_probe=[])], price=PRICE, budget="1", strategy="graph"
    ) as shell:
        add(shell, *tools)
        make = shell.deps.models.factory._model
        monkeypatch.setattr(
            shell.deps.models.factory, "_model", lambda name: Filling(make(name), "Both ran.")
        )
        fail(shell, 1, DOWN)
        fall_back_on(shell, name)
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
        assert (shell.deps.models.name, cap.held) == (name, 0)
    assert [tool.runs for tool in tools] == [[{"text": "a b"}]] * 2
    assert dict(states(events)) == {"first_probe": "done", "second_probe": "done"}
    notices = [event.text for event in of(events, Notice)]
    assert notices.count(f"{DOWN.message} {name} takes over, as [models] fallback says.") == 1
    assert events[-1].status == "answered"


async def test_without_a_fallback_a_node_without_arguments_fails(play):
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    async with play([plan(probe=[])], price=PRICE, budget="1", strategy="graph") as shell:
        add(shell, Probe("probe", parameters=text))
        fail(shell, 1, DOWN)
        events = await turn(shell)
    assert ("probe", "failed") in states(events)


def settings_with(fallback):
    file = user_paths().settings_file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[models]\nfallback = {json.dumps(fallback)}\n")


@pytest.mark.parametrize("options", [{}, {"mode": "umi"}])
async def test_a_fallback_starts_in_place_of_a_model_without_a_key(
    home, spare, monkeypatch, options
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    name = spare(1, [finish("Three lines.")] * 3)
    settings_with(["openai/gpt-4.1", name])
    shell = await assemble(Options(model="openai/gpt-4o", workspace=home, budget="1", **options))
    try:
        events = await turn(shell)
        assert shell.deps.models.name == name
    finally:
        await shell.aclose()
    notices = [event.text for event in of(events, Notice)]
    assert notices[0].startswith(
        "openai/gpt-4.1 cannot take over for openai/gpt-4o. There is no API key"
    )
    assert (
        notices[1]
        == f"There is no API key for openai/gpt-4o. {name} takes over, as [models] fallback says."
    )
    assert events[-1].status == "answered"


@pytest.mark.parametrize(
    ("model", "reason"),
    [("openai/gpt-4o", "no API key for openai/gpt-4o"), ("local:/nowhere.gguf", "nowhere.gguf")],
)
async def test_the_first_model_is_named_when_nothing_can_take_over_at_the_start(
    home, monkeypatch, model, reason
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings_with(["openai/gpt-4.1"])
    with pytest.raises(ModelMissing, match=reason):
        await assemble(Options(model=model, workspace=home))
