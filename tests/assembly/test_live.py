"""Settings changed while a shell runs."""

import json
from dataclasses import replace

import pytest

from ecoshell.agent.approval import ApprovalRequest
from ecoshell.assembly import roles_of, rules_of
from ecoshell.assembly.live import AT_ONCE, apply
from ecoshell.assembly.shell import assemble
from ecoshell.assembly.viewing import caps_of
from ecoshell.budget import parse_amount
from ecoshell.errors import ModelMissing
from ecoshell.events import Event
from ecoshell.messages import Call
from ecoshell.options import Options, RoleModels
from ecoshell.paths import user_paths
from ecoshell.settings import descriptions
from ecoshell.settings.convert import to_settings
from ecoshell.settings.schema import Settings

READ = Call(id="c1", name="read_file", arguments={"path": "x"})


@pytest.fixture
async def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"text": "Done."}) + "\n")
    (tmp_path / "other.jsonl").write_text(script.read_text())
    opened = await assemble(Options(model=f"script:{script}", workspace=tmp_path))
    yield opened
    await opened.aclose()


def test_every_setting_that_is_taken_up_is_one() -> None:
    assert set(descriptions()) >= AT_ONCE


async def test_caps_steps_and_the_way_of_registering_hold_at_once(shell) -> None:
    settings = to_settings(
        Settings,
        {
            "budget": {"session": "0.25", "ask_above": "0.05"},
            "agent": {"max_steps": 3, "registration": "names", "strategy": "tot", "mode": "umi"},
        },
    )
    agent = (("agent", name) for name in ("max_steps", "registration", "strategy", "mode"))
    for key in (("budget", "session"), ("budget", "ask_above"), *agent):
        assert await apply(shell, settings, key, Options())
    assert [(cap.scope, cap.limit) for cap in await shell.deps.budget.caps()] == [
        ("session", 250_000_000)
    ]
    assert (
        shell.deps.settings.max_steps,
        shell.deps.settings.registration,
        shell.deps.settings.ask_above_nano,
    ) == (
        3,
        "names",
        50_000_000,
    )
    assert (shell.deps.strategy.name, shell.deps.models.current.mode.name) == ("tot", "umi")


async def test_a_days_cap_of_the_settings_is_known_as_theirs(shell) -> None:
    """So that one the person sets later by a command stands until the settings change."""
    ledger = shell.deps.budget.gate.ledger
    for day in ("1", "20000tok", "2"):
        settings = to_settings(Settings, {"budget": {"day": day}})
        assert await apply(shell, settings, ("budget", "day"), Options())
        (cap,) = await shell.deps.budget.caps()
        assert cap.scope == "day"
    await shell.set_cap("day", parse_amount("5"))
    ledger.adopt_cap("day", parse_amount("2"))  # as the next start does
    (cap,) = await shell.deps.budget.caps()
    assert cap.limit == 5_000_000_000


async def test_a_view_shows_both_caps_of_a_scope_and_what_is_spent_of_one_that_is_to_change(
    shell,
) -> None:
    for cap in ("1", "20000tok"):
        await shell.set_cap("session", parse_amount(cap))
    shown = await caps_of(shell, Options(budget="2"))
    assert {(cap.scope, cap.unit, cap.limit) for cap in shown} == {
        ("session", "usd", 2_000_000_000),
        ("session", "tokens", 20_000),
    }


async def test_a_cap_that_was_taken_out_still_holds_in_the_session(shell) -> None:
    await apply(
        shell,
        to_settings(Settings, {"budget": {"session": "0.25"}}),
        ("budget", "session"),
        Options(),
    )
    assert not await apply(shell, Settings(), ("budget", "session"), Options())
    assert len(await shell.deps.budget.caps()) == 1


async def test_a_session_that_is_begun_or_resumed_in_a_chat_has_the_caps_of_the_settings(
    shell,
) -> None:
    uncapped = shell.session
    await shell.command("/budget off")
    await shell.command("/new")
    for given in ({"session": "0.25", "turn": "9000tok"}, {"session": "0.50", "turn": "9000tok"}):
        settings = to_settings(Settings, {"budget": given})
        assert await apply(shell, settings, ("budget", "session"), Options())
        await shell.command("/new")
        caps = {(cap.scope, cap.limit) for cap in await shell.deps.budget.caps()}
        assert caps == {("turn", 9000), ("session", parse_amount(given["session"]).value)}
    await shell.command("/budget 0.75")
    second = shell.session
    for session, limit in ((uncapped, 500_000_000), (second, 750_000_000)):
        await shell.command(f"/resume {session}")
        assert [cap.limit for cap in await shell.deps.budget.caps() if cap.scope == "session"] == [
            limit
        ]


