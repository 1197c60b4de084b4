"""Mode auto in whole turns: which mode starts and why, and which one continues after the first gives up."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import User, counts, finish, is_replayed, of, register, say, turn

from ecoshell.agent import LimitChoice
from ecoshell.assembly.shell import assemble
from ecoshell.errors import StoreError
from ecoshell.events import (
    Answer,
    BudgetSettled,
    CallFinished,
    LimitHit,
    ModeChosen,
    Notice,
    StepStarted,
    TurnFinished,
    from_json,
    to_json,
)
from ecoshell.options import Options, RoleModels
from ecoshell.paths import user_paths
from ecoshell.planning.btp.experience import Attempt

QUESTION = "How many lines has notes.txt?"
PRICE = (Decimal(1), Decimal(4))
COUNT = say("Count them.", "count_text", path="notes.txt")
GIVE_UP = finish("I cannot count.", give_up=True)
NO_WAY = say("It cannot be counted. Next: give up.")
ENOUGH = say("Enough is known. Next: conclusion.")


def attempt(shell, mode, outcome="answered", **changes):
    """An earlier attempt at the same question by the current models."""
    fields = {"strategy": "react", "price_nano": 1_000_000, "tokens": 900, "seconds": 2.0}
    return Attempt(QUESTION, mode, shell.deps.models.playing(mode), outcome=outcome, **{**fields, **changes})


def record_attempts(shell, *attempts):
    shell.deps.experience.records.add(attempts)


def outcomes(shell):
    return [(attempt.mode, attempt.outcome) for attempt in shell.deps.experience.records.attempts()]


def choices(events):
    """Each chosen mode with the mode it follows."""
    return [(event.mode, event.after) for event in of(events, ModeChosen)]


def roles(events):
    return [event.role for event in of(events, StepStarted)]


async def test_without_experience_the_single_mode_is_chosen_with_a_reason(play):
    async with play([finish("3 lines")], mode="auto") as shell:
        events = await turn(shell)
        assert outcomes(shell) == [("single", "answered")]
    (chosen,) = of(events, ModeChosen)
    assert (events[0].mode, chosen.mode, chosen.after) == ("auto", "single", "")
    assert "no experience yet" in chosen.why
    assert events.index(chosen) == 1
    assert (roles(events), events[-1].status) == (["single"], "answered")
    assert from_json(to_json(chosen)) == chosen


async def test_the_three_roles_continue_once_after_one_model_gives_up(play):
    lines = [COUNT, GIVE_UP, ENOUGH, say("3 lines")]
    async with play(lines, mode="auto", registration="all") as shell:
        events = await turn(shell)
        prompt = "\n".join(message.text for message in shell.requests[2].messages)
        assert is_replayed(shell)
        assert (await shell.status()).mode == "auto → umi"
        assert outcomes(shell) == [("single", "gave_up"), ("umi", "answered")]
    assert choices(events) == [("single", ""), ("umi", "single")]
    assert of(events, ModeChosen)[1].why == "single gave up: I cannot count."
    assert roles(events) == ["single", "single", "planner"]
    assert [event.step for event in of(events, StepStarted)] == [1, 2, 3]
    assert "3 lines" in prompt
    assert [(event.text, event.role) for event in of(events, Answer)] == [("3 lines", "summarizer")]
    assert len(of(events, TurnFinished)) == 1
    assert (events[-1].status, events[-1].steps) == ("answered", 3)


async def test_one_model_continues_after_the_three_roles_give_up(play):
    async with play([NO_WAY, COUNT, finish("3 lines")], mode="auto", registration="all") as shell:
        record_attempts(shell, attempt(shell, "single", "gave_up"), attempt(shell, "umi"))
        events = await turn(shell)
        assert outcomes(shell)[2:] == [("umi", "gave_up"), ("single", "answered")]
    assert choices(events) == [("umi", ""), ("single", "umi")]
    assert "umi answers 75% for about $0.001" in of(events, ModeChosen)[0].why
    assert roles(events) == ["planner", "single", "single"]
    assert (events[-1].status, events[-1].answer) == ("answered", "3 lines")


@pytest.mark.parametrize("strategy", ["react", "dfsdt", "tot", "graph"])
async def test_the_turn_ends_after_both_modes_give_up(play, strategy):
    lines = [GIVE_UP, NO_WAY, finish("never asked")]
    async with play(lines, mode="auto", strategy=strategy, registration="all") as shell:
        events = await turn(shell)
        assert outcomes(shell) == [("single", "gave_up"), ("umi", "gave_up")]
    assert choices(events) == [("single", ""), ("umi", "single")]
    assert (events[-1].status, events[-1].answer) == ("gave_up", "It cannot be counted.")
    assert [event.text for event in of(events, Answer)] == ["It cannot be counted."]


async def test_the_second_mode_sees_registrations_and_results_of_the_first(play):
    lines = [register("count_text"), COUNT, GIVE_UP, GIVE_UP, GIVE_UP, ENOUGH, say("3 lines")]
    async with play(lines, mode="auto", strategy="dfsdt", registration="names") as shell:
        events = await turn(shell)
        request = shell.requests[-2]
        assert is_replayed(shell)
        assert "count_text" in shell.conversation.memory.library
    assert choices(events)[-1] == ("umi", "single")
    assert any("3 lines" in message.text for message in request.messages)
    assert events[-1].status == "answered"
    assert len(of(events, CallFinished)) == 1


async def test_the_other_mode_does_not_continue_after_a_limit(play):
    lines = counts(8)
    async with play(
        lines, user=User(limit=LimitChoice("answer")), mode="auto", price=PRICE, budget="0.007", registration="all"
    ) as shell:
        events = await turn(shell)
        assert outcomes(shell) == [("single", "limit")]
    assert of(events, LimitHit)
    assert choices(events) == [("single", "")]
    assert events[-1].status == "limit"


async def test_the_step_limit_covers_both_modes(play):
    async with play([COUNT, GIVE_UP], mode="auto", max_steps=2, registration="all") as shell:
        events = await turn(shell)
    assert choices(events) == [("single", "")]
    assert (events[-1].status, events[-1].answer) == ("gave_up", "I cannot count.")


async def test_a_stopped_turn_is_neither_continued_nor_recorded(play):
    async with play([COUNT, GIVE_UP, ENOUGH, say("3")], mode="auto", registration="all") as shell:
        events = []
        async for event in shell.ask(QUESTION):
            events.append(event)
            if isinstance(event, CallFinished):
                stopping = asyncio.create_task(shell.stop())
        await stopping
        assert outcomes(shell) == []
    assert choices(events) == [("single", "")]
    assert events[-1].status == "interrupted"


@pytest.mark.parametrize("budget", ["0.004", "0.006", "0.01", "0.02", "0.05"])
@pytest.mark.parametrize("strategy", ["react", "dfsdt"])
async def test_the_cap_holds_whichever_mode_continues(play, budget, strategy):
    lines = [COUNT, GIVE_UP, GIVE_UP, say("Count. Next: caller."), COUNT] * 8
    async with play(lines, mode="auto", price=PRICE, budget=budget, strategy=strategy, registration="all") as shell:
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    paid = sum(event.spent_nano for event in of(events, BudgetSettled))
    assert (cap.spent, cap.held) == (paid, 0)
    assert paid <= cap.limit
    assert len(of(events, ModeChosen)) <= 2


async def test_a_second_attempt_that_the_cap_cannot_cover_ends_at_the_limit(play):
    lines = [{**GIVE_UP, "usage": {"input": 2_000, "output": 200}}, ENOUGH, say("3")]
    async with play(lines, mode="auto", price=PRICE, budget="0.03", registration="all") as shell:
        shell.deps.settings.plan = "off"
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    assert choices(events) == [("single", ""), ("umi", "single")]
    assert (len(of(events, LimitHit)), events[-1].status) == (1, "limit")
    assert (cap.held, cap.spent <= cap.limit) == (0, True)


async def test_a_role_without_a_price_does_not_continue_under_a_dollar_cap(play, home):
    settings = user_paths().settings_file
    settings.parent.mkdir(parents=True)
    settings.write_text('[models."openai/unpriced"]\nbase_url = "http://192.0.2.1:9/v1"\n')
    lines = [GIVE_UP, finish("3")]
    async with play(lines, mode="auto", price=PRICE, budget="0.50", registration="all") as shell:
        await shell.deps.models.give(RoleModels(summarizer="openai/unpriced"))
        events = await turn(shell)
        record_attempts(shell, *(attempt(shell, "umi", turn=number, session="s") for number in range(9)))
        again = await turn(shell)
    for turn_events in (events, again):
        assert choices(turn_events) == [("single", "")]
        assert "is unknown, and the" in of(turn_events, Notice)[0].text
    assert (events[-1].status, again[-1].status) == ("gave_up", "answered")


async def test_a_fixed_mode_never_switches_and_is_recorded(play):
    async with play([GIVE_UP, ENOUGH], mode="single") as shell:
        events = await turn(shell)
        assert outcomes(shell) == [("single", "gave_up")]
    assert (choices(events), events[-1].status) == ([], "gave_up")


async def test_an_attempt_is_recorded_with_its_cost_and_without_secrets(play, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    async with play([COUNT, GIVE_UP, ENOUGH, say("3")], mode="auto", price=PRICE, registration="all") as shell:
        events = await turn(shell, "Is correct-horse in notes.txt?")
        first, second = shell.deps.experience.records.attempts()
        assert first.models == second.models == shell.deps.models.session_model
        assert (first.session, first.turn) == (second.session, second.turn) == (shell.session, 1)
    assert first.query == "Is [key hidden] in notes.txt?"
    assert first.price_nano + second.price_nano == events[-1].spent_nano
    assert first.tokens + second.tokens == events[-1].usage.total
    assert min(first.price_nano, second.price_nano, first.tokens, second.tokens) > 0
    assert first.seconds >= 0


async def test_no_attempt_is_recorded_when_recording_is_off(play):
    async with play([finish("3")], mode="auto") as shell:
        shell.deps.settings.recording = False
        await turn(shell)
        assert outcomes(shell) == []


async def test_an_attempt_with_a_model_switch_is_not_recorded(play, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "Three."}\n')

    options = {"price": PRICE, "budget": "0.007", "registration": "all"}
    async with play(
        counts(8), user=User(limit=LimitChoice("model", f"script:{other}")), mode="auto", **options
    ) as shell:
        await turn(shell)
        assert shell.deps.models.session_model == f"script:{other}"
        assert outcomes(shell) == []


async def test_attempts_by_other_models_do_not_count(play):
    async with play([finish("3")], mode="auto") as shell:
        strange = replace(attempt(shell, "umi"), models="other")
        record_attempts(shell, strange, replace(strange, mode="single", outcome="gave_up"))
        events = await turn(shell)
    assert "no experience yet" in of(events, ModeChosen)[0].why


async def test_unreadable_experience_does_not_stop_the_turn(play):
    async with play([finish("3")], mode="auto") as shell:

        def broken(query, models):
            raise StoreError("The file is gone.")

        shell.deps.experience.past.modes = broken
        events = await turn(shell)
    assert "The file is gone." in of(events, ModeChosen)[0].why
    assert events[-1].status == "answered"


async def test_a_role_whose_model_cannot_be_loaded_leaves_the_turn_to_one_model(play):
    async with play([finish("3"), GIVE_UP], mode="auto") as shell:
        shell.deps.models.roles = RoleModels(caller="script:/nowhere/at/all.jsonl")
        record_attempts(shell, attempt(shell, "single", "gave_up"), attempt(shell, "umi"))
        chosen = await turn(shell)
        given_up = await turn(shell, "And what colour is it?")
    assert "The mode umi is unavailable." in of(chosen, Notice)[0].text
    assert (choices(chosen), chosen[-1].status) == ([("single", "")], "answered")
    assert given_up[-1].status == "gave_up"


async def test_the_mode_command_shows_the_last_choice_and_its_reason(play):
    async with play([GIVE_UP, ENOUGH, say("3")]) as shell:
        assert "No mode was chosen yet" in (await shell.command("/mode auto")).text
        assert (await shell.status()).mode == "auto → single"
        await turn(shell)
        printed = (await shell.command("/mode")).text
        assert "›  auto" in printed
        assert "Last choice: umi thinks: single gave up: I cannot count." in printed
        assert "Last choice" not in (await shell.command("/mode umi")).text
        assert (await shell.status()).mode == "umi"


async def test_switching_the_model_keeps_the_mode_and_releases_idle_models(play, tmp_path):
    caller, other = tmp_path / "caller.jsonl", tmp_path / "other.jsonl"
    caller.write_text('{"text": "", "call": {"name": "count_text", "arguments": {"path": "notes.txt"}}}\n')
    other.write_text('{"text": "Hello."}\n')
    async with play([finish("3")], mode="auto", registration="all") as shell:
        await shell.deps.models.give(RoleModels(caller=f"script:{caller}"))
        await shell.deps.models.choose("umi")
        assert [model.traits.name for model in shell.deps.models.idle] == []
        await shell.deps.models.choose("single")
        (idle,) = shell.deps.models.idle
        assert idle.traits.name == f"script:{caller}"
        await shell.deps.models.choose("umi")
        assert idle in shell.deps.models.current.models
        await shell.command(f"/model script:{other}")
        assert (shell.deps.models.mode, shell.deps.models.current.mode.name, shell.deps.models.idle) == (
            "auto",
            "umi",
            (),
        )


async def test_a_locked_experience_file_is_reported_once_and_written_later(play):
    async with play([finish("1"), finish("2"), finish("3")], mode="auto") as shell:
        with closing(sqlite3.connect(user_paths().experience_file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            first = await turn(shell)
            second = await turn(shell, "And then?")
            other.execute("ROLLBACK")
        assert sum("are not recorded" in event.text for event in of(first + second, Notice)) == 1
        await turn(shell, "At last?")
        assert outcomes(shell) == [("single", "answered")] * 3


async def test_auto_explains_that_the_embedded_model_acts_alike_in_both_modes(home, embedded_model):
    shell = await assemble(Options(model="embedded", mode="auto", workspace=home))
    try:
        events = await turn(shell)
        assert "Only one choice" in (await shell.command("/mode")).text
    finally:
        await shell.aclose()
    (chosen,) = of(events, ModeChosen)
    assert chosen.mode == "single"
    assert "in either mode, so they are the same" in chosen.why
    assert "3 lines" in events[-1].answer
