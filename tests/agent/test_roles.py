"""A model for each role: requests, prices, presets and models that cannot be loaded."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import pytest
from agent_play import User, finish, of, register, say, turn
from hostile_server import hostile_server

from ecoshell.assembly.shell import assemble
from ecoshell.errors import ModelMissing, UsageError
from ecoshell.events import (
    Answer,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallStarted,
    CostWanted,
    ErrorHappened,
    Notice,
    PlanChanged,
    StepStarted,
    ToolRegistered,
    TurnFinished,
    from_json,
)
from ecoshell.models.metered import MeteredModel
from ecoshell.models.script import ScriptModel
from ecoshell.options import Options, RoleModels
from ecoshell.paths import user_paths

NEXT = say("Count the lines of notes.txt with count_text. Next: caller.")
ENOUGH = say("Enough is known. Next: conclusion.")
CALL = say("", "count_text", path="notes.txt")
PRICE = """
[models."{name}".price]
input = {input}
output = {output}
"""


@pytest.fixture
def cast(home, tmp_path):
    """Open a shell in mode umi: `async with cast(planner=[…], caller="embedded", prices=[…]) as shell`.

    Each role takes a model's name or the lines of a script; scripts are free unless `prices`, in dollars per million
    tokens, names their role.
    """

    def script(name, lines):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{file}"

    @asynccontextmanager
    async def opened(*, session=(), prices=(), settings="", user=None, **options):
        roles = {
            role: options.pop(role)
            for role in ("planner", "caller", "summarizer")
            if role in options
        }
        names = {
            role: lines if isinstance(lines, str) else script(role, lines)
            for role, lines in roles.items()
        }
        names["session"] = script("session", session)
        text = settings + "".join(
            PRICE.format(name=names[role], input=cost, output=cost) for role, cost in prices
        )
        user_paths().settings_file.parent.mkdir(parents=True, exist_ok=True)
        user_paths().settings_file.write_text(text)
        role_models = RoleModels(**{role: names[role] for role in roles})
        assembled = Options(
            model=names["session"], mode="umi", roles=role_models, workspace=home, **options
        )
        shell = await assemble(assembled, user)
        shell.names = names
        try:
            yield shell
        finally:
            await shell.aclose()

    return opened


def script_at(tmp_path, name, *lines):
    file = tmp_path / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"script:{file}"


async def test_each_role_calls_its_own_model_with_a_row_in_the_ledger(cast):
    async with cast(
        planner=[NEXT, ENOUGH], caller=[CALL], summarizer=[say("3 lines")], registration="all"
    ) as shell:
        events = await turn(shell)
        settled = [(event.role, event.model) for event in of(events, BudgetSettled)]
        rows = {
            kind: {row.key: row.calls for row in shell.ledger.rows(kind)}
            for kind in ("role", "model")
        }
        names = shell.names
    roles = ("planner", "caller", "planner", "summarizer")
    assert settled == [(role, names[role]) for role in roles]
    assert rows["role"] == {"planner": 2, "caller": 1, "summarizer": 1}
    assert rows["model"] == {names["planner"]: 2, names["caller"]: 1, names["summarizer"]: 1}
    assert {(event.role, event.model) for event in of(events, StepStarted)} == {
        ("planner", names["planner"])
    }
    assert [event.role for event in of(events, CallStarted)] == ["caller"]
    assert of(events, Answer) == [Answer("3 lines", role="summarizer")]


def test_older_events_without_roles_can_be_read():
    call = from_json({"type": "call_started", "id": "c1", "name": "count_text", "arguments": {}})
    answer = from_json({"type": "answer", "text": "3 lines", "partial": False})
    assert (call, answer) == (CallStarted("c1", "count_text", {}), Answer("3 lines"))


async def test_a_call_by_the_planner_is_attributed_to_it(cast):
    call = say("Count.", "count_text", path="notes.txt")
    async with cast(session=[call, finish("3")], caller=[CALL], registration="all") as shell:
        events = await turn(shell)
    assert [event.role for event in of(events, CallStarted)] == ["planner"]
    assert {event.role for event in of(events, BudgetSettled)} == {"planner"}


async def test_roles_without_a_model_share_the_session_model(cast):
    async with cast(session=[NEXT, ENOUGH, say("3")], caller=[CALL], registration="all") as shell:
        players = shell.deps.models.current.players
        assert players["planner"] is players["summarizer"] is shell.deps.models.current.model
        assert len(shell.deps.models.current.models) == 2
        assert (await turn(shell))[-1].answer == "3"


async def test_models_without_a_role_are_closed(cast, tmp_path, monkeypatch):
    closed = []

    async def aclose(self):
        closed.append(self.traits.name)

    monkeypatch.setattr(ScriptModel, "aclose", aclose)
    async with cast(
        caller=[CALL], summarizer=[say("3")], session=[ENOUGH], registration="all"
    ) as shell:
        initial, other = shell.deps.models.current, script_at(tmp_path, "other", CALL)
        await shell.command(f"/role caller {other}")
        assert closed == [shell.names["caller"]]
        assert shell.deps.models.current.players["summarizer"] is initial.players["summarizer"]
        assert shell.deps.models.current.model is initial.model
        await shell.command(f"/role summarizer {other}")
        assert (
            shell.deps.models.current.players["summarizer"]
            is shell.deps.models.current.players["caller"]
        )
        await shell.command("/mode single")
        assert sorted(closed) == sorted([shell.names["caller"], shell.names["summarizer"], other])
        assert shell.deps.models.current.models == (initial.model,)
        await shell.command("/mode umi")
        assert shell.deps.models.current.players["caller"].traits.name == other


async def test_the_role_command_shows_sets_and_resets_roles(cast, tmp_path):
    other = script_at(tmp_path, "other", CALL)
    async with cast(session=[ENOUGH, say("3")]) as shell:
        printed = (await shell.command("/role")).text
        assert printed.count(shell.names["session"]) == printed.count("the session's") == 3
        assert other in (await shell.command(f"/role caller {other}")).text
        assert shell.deps.models.roles == RoleModels(caller=other)
        assert other not in (await shell.command("/role caller -")).text
        await shell.command(f"/role planner {other}")
        assert shell.deps.models.name == other
        assert (
            "Only mode umi"
            in (await shell.command("/mode single") and await shell.command("/role -")).text
        )
        assert (shell.deps.models.roles, shell.deps.models.name) == (
            RoleModels(),
            shell.names["session"],
        )
        offers = [completion.text for completion in shell.complete("/role summarizer ")]
        assert {"/role summarizer -", "/role summarizer embedded"} <= set(offers)


async def test_a_preset_sets_every_role_and_resets_the_rest(cast, tmp_path):
    cheap = script_at(tmp_path, "cheap", ENOUGH)
    settings = f'[modes.umi.presets.frugal]\nplanner = "{cheap}"\n'
    async with cast(session=[say("3")], caller=[CALL], settings=settings) as shell:
        assert cheap in (await shell.command("/role frugal")).text
        assert shell.deps.models.roles == RoleModels(planner=cheap)
        assert "/role frugal" in [completion.text for completion in shell.complete("/role fru")]
        events = await turn(shell)
    assert [(event.role, event.model) for event in of(events, BudgetSettled)] == [
        ("planner", cheap),
        ("summarizer", shell.names["session"]),
    ]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("caller", "The caller needs a model"),
        ("calller embedded", "Did you mean caller?"),
        ("frugel", "Did you mean frugal?"),
        ("unknown x", "planner, caller, summarizer, advisor, frugal"),
    ],
)
async def test_an_unknown_role_or_preset_is_rejected_with_the_nearest_name(
    cast, tmp_path, typed, message
):
    cheap = script_at(tmp_path, "cheap", ENOUGH)
    async with cast(settings=f'[modes.umi.presets.frugal]\nplanner = "{cheap}"\n') as shell:
        with pytest.raises(UsageError) as caught:
            await shell.command(f"/role {typed}")
        assert message in str(caught.value)
        assert shell.deps.models.roles == RoleModels()


@pytest.mark.parametrize("mode", ["single", "umi"])
async def test_a_model_that_cannot_be_loaded_leaves_the_roles_unchanged(cast, mode):
    settings = '[modes.umi.presets.gone]\nsummarizer = "script:/nonexistent.jsonl"\n'
    async with cast(session=[ENOUGH, say("3")], settings=settings) as shell:
        await shell.command(f"/mode {mode}")
        initial = shell.deps.models.current
        for typed in ("gone", "summarizer openai/gpt-no-such"):
            with pytest.raises(ModelMissing, match="cannot be the summarizer"):
                await shell.command(f"/role {typed}")
        assert (shell.deps.models.current, shell.deps.models.roles) == (initial, RoleModels())


@pytest.mark.parametrize("typed", ["/mode umi", "/role caller -"])
async def test_no_turn_starts_while_models_change(cast, monkeypatch, typed):
    async with cast(session=[say("3")], registration="all") as shell:
        started, released, make = (
            threading.Event(),
            threading.Event(),
            shell.deps.models.factory.make,
        )

        def slow(*arguments, **keywords):
            started.set()
            assert released.wait(600)
            return make(*arguments, **keywords)

        monkeypatch.setattr(shell.deps.models.factory, "make", slow)
        changing = asyncio.create_task(shell.command(typed))
        assert await asyncio.to_thread(started.wait, 600)
        with pytest.raises(UsageError, match="A turn is running"):
            await turn(shell)
        released.set()
        await changing
        assert of(await turn(shell), TurnFinished)


async def test_an_empty_answer_names_its_role(cast):
    async with cast(planner=[ENOUGH], summarizer=[say(""), say("")], registration="all") as shell:
        events = await turn(shell)
    (error,) = of(events, ErrorHappened)
    assert error.message.startswith("The summarizer gave an empty answer")
    assert "/role" in error.fix


async def test_a_partial_answer_quotes_no_registration(cast):
    lines = [say("Register count_text. Next: caller."), register("count_text"), NEXT, CALL]
    async with cast(session=[*lines[:2], say("")], max_steps=1, registration="names") as shell:
        nothing = await turn(shell)
    async with cast(session=[*lines, say("")], max_steps=2, registration="names") as shell:
        counted = await turn(shell)
    assert of(nothing, ToolRegistered)
    assert nothing[-1].answer == ""
    assert counted[-1].answer.startswith("The last result, as returned by count_text: ")


async def test_a_model_loaded_only_to_check_a_role_is_closed(cast, monkeypatch):
    closed = []

    async def note(self):
        closed.append(self.traits.name)

    async with cast(session=[say("3")], caller=[say("")]) as shell:
        await shell.command("/mode single")
        monkeypatch.setattr(MeteredModel, "aclose", note)
        name = shell.deps.models.roles.caller
        await shell.command(f"/role caller {name}")
        assert closed == [name]


async def test_roles_modes_and_strategies_cannot_change_during_a_turn(cast):
    async with cast(session=[NEXT, CALL, ENOUGH, say("3")], registration="all") as shell:
        async for event in shell.ask("How many?"):
            if isinstance(event, CallStarted):
                for typed in ("/role caller embedded", "/mode single", "/strategy tot"):
                    with pytest.raises(UsageError, match="A turn is running"):
                        await shell.command(typed)
        state = (shell.deps.models.roles, shell.deps.models.mode, shell.deps.settings.strategy)
        assert state == (RoleModels(), "umi", "react")


async def test_a_role_without_a_price_is_refused_under_a_cap_before_spending(cast):
    unpriced = '[models."openai/unpriced"]\nbase_url = "http://192.0.2.1:1/v1"\n'
    options = {
        "caller": "openai/unpriced",
        "settings": unpriced,
        "registration": "all",
        "budget": "0.50",
    }
    async with cast(session=[NEXT, ENOUGH], prices=[("session", 1)], **options) as shell:
        events = await turn(shell)
    (error,) = of(events, ErrorHappened)
    assert error.kind == "PriceUnknown"
    assert "openai/unpriced" in error.message
    assert '[models."openai/unpriced".price]' in error.fix
    assert of(events, BudgetHeld) == []


@pytest.mark.parametrize("budget", ["0.002", "0.01", "0.05"])
async def test_one_cap_covers_models_of_different_prices(cast, budget):
    prices = [("planner", 1), ("caller", 3), ("summarizer", 2)]
    lines = {"planner": [NEXT] * 40, "caller": [CALL] * 40, "summarizer": [say("3")] * 4}
    async with cast(**lines, prices=prices, registration="all", budget=budget) as shell:
        events = await turn(shell)
        (cap,) = await shell.deps.budget.caps()
    paid = sum(event.spent_nano for event in of(events, BudgetSettled))
    assert cap.spent == paid <= cap.limit
    assert cap.held == 0


async def test_cost_requests_and_estimates_use_the_price_of_the_role(cast, monkeypatch):
    from ecoshell.agent import CostChoice

    user = User(cost=CostChoice("go"))
    settings = '[budget]\nask_above = "0.00001"\n'
    options = {"settings": settings, "prices": [("caller", 5)], "registration": "all"}
    async with cast(session=[NEXT, ENOUGH, say("3")], caller=[CALL], user=user, **options) as shell:
        status = await shell.status()
        events = await turn(shell)
        name = shell.names["caller"]
    assert {(request.role, request.model) for request in of(events, CostWanted)} == {
        ("caller", name)
    }
    assert status.next_nano is not None
    assert status.next_nano > 0
    plan = of(events, PlanChanged)[0]
    assert plan.low == 0  # planner and summarizer may answer at once and are free
    assert plan.high is not None
    assert plan.high > 0
    assert user.asked


async def test_a_context_too_small_for_one_role_names_the_role(cast):
    small = '[models."openai/small"]\nbase_url = "http://127.0.0.1:1/v1"\ncontext = 1100\n'
    async with cast(
        session=[NEXT], caller="openai/small", settings=small, registration="all"
    ) as shell:
        events = await turn(shell)
    (error,) = of(events, ErrorHappened)
    assert "the caller's model openai/small has room for" in error.message
    assert "/role caller MODEL" in error.fix


async def test_a_model_chosen_at_a_limit_takes_every_role(cast, tmp_path):
    from ecoshell.agent import LimitChoice

    other = script_at(tmp_path, "other", ENOUGH, say("3"))

    options = {"prices": [("planner", 100)], "registration": "all", "budget": "0.001"}
    user = User(limit=LimitChoice("model", other))
    async with cast(planner=[ENOUGH], caller=[CALL], user=user, **options) as shell:
        events = await turn(shell)
        assert (shell.deps.models.roles, shell.deps.models.session_model) == (RoleModels(), other)
    assert (events[-1].status, events[-1].answer) == ("answered", "3")
    assert any(f"{other} plays every role" in notice.text for notice in of(events, Notice))


async def test_a_role_model_can_write_the_summary_and_stays_loaded(cast):
    lines = {"planner": [ENOUGH], "summarizer": [say("A long answer. " * 60), say("Short.")]}
    async with cast(**lines, prices=[("planner", 5), ("session", 5)]) as shell:
        await turn(shell)
        assert shell.names["summarizer"] in (await shell.command("/compact")).text
        assert len(shell.deps.models.current.models) == 3


async def test_both_modes_give_the_same_events_for_the_same_script(home, tmp_path):
    lines = [
        register("count_text", "why"),
        say("Count.", "count_text", path="notes.txt"),
        finish("3"),
    ]
    summaries, roles = [], []
    for mode in ("single", "umi"):
        name = script_at(tmp_path, f"same-{mode}", *lines)
        shell = await assemble(Options(model=name, mode=mode, workspace=home, registration="names"))
        try:
            events = await turn(shell)
        finally:
            await shell.aclose()
        reported = [
            event for event in events if isinstance(event, (ToolRegistered, CallFinished, Answer))
        ]
        summaries.append(
            [
                (event.type, getattr(event, "name", ""), getattr(event, "observation", ""))
                for event in reported
            ]
        )
        roles.append([event.role for event in of(events, BudgetSettled)])
        assert events[-1].answer == "3"
    assert summaries[0] == summaries[1]
    assert roles == [["single"] * 3, ["planner"] * 3]


@pytest.mark.slow
async def test_a_remote_planner_and_local_roles_share_one_cap(
    home, monkeypatch, tmp_path, embedded_model
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    summarizer = script_at(tmp_path, "summarizer", say("17 * 23 is 391."))
    with hostile_server() as server:
        user_paths().settings_file.parent.mkdir(parents=True)
        remote = f'[models."openai/planner"]\nbase_url = "{server.openai}"\nprice = {{ input = 1, output = 4 }}\n'
        remote += "native_tools = false\n"
        roles = f'[modes.umi]\ncaller = "embedded"\nsummarizer = "{summarizer}"\n'
        user_paths().settings_file.write_text(remote + roles)
        options = Options(model="openai/planner", mode="umi", workspace=home, budget="0.20")
        shell = await assemble(options)
        try:
            events = await turn(shell, "What is 17 * 23?")
            (cap,) = await shell.deps.budget.caps()
            by_role = {row.key: row.calls for row in shell.ledger.rows("role")}
            by_model = {row.key: row for row in shell.ledger.rows("model")}
        finally:
            await shell.aclose()
    assert (events[-1].status, events[-1].answer) == ("answered", "17 * 23 is 391.")
    assert "calculate" in [event.name for event in of(events, ToolRegistered)]
    call = of(events, CallStarted)[-1]
    assert (call.name, call.role) == ("calculate", "caller")
    assert call.arguments == {"expression": "17 * 23"}
    players = [(event.role, event.model) for event in of(events, BudgetSettled)]
    planner = ("planner", "openai/planner")
    assert players == [planner, ("caller", "embedded"), planner, ("summarizer", summarizer)]
    assert by_role == {"planner": 2, "caller": 1, "summarizer": 1}
    assert (by_model["embedded"].spent_nano, by_model[summarizer].spent_nano) == (0, 0)
    assert cap.spent == by_model["openai/planner"].spent_nano == 2 * (70 * 1000 + 12 * 4000)
    assert (cap.spent <= cap.limit, cap.held) == (True, 0)
    prompts = [json.dumps(body["messages"]) for body in server.asked]
    assert len(prompts) == 2
    assert all("You are the planner" in text for text in prompts)
    assert not any(
        "You are the caller" in text or "You are the summarizer" in text for text in prompts
    )