async def test_what_a_run_was_told_caps_each_session_of_it(shell, tmp_path) -> None:
    own = await assemble(Options(model=shell.deps.models.name, workspace=tmp_path, budget="0.30"))
    await own.command("/new")
    assert [(cap.scope, cap.limit) for cap in await own.deps.budget.caps()] == [
        ("session", 300_000_000)
    ]
    await own.aclose()


@pytest.mark.parametrize("name", ["advisor", "task_model"])
async def test_unavailable_models_of_other_uses_are_refused(shell, name) -> None:
    settings = to_settings(Settings, {"agent": {name: "nosuch"}})
    with pytest.raises(ModelMissing):
        await apply(shell, settings, ("agent", name), Options())
    assert getattr(shell.deps.settings, name) is None


async def test_rules_hold_from_the_next_call_on(shell) -> None:
    settings = to_settings(Settings, {"approval": {"deny": ["read_file"]}})
    assert (
        rules_of(settings, Options(), user_paths(), shell.deps.catalog.names)
        .judge(READ, shell.deps.catalog.tool("read_file"))
        .verdict
        == "deny"
    )
    assert await apply(shell, settings, ("approval", "deny"), Options())
    events: list[Event] = []
    request = ApprovalRequest(
        READ, shell.deps.catalog.tool("read_file"), shell.deps.catalog.schema("read_file")
    )
    ruling = await shell.deps.approvals.rule(request, events.append)
    assert "a rule in the settings forbids it" in ruling.refusal


async def test_another_model_is_gone_on_with_and_one_that_cannot_be_had_leaves_the_old_one(
    shell, tmp_path
) -> None:
    other = f"script:{tmp_path / 'other.jsonl'}"
    assert await apply(shell, Settings(model=other), ("model",), Options())
    assert shell.deps.models.name == other
    with pytest.raises(ModelMissing):
        await apply(shell, Settings(model="script:/nonexistent.jsonl"), ("model",), Options())
    assert shell.deps.models.name == other


async def test_what_is_built_in_at_the_start_is_not_taken_up(shell) -> None:
    assert not await apply(shell, Settings(), ("local", "context"), Options())


async def test_a_roles_model_and_another_preset_hold_at_once_and_other_roles_keep_what_was_chosen(
    shell, tmp_path
):
    other, mine = (f"script:{tmp_path / 'other.jsonl'}", f"script:{tmp_path / 'mine.jsonl'}")
    (tmp_path / "mine.jsonl").write_text((tmp_path / "other.jsonl").read_text())
    await shell.command("/mode umi")
    await shell.command(f"/role planner {mine}")
    umi = {"caller": other, "preset": "frugal", "presets": {"frugal": {"summarizer": mine}}}
    settings = to_settings(Settings, {"modes": {"umi": umi}})
    assert await apply(shell, settings, ("modes", "umi", "caller"), Options())
    assert shell.deps.models.roles == RoleModels(planner=mine, caller=other)
    assert await apply(shell, settings, ("modes", "umi", "preset"), Options())
    assert shell.deps.models.roles == RoleModels(caller=other, summarizer=mine)
    assert shell.deps.models.current.players["summarizer"].traits.name == mine
    assert shell.deps.settings.presets == {"frugal": RoleModels(summarizer=mine)}


async def test_what_a_run_says_of_roles_goes_before_the_settings_which_go_before_their_preset(
    tmp_path,
):
    umi = {
        "planner": "a",
        "caller": "b",
        "preset": "p",
        "presets": {"p": {"caller": "c", "summarizer": "d"}},
    }
    settings = to_settings(Settings, {"modes": {"umi": umi}})
    assert roles_of(settings, Options()) == RoleModels("a", "b", "d")
    assert roles_of(settings, Options(roles=RoleModels(planner="-", summarizer="e"))) == RoleModels(
        None, "b", "e"
    )


async def test_naming_a_role_means_the_mode_that_has_roles(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"text": "Done."}) + "\n")
    roles = RoleModels(caller=f"script:{script}")
    for options, mode in (
        (Options(roles=roles), "umi"),
        (Options(roles=roles, mode="single"), "single"),
    ):
        opened = await assemble(replace(options, model=f"script:{script}", workspace=tmp_path))
        assert (opened.deps.models.mode, opened.deps.models.roles) == (mode, roles)
        await opened.aclose()
