"""/compact replaces the turns with one summary, written within the caps by a model that the user has chosen."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import Recorder, finish, of, register, say, turn

from ecoshell.agent.memory import Memory
from ecoshell.agent.model_set import ModelSet
from ecoshell.budget import ZERO_PRICE, Price, Rates
from ecoshell.errors import LimitReached, ModelBroken, ModelMissing, UsageError
from ecoshell.events import BudgetSettled, CallFinished, Compacted, TurnFinished
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single

PRICE = (Decimal(1), Decimal(4))
LONG = "a long answer, " * 200
SUMMARY = say("The user asked for notes.txt.", usage={"input": 900, "output": 20})


def price(dollars):
    return Price(Rates(*[Decimal(dollars)] * 5), source="a test")


class ScriptedFactory:
    """A model factory of scripted models by name; each records its requests."""

    def __init__(self, shell, tmp_path, **traits_by_name):
        self._deps = shell.deps
        self.models = {}
        for name, traits in traits_by_name.items():
            script = tmp_path / f"{name}.jsonl"
            script.write_text(json.dumps({**SUMMARY, "text": f"A summary by {name}."}) + "\n")
            model = Recorder(script)
            model.traits = replace(model.traits, name=name, **traits)
            self.models[name] = model
        shell.deps.models.factory = self
        shell.deps.settings.named_models = (*traits_by_name, "no-key")

    def make(self, name):
        if name not in self.models:
            raise ModelMissing(f"No API key for {name}.")
        metered = MeteredModel(self.models[name], self._deps.budget.gate, self._deps.budget.account)
        return ModelSet(metered, Single(metered, ModeLimits(200, 100)))

    async def aclose(self):
        pass


def mark_remote(shell):
    """Mark the session's model as remote."""
    model = shell.deps.models.current.model._model
    model.traits = replace(model.traits, local=False)


async def test_the_model_gets_the_summary_and_the_transcript_stays_complete(play):
    lines = [finish(LONG), SUMMARY, finish("next")]
    async with play(lines, registration="all", price=PRICE, budget="1.00") as shell:
        await turn(shell)
        printed = await shell.command("/compact")
        await turn(shell, "And now?")
        request, summarising = shell.requests[-1], shell.requests[1]
        stored = [event for _, event in shell.store.events(shell.session)]
    texts = [message.text for message in request.messages[1:]]
    assert texts[0] == "What was said and done so far, in short:\nThe user asked for notes.txt."
    assert "And now?\n\n[Budget: " in texts[2]
    assert not any(LONG.strip() in text for text in texts)
    assert (summarising.purpose, summarising.task) == ("compact", summarising.messages[-1].text)
    first = shell.requests[0].messages
    assert summarising.messages[: len(first)] == first  # so that the provider's cache applies
    assert summarising.tools == shell.requests[0].tools
    assert any(LONG.strip() in message.text for message in summarising.messages)
    (compacted,) = of(stored, Compacted)
    assert (compacted.turns, compacted.tokens_after < compacted.tokens_before) == (1, True)
    settled = [event for event in of(stored, BudgetSettled) if event.role == "compact"]
    assert settled[0].spent_nano == 900 * 1_000 + 20 * 4_000
    assert " for $0.00098 · " in printed.text
    assert of(stored, TurnFinished)[0].answer == LONG


async def test_a_resumed_session_continues_from_the_summary(play):
    async with play([finish(LONG), SUMMARY, finish("next")], registration="all") as shell:
        await turn(shell)
        await shell.command("/compact")
        live = shell.conversation.memory.messages
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == live
        again = Memory(shell.deps.catalog, shell.past)
        assert again.messages == live
        with pytest.raises(UsageError, match="compacted"):
            await shell.command("/undo")


@pytest.mark.parametrize("presentation", ["grow", "stable"])
async def test_registered_schemas_remain_after_compaction(play, presentation):
    lines = [
        register("count_text"),
        finish(LONG),
        SUMMARY,
        say("", "count_text", path="notes.txt"),
        finish("3"),
    ]
    async with play(lines, registration="names", presentation=presentation) as shell:
        await turn(shell)
        await shell.command("/compact")
        events = await turn(shell, "Count.")
        last = shell.requests[-1]
    description = shell.conversation.known("count_text").description
    texts = [message.text for message in last.messages] + [tool.as_text() for tool in last.tools]
    assert of(events, CallFinished)[0].ok
    assert sum(text.count(description) for text in texts) == 1
    assert sum(text.count("Tools to register:") for text in texts) == 1


async def test_a_cheaper_model_does_not_read_the_conversation_unless_chosen(play, tmp_path):
    async with play(
        [finish(LONG), SUMMARY], registration="all", price=PRICE, budget="1.00"
    ) as shell:
        mark_remote(shell)
        factory = ScriptedFactory(
            shell,
            tmp_path,
            far={"price": price("0.001"), "local": False},
            here={"price": ZERO_PRICE, "local": True},
        )
        await turn(shell)
        await shell.command("/compact")
        assert [name for name, model in factory.models.items() if model.requests] == []
        assert "The user asked for notes.txt." in shell.conversation.memory.messages[0].text


@pytest.mark.parametrize("traits", [{"price": price(200)}, {"price": None}])
async def test_a_model_named_in_the_settings_is_announced_before_it_reads_the_conversation(
    play, tmp_path, traits
):
    async with play([finish(LONG), finish(LONG)], registration="all", price=PRICE) as shell:
        factory = ScriptedFactory(shell, tmp_path, far={**traits, "local": False})
        shell.deps.settings.compact_model = "far"
        await turn(shell)
        with pytest.raises(UsageError, match=r"far .* would read the whole conversation"):
            await shell.command("/compact")
        assert factory.models["far"].requests == []
        await shell.command("/compact")
        assert "A summary by far." in shell.conversation.memory.messages[0].text


@pytest.mark.parametrize(
    "traits",
    [
        {"price": price("0.01"), "context": 1500},
        {"price": ZERO_PRICE, "small": True},
        {"price": price(1)},
    ],
)
async def test_the_session_model_writes_the_summary_if_the_named_model_is_unsuitable(
    play, tmp_path, traits
):
    async with play(
        [finish(LONG), SUMMARY], registration="all", price=PRICE, budget="1.00"
    ) as shell:
        factory = ScriptedFactory(shell, tmp_path, far={**traits, "local": False})
        shell.deps.settings.compact_model = "far"
        if not {"context", "small"} & set(traits):
            shell.ledger.bar("far", "it billed too much")
        await turn(shell)
        await shell.command("/compact")
        assert factory.models["far"].requests == []
        assert "The user asked for notes.txt." in shell.conversation.memory.messages[0].text


async def test_a_cap_that_cannot_cover_the_summary_leaves_the_conversation_unchanged(play):
    async with play(
        [finish(LONG), SUMMARY], registration="all", price=PRICE, budget="1.00"
    ) as shell:
        await turn(shell)
        messages = shell.conversation.memory.messages
        await shell.command("/budget 0.004")
        with pytest.raises(LimitReached):
            await shell.command("/compact")
        assert shell.conversation.memory.messages == messages
        assert all(cap.held == 0 for cap in await shell.deps.budget.caps())


async def test_a_compaction_can_be_stopped_and_is_settled(play, monkeypatch):
    async with play(
        [finish(LONG), SUMMARY], registration="all", price=PRICE, budget="1.00"
    ) as shell:
        await turn(shell)
        messages, reached = shell.conversation.memory.messages, asyncio.Event()

        async def endless(request):
            reached.set()
            await asyncio.sleep(60)
            yield

        monkeypatch.setattr(shell.deps.models.current.model._model, "stream", endless)
        running = asyncio.ensure_future(shell.command("/compact"))
        await reached.wait()
        with pytest.raises(UsageError, match="A turn is running"):
            await turn(shell)
        await shell.stop()
        assert (await running).text.startswith("Stopped.")
        stored = [event for _, event in shell.store.events(shell.session)]
        assert shell.conversation.memory.messages == messages
        assert [event.role for event in of(stored, BudgetSettled)][-1] == "compact"
        assert of(stored, Compacted) == []
        assert all(cap.held == 0 for cap in await shell.deps.budget.caps())


async def test_a_summary_that_saves_nothing_is_rejected(play):
    async with play(
        [finish("3"), say("A summary that is longer than what it says. " * 200)]
    ) as shell:
        with pytest.raises(UsageError, match="nothing to compact"):
            await shell.command("/compact")
        await turn(shell, "How many?")
        messages = shell.conversation.memory.messages
        with pytest.raises(UsageError, match="save nothing"):
            await shell.command("/compact")
        assert shell.conversation.memory.messages == messages


async def test_an_empty_summary_is_an_error(play):
    async with play([finish(LONG), say("  ")], registration="all") as shell:
        await turn(shell)
        with pytest.raises(ModelBroken, match="no summary"):
            await shell.command("/compact")


async def test_a_conversation_too_long_for_every_model_is_an_error(play):
    async with play([finish(LONG)], registration="all") as shell:
        await turn(shell)
        model = shell.deps.models.current.model._model
        model.traits = replace(model.traits, context=1_200)
        with pytest.raises(UsageError, match="too long for every model"):
            await shell.command("/compact")


async def test_a_small_model_gets_a_labelled_extract_as_its_summary(play):
    async with play(
        [finish(LONG), finish("the end"), *[finish(LONG)] * 40], registration="all"
    ) as shell:
        model = shell.deps.models.current.model._model
        await turn(shell, "First?")
        await turn(shell, "Second?")
        model.traits = replace(model.traits, small=True)
        printed = await shell.command("/compact")
        (compacted,) = of([event for _, event in shell.store.events(shell.session)], Compacted)
        assert compacted.model == ""
        assert compacted.summary.startswith("[an extract, not a summary")
        assert "Asked: Second?\nAnswered: the end" in compacted.summary
        assert "too small for summaries" in printed.text
        model.traits = replace(model.traits, small=False)
        for _ in range(40):
            await turn(shell, "What of it? " * 30)
        model.traits = replace(model.traits, small=True)
        await shell.command("/compact")
        summary = shell.conversation.memory.summary
        assert len(summary) < 8_000
        assert "earlier turns omitted]" in summary
        assert "Asked: First?" in summary
